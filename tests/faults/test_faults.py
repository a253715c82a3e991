"""Every fault of the matrix and every kind of damage: ``make test-faults``, before a release."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import damages
from faults.matrix import CELLS
from faults.trying import tried


@pytest.mark.parametrize("name", CELLS)
def test_a_study_survives(name: str, tmp_path: Path):
    tried(name, tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damages.finished(tmp_path_factory.mktemp("finished"))


@pytest.mark.parametrize("name", damages.DAMAGES)
def test_damage_is_told(name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "studies"))
    damages.tried(name, finished, tmp_path / "studies")
