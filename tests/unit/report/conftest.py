from pathlib import Path
from types import ModuleType

import pytest
import unit.report.synth

from meshtrial.records.dataset import StudyData


@pytest.fixture(scope="session")
def synth() -> ModuleType:
    return unit.report.synth


class Variants(dict[str, StudyData]):
    """Return the synthetic studies by name, each made on first use."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def __missing__(self, name: str) -> StudyData:
        self[name] = unit.report.synth.study_data(self._root / name, unit.report.synth.VARIANTS[name])
        return self[name]


@pytest.fixture(scope="session")
def variants(tmp_path_factory) -> Variants:
    return Variants(tmp_path_factory.mktemp("variants"))


@pytest.fixture(scope="session")
def added(synth, tmp_path_factory):
    """A study whose plan gives verdicts on the added amount of its primary responses."""
    scales = dict.fromkeys(synth.PRIMARY, "difference")
    return synth.study_data(tmp_path_factory.mktemp("added"), synth.Shape(scales=scales))


@pytest.fixture(scope="session")
def data(synth, tmp_path_factory):
    return synth.study_data(tmp_path_factory.mktemp("study"))
