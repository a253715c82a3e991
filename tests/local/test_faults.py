"""A dozen faults of the matrix in `tests/faults`, one per kind, and a dozen kinds of damage."""

from pathlib import Path

import pytest
from faults import damages
from faults.matrix import CHOSEN
from faults.trying import tried


@pytest.mark.parametrize("name", CHOSEN)
def test_a_study_survives(name: str, tmp_path: Path):
    tried(name, tmp_path / "session")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damages.finished(tmp_path_factory.mktemp("finished"))


@pytest.mark.parametrize("name", damages.CHOSEN)
def test_damage_is_told(name: str, finished: Path, tmp_path: Path):
    damages.tried(name, finished, tmp_path / "studies")
