"""Notebooks are thin: parameters match the code, calls are public, no outputs are stored, and every cell runs."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import papermill
import pytest
from commandline import SAMPLE, meshtrial
from papermill.translators import PythonTranslator

import meshtrial as mt
from meshtrial import paths
from meshtrial.design.studies import STUDIES
from meshtrial.report.exporter import notebook_to_html
from meshtrial.report.figure import Figure

NOTEBOOKS = sorted(paths.NOTEBOOKS.glob("*.ipynb"))
GALLERY, EXPLORE = paths.NOTEBOOKS / "figures.ipynb", paths.NOTEBOOKS / "explore.ipynb"
OF_STUDIES = [path for path in NOTEBOOKS if path.stem in STUDIES]
BESIDE = [path.stem for path in (paths.CHECKOUT / "data" / "published").glob("*.py")]  # modules beside their data

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
each_study = pytest.mark.parametrize("path", OF_STUDIES, ids=lambda path: path.stem)


def cells(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["cells"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def is_parameters(cell: dict[str, Any]) -> bool:
    return "parameters" in cell["metadata"].get("tags", [])


def parameters_cell(path: Path) -> str:
    (cell,) = [cell for cell in cells(path) if is_parameters(cell)]
    return source(cell)


def code_cells(path: Path) -> list[str]:
    return [source(cell) for cell in cells(path) if cell["cell_type"] == "code" and not is_parameters(cell)]


@each_study
def test_the_parameters_cell_is_what_the_study_declares(path):
    assert parameters_cell(path) == STUDIES[path.stem].SETTINGS.source()
    assert len(STUDIES[path.stem].SETTINGS.cell) <= 13
    assert "design" in STUDIES[path.stem].SETTINGS.cell


@each_study
def test_papermill_reads_every_name_default_and_meaning(path, caplog):
    read = {one.name: one for one in PythonTranslator.inspect({"source": parameters_cell(path)})}
    assert caplog.text == ""
    taken = STUDIES[path.stem].SETTINGS
    assert list(read) == list(taken.cell)
    for name, one in read.items():
        setting = taken.settings[name]
        assert (one.help, ast.literal_eval(one.default)) == (setting.meaning, setting.text(setting.default))


@each_study
def test_the_command_lists_every_setting_once(path):
    code, out, _ = meshtrial("run", path.stem, "--help")
    assert code == 0
    listed = re.findall(r"^  (\w+) ", out.partition("\nWith default parameters\n")[0], re.M)
    assert sorted(listed) == sorted(STUDIES[path.stem].SETTINGS.settings)
    assert listed[: len(STUDIES[path.stem].SETTINGS.cell)] == list(STUDIES[path.stem].SETTINGS.cell)


@each
def test_it_uses_the_public_functions_and_nothing_else(path):
    for code in code_cells(path):
        for node in ast.walk(ast.parse(code)):
            assert not isinstance(node, ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.Lambda), code
            if isinstance(node, ast.Import):
                ((name, here),) = ((alias.name, alias.asname) for alias in node.names)
                assert (name, here) == ("meshtrial", "mt") or name in ("sys", *BESIDE)
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_")
                assert node.attr not in ("data", "outcome", "settings"), "the library's own objects"


@each
def test_no_outputs_are_stored(path):
    assert len({cell["id"] for cell in cells(path)}) == len(cells(path))
    for cell in cells(path):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def used_names(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


@pytest.fixture(scope="module")
def shown_already() -> set[str]:
    """Cells that read only the study: all notebooks use the same sample, so these show the same."""
    return set()


@pytest.mark.usefixtures("undrawn")
@each_study
def test_every_cell_ends_in_something_that_shows_itself(path, monkeypatch, shown_already):
    """The recorded sample has neither sizes nor injected delays, so a figure says that it is empty."""
    asked: list[str] = []
    names: dict[str, Any] = {}
    simulated = mt.tables.simulated_studies

    def recorded(name: str) -> mt.RecordedStudy:
        asked.append(name)
        return mt.open_study(SAMPLE)

    monkeypatch.setattr(mt, "run_notebook", recorded)
    monkeypatch.setattr(mt.tables, "simulated_studies", lambda seed, studies: simulated(seed, studies // 20))
    exec(parameters_cell(path), names)
    first, *others = code_cells(path)
    exec(first, names)
    assert asked == [path.stem]
    for code in others:
        if code not in shown_already:
            *before, last = ast.parse(code).body
            exec(compile(ast.Module(before, []), path.name, "exec"), names)
            assert isinstance(last, ast.Expr), code
            assert eval(compile(ast.Expression(last.value), path.name, "eval"), names)._repr_html_(), code
        if used_names(code) == {"mt", "study"}:
            shown_already.add(code)


# No sample has data for these; the gallery names the command that records it.
WITHOUT_DATA = {"accuracy", "capacity", "detection"}


@pytest.fixture
def unpacked(tmp_path, monkeypatch) -> Path:
    """Packed samples are unpacked into the test's own folder."""
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "studies"))
    return tmp_path


def figure_called(code: str) -> str:
    found = re.match(r"mt\.figures\.(\w+)\(", code)
    return found[1] if found else ""


def test_the_gallery_shows_every_figure_once():
    named = [figure_called(code) for code in code_cells(GALLERY)]
    assert sorted(filter(None, named)) == sorted(mt.figures.__all__)


@pytest.mark.usefixtures("undrawn")
def test_every_figure_of_the_gallery_has_the_numbers_of_a_sample(unpacked):
    names: dict[str, Any] = {}
    opening, *others = code_cells(GALLERY)
    exec(opening, names)
    for code in others:
        figure = eval(code, names)
        assert isinstance(figure, Figure), code
        assert (figure.table.columns == ["reason"]) == (figure_called(code) in WITHOUT_DATA), code


def test_papermill_runs_the_explorer_on_the_study_that_is_given(unpacked):
    study = next(path for name, path in mt.recorded_studies().items() if name.startswith("mesh_comparison"))
    done = unpacked / "explore.ipynb"
    papermill.execute_notebook(EXPLORE, done, {"study": str(study)}, cwd=paths.NOTEBOOKS, progress_bar=False)
    (shown,) = [
        output["data"]
        for cell in cells(done)
        if cell["cell_type"] == "code" and "mt.explore" in source(cell)
        for output in cell["outputs"]
    ]
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert "Explorer of mesh_comparison" in "".join(shown["text/plain"])
    # On a page without widgets or network, the views show their last state.
    page = notebook_to_html(done, unpacked / "explore.html").read_text()
    assert "Forest plot against none" in page
    assert "consul+l7" in page
    assert not re.search(r"\bsrc=\"(?!data:)|https?://(?!www\.w3\.org)[^\s\"]+\.js", page)


@pytest.mark.usefixtures("undrawn")
def test_your_system_shows_every_part_of_the_prediction(unpacked):
    path = paths.NOTEBOOKS / "your_system.ipynb"
    names: dict[str, Any] = {}
    exec(parameters_cell(path), names)
    opening, *others = code_cells(path)
    exec(opening, names)
    shown = "".join(eval(code, names)._repr_html_() for code in others)
    for part in ("catalogue", "place-order", "Added cores", "proxy at a rate"):
        assert part in shown
