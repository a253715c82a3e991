"""What surrounds a notebook that is run."""

from __future__ import annotations

import re

import pytest

from meshtrial.commands import run as command


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_REPORTS", str(tmp_path / "reports"))
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "studies"))
    return tmp_path


def test_an_executed_notebook_never_takes_the_place_of_another(folders):
    made = [command._new_notebook("rollout") for _ in range(4)]
    assert len(set(made)) == 4
    assert all(path.exists() and path.parent == folders / "reports" for path in made)
    assert all(re.fullmatch(r"rollout-\d{8}T\d{6}Z(-[234])?\.ipynb", path.name) for path in made)
