"""Private folders are removed with their owner, however it ended, and never while it lives."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from meshtrial.temporary import PrivateFolder

OWNER = """
import sys, time
from meshtrial.temporary import PrivateFolder
own = PrivateFolder("meshtrial-test-")
print(own.path, flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Start another process with a private folder; return both."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_what_a_killed_owner_left_goes_when_the_next_is_made(owner):
    process, left = owner
    (left / "key").write_text("secret")
    with closing(PrivateFolder("meshtrial-test-")):
        assert (left / "key").exists()  # it lives
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (left / "key").exists()
    with closing(PrivateFolder("meshtrial-test-")) as own:
        assert not left.exists()
        assert stat.S_IMODE(own.path.stat().st_mode) == 0o700
    assert not own.path.exists()


def test_a_folder_that_nobody_locked_is_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = tmp_path / "meshtrial-test-other"
    other.mkdir()
    PrivateFolder("meshtrial-test-").close()
    assert [path.name for path in tmp_path.iterdir()] == [other.name]
