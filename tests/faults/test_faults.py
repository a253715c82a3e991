"""Every cell of the matrix: ``make test-faults``, before a release."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.matrix import CELLS
from faults.trying import tried


@pytest.mark.parametrize("name", CELLS)
def test_a_study_survives(name: str, tmp_path: Path):
    tried(name, tmp_path)
