"""Notebooks are thin: one parameters cell that equals what the study declares, short cells, no outputs."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from meshtrial import paths
from meshtrial.design.studies import STUDIES

NOTEBOOKS = sorted(paths.NOTEBOOKS.glob("*.ipynb"))
LONGEST = 15


def cells(path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["cells"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def is_parameters(cell: dict[str, Any]) -> bool:
    return "parameters" in cell["metadata"].get("tags", [])


def test_every_study_has_a_notebook():
    assert {path.stem for path in NOTEBOOKS} >= set(STUDIES)


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem in STUDIES], ids=lambda p: p.stem)
def test_the_parameters_cell_says_what_the_study_declares(path):
    (cell,) = [cell for cell in cells(path) if is_parameters(cell)]
    found = {}
    for statement in ast.parse(source(cell)).body:
        assert isinstance(statement, ast.Assign)
        (target,) = statement.targets
        assert isinstance(target, ast.Name)
        found[target.id] = ast.literal_eval(statement.value)
    declared = {parameter.name: parameter.default for parameter in STUDIES[path.stem].PARAMETERS}
    assert list(found) == list(declared)
    assert found == declared
    assert {name: type(value) for name, value in found.items()} == {n: type(v) for n, v in declared.items()}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_no_outputs_are_stored(path):
    for cell in cells(path):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_cells_are_short_and_begin_with_prose(path):
    found = cells(path)
    assert found[0]["cell_type"] == "markdown"
    for cell in found:
        if cell["cell_type"] == "code" and not is_parameters(cell):
            assert len(source(cell).splitlines()) <= LONGEST, source(cell)
