"""The gate's options are the same on three commands, are checked before anything is done, and decide the exit code."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from xml.etree import ElementTree

import papermill
import pytest
from commandline import SAMPLE
from commandline import meshtrial as call
from refused import as_reviewed, missing

from meshtrial import paths
from meshtrial.commands import report, run
from meshtrial.inference.gate import Ending
from meshtrial.run.trial import STUDY_DIR_FILE_ENV

TABLE = ("compare", "--table", str(SAMPLE / "runs.parquet"), "--baseline", "none")
BOTH = (*TABLE, "--metrics", "p50,path_cpu_s_per_request")
GATED = {"run": ("ambient_vs_no_mesh",), "report": ("nowhere",), "compare": ("--baseline", "none/*.json")}


def test_two_equal_treatments_pass_what_requires_them_to_be_equivalent():
    code, out, err = call(*BOTH, "--treatment", "none-aa", "--require", "equivalent")
    assert (code, err) == (0, "")
    assert out.endswith("\ngate passed: 2 primary contrasts: 2 equivalent\n")


def test_a_regression_fires_with_one_line_why_and_the_files_are_there(tmp_path):
    summary, junit = tmp_path / "new" / "gate.md", tmp_path / "gate.xml"
    options = ("--fail-on", "slower", "--fail-on", "more", "--summary", str(summary), "--junit", str(junit))
    trackers = [tmp_path / "benchmark.json", tmp_path / "bencher.json"]
    options += ("--benchmark-json", str(trackers[0]), "--bencher", str(trackers[1]))
    code, out, err = call(*BOTH, "--treatment", "node-proxy", *options)
    assert code == 4
    as_reviewed(err.removesuffix("\n"))
    assert f"summary  {summary}\njunit    {junit}\n" in out
    assert missing(summary.read_text(), ["node-proxy", "slower", "more"]) == []
    assert ElementTree.parse(junit).getroot().attrib["failures"] == "2"
    assert [len(json.loads(path.read_text())) for path in trackers] == [2, 1]


def test_a_metric_that_was_not_reported_passes_no_requirement(tmp_path):
    """The sample's runs are too short for p99: its fortio results leave p99 out."""
    files = [f"none={SAMPLE}/runs/*-none/fortio.json", f"twin={SAMPLE}/runs/*-none-aa/fortio.json"]
    given = ("compare", "--baseline", files[0], "--treatment", files[1], "--metrics", "p50,p99")
    code, _, err = call(*given, "--require", "equivalent,inconclusive")
    assert code == 4
    as_reviewed(err.removesuffix("\n"))
    assert call(*given, "--fail-on", "slower")[0] == 0
    assert call(*given, "--fail-on", "invalid")[0] == 4


def test_a_fourth_metric_is_exploratory_and_has_no_say():
    metrics = "app_memory_bytes,load_generator_cpu_cores,app_cpu_cores,p50"
    code, out, _ = call(*TABLE, "--treatment", "node-proxy", "--metrics", metrics, "--fail-on", "slower")
    assert code == 0
    assert out.splitlines()[-1] == "gate passed: 3 primary contrasts: 1 equivalent, 2 inconclusive"


@pytest.fixture
def idle(tmp_path, monkeypatch):
    """Return an empty folder, in which a command that continued would fail instead of measuring."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "run_notebook", None)
    monkeypatch.setattr(report, "run_notebook", None)
    return tmp_path


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("verb", GATED)
def test_a_typo_is_found_before_anything_is_done(verb):
    code, _, err = call(verb, *GATED[verb], "--fail-on", "slowr")
    assert code == 2
    as_reviewed(err.removesuffix("\n"))


@pytest.mark.parametrize("verb", GATED)
def test_a_file_that_cannot_be_written_is_found_before_anything_is_done(verb, idle):
    (idle / "file").write_text("")
    for option, path in (("--summary", "file/gate.md"), ("--junit", "."), ("--summary", "/proc/gate.md")):
        code, _, err = call(verb, *GATED[verb], option, path)
        assert code == 2
        assert err.startswith(f"meshtrial {verb}: {option} {path}: ")
    as_reviewed(call(verb, *GATED[verb], "--summary", "x", "--junit", "x")[2].removesuffix("\n"))


@pytest.fixture
def notebook(monkeypatch, tmp_path):
    """Replace the notebook of ``run`` and ``report``: its result is the given study."""

    def given(folder: Path, ended: Ending | None = None) -> None:
        def execute_notebook(*_: object, **__: object) -> None:
            Path(os.environ[STUDY_DIR_FILE_ENV]).write_text(json.dumps({"study_dir": str(folder)}))

        monkeypatch.setattr(papermill, "execute_notebook", execute_notebook)
        if ended is not None:
            monkeypatch.setattr(run, "ending", lambda *_, **__: ended)
        monkeypatch.setattr(paths, "reports_root", lambda: tmp_path / "reports")

    return given


@pytest.mark.parametrize("verb", ["run", "report"])
def test_a_study_is_judged_by_what_its_plan_declared(verb, copied, notebook):
    notebook(copied)
    given = ("run", "ambient_vs_no_mesh", "-p", f"study_dir={copied}") if verb == "run" else ("report", str(copied))
    code, _, err = call(*given, "--fail-on", "slower:material")
    assert code == 4
    as_reviewed(err.removesuffix("\n"))
    code, out, _ = call(*given, "--fail-on", "faster,less")
    assert code == 0
    assert out.endswith("gate passed: 3 primary contrasts: 1 slower, 1 more, 1 invalid\n")
    code, out, _ = call(*given)
    assert (code, [line for line in out.splitlines() if line.startswith("gate")]) == (0, [])


LOST = "1 of 8 blocks excluded: other programs used 48% of the machine's CPU time; the verdicts use the other 7"


def last(out: str) -> str:
    return out.splitlines()[-1]


def test_what_was_excluded_is_the_last_line_with_its_code_unless_the_gate_fires(copied, notebook):
    notebook(copied, Ending(True, LOST))
    code, out, _ = call("report", str(copied), "--fail-on", "faster")
    assert (code, last(out)) == (3, f"{LOST} (exit code 3)")
    code, out, err = call("report", str(copied), "--fail-on", "slower")
    assert (code, last(out)) == (4, LOST)
    assert err.startswith("meshtrial report: gate fired: ")


@pytest.mark.parametrize(
    ("ended", "codes", "said"),
    [
        (Ending(True, ""), (0, 0), ""),
        (Ending(True, LOST), (3, 0), LOST),
        (Ending(False, LOST), (3, 3), f"no verdict was given on a primary response; {LOST}"),
        (Ending(False, ""), (3, 3), "no verdict was given on a primary response"),
    ],
)
def test_a_study_that_gave_verdicts_may_succeed_whatever_was_excluded(ended, codes, said, copied, notebook):
    notebook(copied, ended)
    for allowed, expected in zip(((), ("--allow-excluded",)), codes, strict=True):
        code, out, _ = call("run", "ambient_vs_no_mesh", "-p", f"study_dir={copied}", *allowed)
        assert code == expected
        line = f"{said} (exit code {code})" if code else said
        assert last(out) == line if line else last(out).startswith("index ")


def test_an_unfinished_study_passes_no_gate(copied, notebook):
    for late in sorted((copied / "runs").glob("08-*")):
        shutil.rmtree(late)
    notebook(copied)
    code, _, err = call("report", str(copied), "--fail-on", "slower")
    assert code == 4
    assert err.endswith(": provisional (7 of 8 blocks) (an unfinished study passes no gate)\n")


def section(title: str) -> str:
    """Return a section of the page about gates."""
    text = (paths.CHECKOUT / "docs" / "how-to" / "ci-gate.md").read_text()
    return re.split(r"^## ", text.split(f"\n## {title}\n")[1], maxsplit=1, flags=re.M)[0]


def test_the_page_leads_to_a_passing_and_to_a_failing_gate(tmp_path, monkeypatch):
    commands = re.findall(r"^    (\.venv/bin/meshtrial (?:[^\n]*\\\n)*[^\n]*)", section("Try it"), re.M)
    said = [int(code) for code in re.findall(r"exit code (\d)", section("Try it"))]
    monkeypatch.chdir(tmp_path)
    codes = []
    for command in commands:
        words = shlex.split(command.replace("\\\n", " "))[1:]
        # Expanded as a shell does with a pattern, from the checkout.
        found = [str(next(paths.CHECKOUT.glob(word))) if "*" in word else word for word in words]
        codes.append(call(*found)[0])
    assert codes == said == [0, 4]
    assert {path.name for path in tmp_path.iterdir()} == {"gate.md", "gate.xml"}
