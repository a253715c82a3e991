"""The wheel in an empty environment outside the checkout: which commands work, and which extra an error names."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from elsewhere.index import asked

from meshtrial import paths
from meshtrial.errors import MissingToolError

SAMPLE = next((paths.CHECKOUT / "data" / "sample" / "ambient_vs_no_mesh").iterdir())
PACKED = next((paths.CHECKOUT / "data" / "sample").glob("calibration-*.tar.xz"))
FORTIO = paths.CHECKOUT / "tests" / "fixtures" / "load" / "fortio-1.3.json"
LOG = '{"latency":0.001,"timestamp":1790000000000000000,"thread":0,"iter":0,"ok":true,"details":"200"}\n'
MOST_BYTES = 250_000_000  # installed
EXTRAS = {
    "verify study": "meshtrial[records]",
    "plan --from study": "meshtrial[records]",
    "compare --table table.csv --baseline a": "meshtrial[records]",
    "compare --baseline log --treatment log2": "meshtrial[records]",
    "compare study study": "meshtrial[report]",
    "report study": "meshtrial[report]",
    "run ambient_vs_no_mesh": "meshtrial[report]",
    "clean": "meshtrial[cluster]",
}
Meshtrial = Callable[..., subprocess.CompletedProcess[str]]


def built(folder: Path) -> Path:
    """The wheel of this checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=paths.CHECKOUT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Install the wheel into an environment of its own, with the extra that a test requests."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    install(folder, f"meshtrial{request.param} @ {wheel.as_uri()}")
    return folder


def install(environment: Path, requirement: str) -> None:
    """Install the locked versions; skip the test if the index is unreachable."""
    cache = ("--cache-dir", str(paths.CHECKOUT / ".cache" / "uv"), "--constraints", "requirements.lock")
    command = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-config", *cache)
    done = asked([*command, "--python", str(environment / "bin" / "python"), requirement], paths.CHECKOUT)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def meshtrial(environment: Path, tmp_path: Path) -> Meshtrial:
    """Run the installed command in an empty folder, away from this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MESHTRIAL_", "PYTHON", "MPL"))}
    kept = {name: value for name, value in kept.items() if not name.startswith(("JUPYTER_", "IPYTHON"))}
    places = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    folder = tmp_path / "work"
    folder.mkdir()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(environment / "bin" / "meshtrial"), *arguments]
        return subprocess.run(command, env=kept | places, cwd=folder, capture_output=True, text=True, check=False)

    return run


def test_the_same_sources_give_the_same_wheel(wheel: Path, tmp_path: Path):
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, built(tmp_path))}
    assert len(digests) == 1


@pytest.mark.parametrize("environment", [""], indirect=True)
def test_what_is_installed_compares_files_and_names_the_extra_of_all_else(
    meshtrial: Meshtrial, environment: Path, tmp_path: Path
):
    size = sum(file.stat().st_size for file in environment.rglob("*") if file.is_file() and not file.is_symlink())
    assert size <= MOST_BYTES
    for number, name in enumerate(("a/1", "b/1", "a/2", "b/2"), start=1):  # runs one after the other
        file = tmp_path / "work" / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(FORTIO.read_text().replace("T09:30:00", f"T09:3{number}:00"))
    compared = meshtrial("compare", "--baseline", "a/*.json", "--treatment", "b/*.json", "--sample-floor", "1")
    assert compared.returncode == 0, compared.stderr
    assert "p50 latency" in compared.stdout
    for name in ("log", "log2"):
        (tmp_path / "work" / name).write_text(LOG)
    for command, extra in EXTRAS.items():
        lacking = meshtrial(*command.split())
        assert lacking.returncode == MissingToolError.exit_code
        assert re.fullmatch(rf"meshtrial \w+: \w+ is not installed; install {re.escape(extra)}\n", lacking.stderr), (
            command
        )
    assert not (tmp_path / "work" / "papermill_runs").exists()
    doctor = meshtrial("doctor")
    assert doctor.returncode == 1
    assert "install meshtrial[records]" in doctor.stdout


@pytest.mark.parametrize("environment", ["[records]"], indirect=True)
def test_with_records_it_verifies_and_plans(meshtrial: Meshtrial, tmp_path: Path):
    verified = meshtrial("verify", str(PACKED))
    assert verified.returncode == 0, verified.stderr
    planned = meshtrial("plan", "--from", str(SAMPLE), "--margin", "5%", "--json", "plan.json")
    assert planned.returncode == 0, planned.stderr
    assert (tmp_path / "work" / "plan.json").is_file()


@pytest.mark.parametrize("environment", ["[report]"], indirect=True)
def test_with_the_extra_of_reports_it_writes_one(meshtrial: Meshtrial, tmp_path: Path):
    study = tmp_path / "work" / "study"
    shutil.copytree(SAMPLE, study)
    written = meshtrial("report", "study")
    assert written.returncode == 0, written.stderr
    assert len(list((tmp_path / "work" / "papermill_runs").glob("ambient_vs_no_mesh-*.html"))) == 1
