from __future__ import annotations

from types import ModuleType

import pytest
import unit.report.synth


@pytest.fixture(scope="session")
def synth() -> ModuleType:
    return unit.report.synth


@pytest.fixture(scope="session")
def data(synth, tmp_path_factory):
    return synth.study_data(tmp_path_factory.mktemp("study"))
