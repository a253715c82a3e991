"""The conda environment names every dependency of pyproject.toml, and fortio in neither; Binder uses the lock."""

import os
import re
import subprocess
import tomllib

import pytest
import yaml

from meshtrial import paths


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert match is not None
    return match[0].lower()


@pytest.fixture(scope="module")
def conda() -> dict[str, str]:
    listed = yaml.safe_load((paths.CHECKOUT / "environment.yml").read_text())["dependencies"]
    pip = next(item["pip"] for item in listed if isinstance(item, dict))
    plain = [item for item in listed if isinstance(item, str)]
    return {_name(item): item for item in plain + pip if not item.startswith("-e")}


@pytest.fixture(scope="module")
def declared() -> dict[str, str]:
    project = tomllib.loads((paths.CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *(item for extra in ("local", "cluster", "lab") for item in extras[extra])]
    assert "meshtrial[report]" in listed
    return {_name(item): item for item in (*listed, *extras["report"]) if item != "meshtrial[report]"}


def locked() -> str:
    return "".join((paths.CHECKOUT / name).read_text() for name in ("requirements.lock", "requirements-lab.lock"))


def test_every_dependency_is_in_the_conda_environment_with_the_same_bound(conda, declared):
    for name, requirement in declared.items():
        assert conda.get(name) == requirement


def test_nothing_in_the_conda_environment_is_undeclared(conda, declared):
    assert set(conda) - set(declared) == {"python", "go", "pip"}


def test_fortio_is_no_python_package(conda, declared):
    lock = locked()
    assert "fortio" not in conda
    assert "fortio" not in declared
    assert not re.search(r"^fortio\b", lock, re.MULTILINE)


def test_the_lock_pins_every_dependency_with_a_hash(declared):
    lock = locked()
    for name in declared:
        assert re.search(rf"^{re.escape(name)}==\S+ ?[^\\]*\\\n +--hash=sha256:", lock, re.MULTILINE), name


BINDER = paths.CHECKOUT / ".binder"


def test_binder_installs_the_lock_on_a_python_that_we_take():
    lines = [line for line in (BINDER / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    wanted = [paths.CHECKOUT / name for name in ("requirements.lock", "requirements-lab.lock")]
    assert [(BINDER / line.removeprefix("-r ")).resolve() for line in lines] == wanted
    project = tomllib.loads((paths.CHECKOUT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=" + (BINDER / "runtime.txt").read_text().strip().removeprefix("python-")


def test_binder_can_run_what_it_is_told_to():
    script = BINDER / "postBuild"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    build = re.search(r"hatchling==([\d.]+)", (paths.CHECKOUT / "pyproject.toml").read_text())
    assert build is not None
    # It installs without isolation, so build requirements must be in the lock.
    assert f"hatchling=={build[1]} " in (paths.CHECKOUT / "requirements.lock").read_text()
