"""Processes by identity: a pid alone is reused, a pid with its start time and the boot it belongs to is not."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testcluster.settings import ClusterError


@dataclass(frozen=True)
class Proc:
    """One process of ours."""

    name: str
    pid: int
    start: int

    def alive(self) -> bool:
        """Whether it still runs and is the same process."""
        with contextlib.suppress(ChildProcessError, OSError):
            os.waitpid(self.pid, os.WNOHANG)  # a child of this process remains a zombie until it is waited for
        return self.start != 0 and start_time(self.pid) == self.start


def boot_id() -> str:
    """Identity of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int:
    """Start time of a live process in clock ticks since boot; 0 when it is gone or a zombie.

    A killed process shows the state of its first thread, which may be a zombie while others still die; until the last
    one is gone, its sockets listen and its files are open, so until then it counts as alive.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    return 0 if state in "ZX" and threads <= 1 else started


def spawn(
    name: str, argv: Sequence[str | Path], log: Path, *, netns: Path | None = None, env: Mapping[str, str] | None = None
) -> Proc:
    """Start a daemon in a session of its own, so that Ctrl-C reaches the tests and not the cluster."""
    command = [str(part) for part in argv]
    if netns is not None:
        # Not `ip netns exec`: that remounts /sys and so hides the cgroups. nsenter execs, the pid stays the same.
        command = ["nsenter", f"--net={netns}", "--", *command]
    with log.open("ab") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=env, cwd="/"
        )
    child.returncode = 0  # Proc.alive() reaps it; Popen must not warn that it was left running
    return Proc(name, child.pid, start_time(child.pid))


def all_pids() -> Iterator[int]:
    """Every process of the machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def namespace_inode(path: Path) -> int:
    """Inode of a namespace file; 0 when there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def in_namespaces(kind: str, inodes: Iterable[int]) -> list[int]:
    """Live processes in any of these namespaces (`kind` as in /proc/PID/ns)."""
    wanted = {inode for inode in inodes if inode}
    if not wanted:
        return []
    return [
        pid for pid in all_pids() if namespace_inode(Path(f"/proc/{pid}/ns/{kind}")) in wanted and start_time(pid) != 0
    ]


def describe(pid: int) -> str:
    """Pid and command line, for a message."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = []
    return f"{pid} ({b' '.join(words).decode(errors='replace').strip()[:80] or 'gone'})"


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL; a process that is already gone is fine."""
    for pid in pids:
        if pid <= 1 or pid == os.getpid():
            raise ClusterError(f"refused to kill process {pid}")  # 0 and below would address whole process groups
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float, *, every_s: float = 0.1) -> None:
    """Wait for a condition; ClusterError where it does not come true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {timeout_s:g} s")
        time.sleep(every_s)


def call(
    argv: Sequence[str | Path],
    *,
    timeout_s: float = 60,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a command and return what it printed; ClusterError with its last line of output if it fails."""
    command = [str(part) for part in argv]
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout_s, env=env, check=False
        )
    except FileNotFoundError:
        raise ClusterError(f"{command[0]} is not on PATH") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{' '.join(command)[:200]}: no end within {timeout_s:g} s") from None
    if done.returncode:
        lines = (done.stdout + "\n" + done.stderr).strip().splitlines() or ["no output"]
        # The last line of `kubectl exec` only reports a failure; the program's own line before it has the reason.
        telling = [line for line in lines if not line.startswith("command terminated with exit code")] or lines
        raise ClusterError(f"{' '.join(command)[:200]}: exit {done.returncode}: {telling[-1][:500]}")
    return done.stdout


def last_line(log: Path) -> str:
    """Return the last line of a log that the program itself wrote, for a message."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line and "node-init: " not in line]
    except OSError:
        return "no log"
    return lines[-1][:300] if lines else "empty log"
