"""Local tests run real processes, write below their own folders, and leave nothing behind."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import running

from meshtrial.run.quiet import PATIENCE

PROGRAMS = {"fortio", "envoy", "opa-extauthz", "counter-api", "call-tree", "event-streams", "delay-proxy", "xds-server"}


# Modules with the longest tests, so that none starts last (pytest-xdist takes files in this order).
LONGEST = ("test_study", "test_capacity", "test_recorded", "test_divided", "test_explore", "test_site", "test_versions")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.local)
    rank = {item: LONGEST.index(item.path.stem) for item in ours if item.path.stem in LONGEST}
    items.sort(key=lambda item: rank.get(item, len(LONGEST)))


def own_folders() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("meshtrial-*")}


@pytest.fixture(autouse=True, scope="module")
def no_wait_for_quiet() -> Iterator[None]:
    """Studies begin at once, those of a module's fixture too: no machine is quiet while other tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PATIENCE, "0")
        yield


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch) -> Iterator[None]:
    """Records go to the test's folder; no process or temporary folder outlives the test."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "studies"))
    monkeypatch.setenv("MESHTRIAL_REPORTS", str(tmp_path / "reports"))
    yield
    started = running({"MESHTRIAL_DATA": tmp_path / "studies"})
    left = {pid: name for pid, name in started.items() if name in PROGRAMS}
    assert not left, f"processes left: {left}"
    assert not own_folders(), f"folders left in {temporary}: {own_folders()}"
