"""The conda environment names every dependency of pyproject.toml, and fortio in neither."""

import re
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
    return {_name(item): item for item in project["dependencies"]}


def test_every_dependency_is_in_the_conda_environment_with_the_same_bound(conda, declared):
    for name, requirement in declared.items():
        assert conda.get(name) == requirement


def test_nothing_in_the_conda_environment_is_undeclared(conda, declared):
    assert set(conda) - set(declared) == {"python", "go", "pip"}


def test_fortio_is_no_python_package(conda, declared):
    lock = (paths.CHECKOUT / "requirements.lock").read_text()
    assert "fortio" not in conda
    assert "fortio" not in declared
    assert not re.search(r"^fortio\b", lock, re.MULTILINE)


def test_the_lock_pins_every_dependency_with_a_hash(declared):
    lock = (paths.CHECKOUT / "requirements.lock").read_text()
    for name in declared:
        assert re.search(rf"^{re.escape(name)}==\S+ ?[^\\]*\\\n +--hash=sha256:", lock, re.MULTILINE), name
