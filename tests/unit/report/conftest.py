from types import ModuleType

import pytest
import unit.report.synth

from meshtrial.design.responses import default_scales


@pytest.fixture(scope="session")
def synth() -> ModuleType:
    return unit.report.synth


@pytest.fixture(scope="session")
def variants(synth, tmp_path_factory):
    made = tmp_path_factory.mktemp("variants")
    return {name: synth.study_data(made / name, shape) for name, shape in synth.VARIANTS.items()}


@pytest.fixture(scope="session")
def added(synth, tmp_path_factory):
    """A study of today: the verdicts of what is added to a request are of the difference."""
    return synth.study_data(tmp_path_factory.mktemp("added"), synth.Shape(scales=default_scales()))


@pytest.fixture(scope="session")
def data(synth, tmp_path_factory):
    return synth.study_data(tmp_path_factory.mktemp("study"))
