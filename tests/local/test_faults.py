"""A dozen faults of the matrix in `tests/faults`: each kind once."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.matrix import CHOSEN
from faults.trying import tried


@pytest.mark.parametrize("name", CHOSEN)
def test_a_study_survives(name: str, tmp_path: Path):
    tried(name, tmp_path / "session")
