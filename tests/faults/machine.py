"""Faults of a study's machine: a clock that is set, and memory that runs out.

The machine's own clock and memory stay as they are. The study reads its clock through :func:`set_by`. fortio is called
by a script that rewrites its access log to match a clock that was set; both read one file. Memory is that of a control
group, which the study shares with a program that takes what is left.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from waiting import wait_for

CLOCK = "FAULTS_CLOCK"  # the file that says by how many seconds the clock was set, when it was written
_GENERATOR = """#!{python}
import datetime, json, os, subprocess, sys

if sys.argv[1:2] != ["load"]:
    os.execv({fortio!r}, [{fortio!r}, *sys.argv[1:]])
code = subprocess.run([{fortio!r}, *sys.argv[1:]]).returncode
clock = os.environ["FAULTS_CLOCK"]
result, log = (sys.argv[sys.argv.index(flag) + 1] for flag in ("-json", "-access-log-file"))
if os.path.exists(clock) and os.path.exists(result):
    since, by = os.stat(clock).st_mtime, int(float(open(clock).read()))
    lines, told = [json.loads(line) for line in open(log)], json.load(open(result))
    for line in lines:
        line["timestamp"] += by * 10**9 * (line["timestamp"] > since * 1e9)
    second, _, part = told["StartTime"].partition(".")
    began = datetime.datetime.fromisoformat(second + "+00:00")
    if began.timestamp() + float("0." + part[:-1]) > since:
        began += datetime.timedelta(seconds=by)
    told["StartTime"] = began.strftime("%Y-%m-%dT%H:%M:%S.") + part
    with open(result, "w") as out:
        json.dump(told, out)
    with open(log, "w") as out:
        out.writelines(json.dumps(line, separators=(",", ":")) + chr(10) for line in lines)
sys.exit(code)
"""
_TAKE = """
import sys
pid = sys.stdin.readline().strip()
taken = []
def lives():
    try:
        return bool(open(f"/proc/{pid}/environ", "rb").read(1))
    except OSError:
        return False
while lives() and len(taken) < 16000:
    taken.append(b"x" * 65536)
"""


def set_by() -> datetime.timedelta:
    """Return by how much the clock was set."""
    with suppress(OSError):
        return datetime.timedelta(seconds=float(Path(os.environ[CLOCK]).read_text()))
    return datetime.timedelta()


class _Set(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return super().now(tz) + set_by()


# Replaces the module for code that names and orders by time. Envoy asks the machine for the time, so keys and
# tokens keep the real one.
datetime_that_is_set = SimpleNamespace(**(vars(datetime) | {"datetime": _Set}))


def generator_that_is_set(folder: Path, fortio: Path) -> Path:
    """Return the script that replaces fortio."""
    folder.mkdir(exist_ok=True)
    script = folder / "fortio"
    script.write_text(_GENERATOR.format(python=sys.executable, fortio=str(fortio)))
    script.chmod(0o755)
    return script


class Memory:
    """A control group of its own, of either version."""

    def __init__(self, name: str) -> None:
        root = Path("/sys/fs/cgroup")
        whole = root / "cgroup.subtree_control"
        self._new = whole.exists() and "memory" in whole.read_text().split()
        self.path = (root if self._new else root / "memory") / f"meshtrial-faults-{name}"
        self.path.mkdir()
        self._taker: subprocess.Popen[bytes] | None = None

    @staticmethod
    def possible() -> bool:
        """Whether a control group can be made here."""
        try:
            Memory(f"asked-{os.getpid()}").close()
        except OSError:
            return False
        return True

    def join(self) -> None:
        """Move the calling process into it."""
        (self.path / "cgroup.procs").write_text("0")

    def end(self, pid: int) -> None:
        """Allocate the remaining memory until the kernel kills this process, then free it."""
        used, most = (
            ("memory.current", "memory.max") if self._new else ("memory.usage_in_bytes", "memory.limit_in_bytes")
        )
        assert self._taker is not None
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
        try:
            room = int((self.path / used).read_text()) + 2**24
            (self.path / most).write_text(str(room))
            self._taker.communicate(f"{pid}\n".encode(), timeout=60)
        finally:
            self._end_taker()
            (self.path / most).write_text("max" if self._new else "-1")
        # On a busy machine the process that allocates may be killed as well, before the first has ended.
        wait_for(lambda: not _lives(pid))

    def start_taker(self) -> None:
        """Start the program that will allocate, before it is needed: a run may end while it starts."""
        self._taker = subprocess.Popen(
            [sys.executable, "-c", _TAKE], stdin=subprocess.PIPE, preexec_fn=self._join_second
        )

    def _end_taker(self) -> None:
        if self._taker is not None:
            with self._taker:
                self._taker.kill()
            self._taker = None

    def _join_second(self) -> None:
        self.join()
        # The kernel's next victim, if that process did not hold enough.
        Path("/proc/self/oom_score_adj").write_text("900")

    def close(self) -> None:
        """Remove it when all of its processes have ended."""
        self._end_taker()

        def removed() -> bool:
            with suppress(OSError):
                self.path.rmdir()
            return not self.path.exists()

        wait_for(removed)


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/environ").read_bytes())
    return False
