"""The public functions: fast to import, typed, documented with correct examples, and without duplicate names."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from commandline import SAMPLE
from polars.testing import assert_frame_equal
from refused import refused

import meshtrial as mt
from meshtrial import api, paths
from meshtrial.errors import RecordError, UsageError
from meshtrial.load.files import InputFileError
from meshtrial.records import columns as schema
from meshtrial.report import figures, tables

MODULES = sorted(f"meshtrial.api.{found.name}" for found in pkgutil.iter_modules(api.__path__))
WITH_EXAMPLES = ("comparison", "display", "figures", "prediction", "sections", "study", "tables")


@pytest.fixture(scope="module")
def study() -> mt.RecordedStudy:
    return mt.open_study(SAMPLE)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_true(name, monkeypatch, study):
    monkeypatch.chdir(paths.CHECKOUT)
    given = {"mt": mt, "study": study}
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS, extraglobs=given)
    assert failed == 0
    assert (tried > 0) == (name.rpartition(".")[2] in WITH_EXAMPLES)


def test_the_example_of_the_reference_is_true(monkeypatch):
    monkeypatch.chdir(paths.CHECKOUT)
    page = paths.CHECKOUT / "docs" / "reference" / "python.md"
    with pl.Config():  # names that the example sets are removed with it
        failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert failed == 0
    assert tried > 5


def fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_it_loads_nothing_else():
    code = "import sys; before = set(sys.modules); import meshtrial; print(sorted(set(sys.modules) - before))"
    loaded = set(ast.literal_eval(fresh(code)))
    assert {name for name in loaded if name.startswith("meshtrial")} == {"meshtrial"}
    assert not loaded & {"numpy", "polars", "scipy", "matplotlib", "jinja2", "IPython"}


def test_every_name_of_the_list_for_type_checkers_is_loaded_from_where_it_says():
    seen = {}
    for node in ast.parse(Path(mt.__file__).with_suffix(".pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name  # a plain import in a stub is not a public name
                seen[alias.name] = getattr(importlib.import_module(node.module), alias.name)
    assert set(seen) == set(mt.__all__)
    for name, found in seen.items():
        assert getattr(mt, name) is found
    assert (Path(mt.__file__).parent / "py.typed").exists()


def test_an_unknown_name_is_refused_with_those_there_are():
    with refused(AttributeError, names=["meshtrial", "open", *mt.__all__]):
        _ = mt.open
    assert set(mt.__all__) < set(dir(mt))


def test_a_room_does_not_take_the_place_of_the_function_of_its_name():
    code = (
        "import meshtrial.compare.page, meshtrial, sys; print(type(meshtrial.compare).__name__)\n"
        # Once more from the start, in reverse order; other packages stay loaded.
        "for name in [name for name in sys.modules if name.partition('.')[0] == 'meshtrial']: del sys.modules[name]\n"
        "import meshtrial as mt, types; first = mt.compare; from meshtrial.compare import page\n"
        "import meshtrial.compare.analysis; print(mt.compare is first, isinstance(mt.compare, types.FunctionType))"
    )
    assert fresh(code).splitlines() == ["function", "True True"]


@pytest.mark.parametrize("room", [mt.figures, mt.tables, mt.sections], ids=lambda room: room.__name__)
def test_every_figure_table_and_section_takes_a_study_and_says_what_it_shows(room):
    for name in room.__all__:
        found = getattr(room, name)
        assert "StudyData" not in (inspect.getdoc(found) or "StudyData"), name
        if inspect.isfunction(found) and name != "simulated_studies":
            first = next(iter(inspect.signature(found).parameters.values()))
            assert (first.name, first.annotation) == ("study", "RecordedStudy"), name


def functions(room):
    return {name for name, found in vars(room).items() if inspect.isfunction(found)}


def test_every_figure_and_table_of_a_report_is_public():
    assert set(mt.figures.__all__) - {"accuracy"} == functions(figures)
    for_pages = {"clauses", "headlines", "recorded_at", "reproduce_command", "verdicts_sha256"}
    of_no_report = {"accuracy", "simulated_studies", "simulated_under_noise_of"}
    assert set(mt.tables.__all__) - of_no_report == functions(tables) - for_pages - {"simulation_checks"}


@pytest.mark.parametrize("name", schema.FRAMES)
def test_a_frame_has_the_columns_that_are_documented(study, name):
    of_a_run = {"requests", "series"}
    frame = getattr(study, name)(*(["01-1-none"] if name in of_a_run else []))
    described = schema.FRAMES[name]
    assert frame.schema == {column: one.kind for column, one in described.items()}
    assert frame.height > 0
    listed = mt.columns(name)
    assert listed["name"].to_list() == frame.columns
    assert listed["type"].to_list() == [str(kind) for kind in frame.dtypes]


def test_runs_are_counted_once_and_their_requests_are_those_of_the_table(study):
    runs = study.runs()
    assert runs.select("run_id", "attempt").is_duplicated().sum() == 0
    sent = study.responses().filter(pl.col("response") == "requests").select("run_id", pl.col("value").alias("sent"))
    assert runs.join(sent, on="run_id").select((pl.col("requests") == pl.col("sent")).all()).item()
    assert runs.select("run_id", "included").equals(
        study.responses().select("run_id", "included").unique(maintain_order=True)
    )


def test_a_run_that_is_not_there_is_refused(study):
    with refused(UsageError, names=["99-1-none"]):
        study.requests("99-1-none")
    with refused(UsageError, names=["01-1-none", "attempt", 2]):
        study.requests("01-1-none", attempt=2)
    with refused(UsageError, names=["'run'", "verdicts", "runs", "responses", "requests"]):
        mt.columns("run")


def test_a_study_is_analysed_again_from_its_records_without_measuring(tmp_path, study):
    folder = tmp_path / "study"
    shutil.copytree(SAMPLE, folder)
    (folder / "verdicts.json").unlink()
    with refused(RecordError, names=["report", folder]):
        mt.open_study(folder)
    said: list[str] = []
    again = mt.run("ambient_vs_no_mesh", study_dir=folder, measure=False, progress=said.append)
    assert said[0].startswith(f"{folder}: ")
    # Recorded on another processor, whose logarithms round the last digit differently.
    advice = (
        "qualifier",
        "sentence",
        "mde",
        "blocks_needed",
        "warnings",
    )  # an older version may have given other advice
    assert_frame_equal(again.verdicts().drop(advice), study.verdicts().drop(advice), rel_tol=1e-9, abs_tol=0)


def test_a_script_is_told_what_to_call_instead_of_what_notebooks_call():
    with refused(UsageError, names=["run_notebook", "run", "scale_out"]):
        mt.run_notebook("scale_out")


@pytest.mark.usefixtures("undrawn")
def test_a_section_shows_all_its_parts(study):
    for make in (mt.sections.verdict, mt.sections.latency, mt.sections.resources, mt.sections.validity):
        shown = make(study)
        assert shown._repr_html_().count("<style") == 1
        for part in shown.parts:
            assert part.html in shown.html
            assert repr(part) in repr(shown)


def test_a_comparison_shows_itself_and_gives_what_the_command_gives(study):
    found = mt.compare(
        sorted(SAMPLE.glob("runs/*-none/fortio.json")),
        {"node-proxy": SAMPLE / "runs" / "*-node-proxy" / "fortio.json"},
        responses="p50",
        margin="5%",
        name="none",
    )
    assert found.responses == ("latency_p50_s",)
    (row,) = found.verdicts().rows(named=True)
    assert (row["treatment"], row["baseline"], row["verdict"]) == ("node-proxy", "none", "slower")
    assert row["margin"] is not None
    assert "<table" in found._repr_html_()
    assert found.every_run().table.height == 16
    with refused(UsageError):
        found.every_run("latency_p99_s")


@pytest.mark.parametrize(
    "changed",
    [
        {"pair_by": "day"},
        {"name": ""},
        {"treatments": {"a": []}},
        {"treatments": {}},
    ],
)
def test_a_comparison_that_cannot_be_is_refused(changed):
    with refused(UsageError):
        mt.compare(**{"baseline": str(SAMPLE / "runs"), "treatments": {"a": "b"}} | changed)


FIVE = str(SAMPLE / "runs" / "*-none" / "fortio.json")


@pytest.mark.parametrize(
    ("changed", "kind", "named"),
    [
        ({"pair_by": "label"}, UsageError, ("pair", "label")),
        ({"responses": ","}, UsageError, ("responses", "p50,p99")),
        ({"treatments": {"baseline": FIVE}}, UsageError, ("'baseline'",)),
        ({"baseline": "runs.csv"}, InputFileError, ("runs.csv", "compare_table")),
    ],
)
def test_an_error_names_what_a_script_calls_it(changed, kind, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs.csv").write_text("run,treatment,response,value\n")
    with refused(kind, names=[*named]):
        mt.compare(**{"baseline": FIVE, "treatments": {"a": FIVE}} | changed)


def test_a_table_is_compared_whole_or_the_treatments_that_are_named(tmp_path):
    path = tmp_path / "runs.csv"
    rows = [f"{mesh}-{n},{n},{mesh},p50_ms,{1 + 0.1 * n + 0.05 * k}" for k, mesh in enumerate("abc") for n in range(6)]
    path.write_text("\n".join(["run,block,treatment,response,value", *rows]))
    assert mt.compare_table(path, "a").verdicts()["treatment"].to_list() == ["b", "c"]
    (one,) = mt.compare_table(path, "a", ["c"], margin="50%").verdicts().rows(named=True)
    assert (one["treatment"], one["n_blocks"], one["margin"]) == ("c", 6, 0.5)
