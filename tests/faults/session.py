"""Run a study in a process of its own, and inject a fault at a chosen moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from commandline import meshtrial
from faults.machine import CLOCK, Memory
from local.studies import PATIENCE_S
from running import running
from waiting import wait_for

from meshtrial import paths
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import CHECKSUMS, StudyStore, check_checksums
from meshtrial.run.quiet import PATIENCE

LIBRARY = (sys.executable, "-m", "faults.study")
SHORT = ("treatments=none", "blocks=2", "rps=200", "connections=4", "duration_s=1.5", "warmup_s=0.8", "slices=1")
COMMAND = (sys.executable, "-m", "meshtrial", "run", "ambient_vs_no_mesh", *(w for p in SHORT for w in ("-p", p)))
# After the fault the study is resumed, with its file system repaired, and its records are returned.
_APART = """
mount -t tmpfs -o "size=$SIZE" apart "$PLACE" || exit 77
"$@" >"$LOG" 2>&1; code=$?
mount -o remount,rw,size=50% "$PLACE"; rm -rf "$PLACE/filler"
[ "$PLACE" != "$MESHTRIAL_DATA" ] || { "$@" >>"$LOG.again" 2>&1; umask 0; cp -a "$PLACE/." "$OUT"; }
exit $code
"""


@dataclass
class Session:
    """A study's process with its folders and the facts known about it."""

    root: Path
    command: tuple[str, ...] = LIBRARY
    place: str = ""  # a name of PLACES: a file system of its own there
    size: str = "8m"
    changed: dict[str, str] = field(default_factory=dict)  # environment
    memory: Memory | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Folders of its own, which identify its processes."""
        own = {name: str(self.root / part) for name, part in PLACES.items()}
        for folder in own.values():
            Path(folder).mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join([str(paths.CHECKOUT / "lib"), str(paths.CHECKOUT / "tests")])
        apart = {"PLACE": own.get(self.place, ""), "SIZE": self.size, "LOG": str(self.log), "OUT": str(self.out)}
        always = {"PYTHONPATH": path, CLOCK: str(self.root / "clock"), PATIENCE: "0"}
        return os.environ | own | always | apart | self.changed

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self.root / "log"

    @property
    def out(self) -> Path:
        """Return its records, also after its own file system is gone."""
        return self.root / "out"

    def start(self) -> None:
        """Start it in a process group of its own."""
        self.out.mkdir(parents=True, exist_ok=True)
        wrapped = ("unshare", "--mount", "sh", "-c", _APART, "apart") if self.place else ()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                (*wrapped, *self.command),
                env=self.environment,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._begin,
            )

    def _begin(self) -> None:
        # A test runner in the background ignores SIGINT, and children inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.memory is not None:
            self.memory.join()

    @property
    def pid(self) -> int:
        """The exit code of the started process."""
        assert self.process is not None
        return self.process.pid

    def inside(self, place: str) -> Path:
        """Return a folder as the study sees it, also in a file system of its own."""
        here = self.root / PLACES[place]
        return Path(f"/proc/{self.pid}/root{here}") if self.place == place else here

    def runs(self, pattern: str) -> list[Path]:
        """Return the entries among its runs, by name."""
        with suppress(OSError):
            return sorted(self.inside("MESHTRIAL_DATA").glob(f"*/*/runs/{pattern}"))
        return []

    def reach(self, phase: Callable[[Session], object]) -> None:
        """Wait until it exists."""
        assert self.process is not None
        wait_for(lambda: phase(self) or self.process.poll() is not None, PATIENCE_S)  # type: ignore[union-attr]
        assert self.process.poll() is None, self.log.read_text()

    def ended(self) -> int:
        """Return its exit code, after checking that none of its processes remains."""
        assert self.process is not None
        code = self.process.wait(PATIENCE_S)
        wait_for(lambda: not self.processes(), PATIENCE_S)
        return code

    def kill(self) -> None:
        """Remove everything of it, whatever the test's outcome."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(PATIENCE_S)
        if self.memory is not None:
            self.memory.close()

    def processes(self) -> list[int]:
        """Its processes that run."""
        return list(running({"MESHTRIAL_DATA": self.root / PLACES["MESHTRIAL_DATA"]}))

    def component(self, words: str) -> int:
        """Return the process whose command line contains these words once it exists; without words, the study's."""
        if not words:
            return self.pid
        assert self.process is not None
        wait_for(lambda: self._called(words) or self.process.poll() is not None, PATIENCE_S)  # type: ignore[union-attr]
        found = self._called(words)
        assert found, f"no process of the study is called {words}"
        return found[0]

    def _called(self, words: str) -> list[int]:
        found = []
        for pid in self.processes():
            with suppress(OSError):
                called = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found += [pid] * (words in called)
        return found

    def store(self) -> StudyStore:
        """Its records."""
        root = self.out if self.place == "MESHTRIAL_DATA" else self.root / PLACES["MESHTRIAL_DATA"]
        (plan,) = root.glob("*/*/plan.json")
        return StudyStore.open(plan.parent)

    def again(self) -> None:
        """Run it to its end without a fault."""
        command = self.command
        if command is not LIBRARY:
            command = (*command[:5], "-p", f"study_dir={self.store().path}")
        environment = {name: value for name, value in self.environment.items() if name not in self.changed}
        with (self.root / "log.again").open("wb") as log:
            done = subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=PATIENCE_S)
        assert done.returncode in (0, 3), (self.root / "log.again").read_text()


PLACES = {"MESHTRIAL_DATA": "studies", "MESHTRIAL_REPORTS": "reports", "TMPDIR": "tmp"}


def sums(store: StudyStore) -> dict[str, str]:
    """Return every complete run with its digests."""
    return {folder.name: (folder / CHECKSUMS).read_text() for folder in store.run_folders()}


def whole(store: StudyStore) -> list[RunRecord]:
    """All runs of the plan exist and are unchanged."""
    assert [line for folder in store.run_folders() for line in check_checksums(folder)] == []
    records = list(store.records())
    assert {record.run_id for record in records} == {run.run_id for run in store.plan.runs}
    assert meshtrial("status", store.path.parent.parent)[0] in (0, 2)
    return records
