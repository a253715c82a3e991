"""Faults by phase: what is done to a study, when, and the expected outcome."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.machine import Memory, generator_that_is_set
from faults.session import COMMAND, LIBRARY, Session

from meshtrial import native

INTERRUPTED = 130
Do = Callable[[Session], None]
MESH = ".incomplete-*sidecar*"
PHASES: dict[str, Callable[[Session], object]] = {
    "start": lambda session: True,
    "sealed": lambda session: list((session.root / "studies").glob("*/*/environment.json")),
    "deploying": lambda session: session.runs(MESH),
    "warm-up": lambda session: any(path.stat().st_size for path in session.runs(f"{MESH}/warm-up/*.log")),
    "measuring": lambda session: any(path.stat().st_size for path in session.runs(f"{MESH}/measure-*.log")),
    "any run": lambda session: session.runs(".incomplete-*"),
    "second run": lambda session: session.runs("0*") and session.runs(".incomplete-*/warm-up"),
    "report": lambda session: "[4/4] 4 runs" in session.log.read_text() or "repeats" in session.log.read_text(),
}


@dataclass(frozen=True)
class Cell:
    """One fault in one phase."""

    fault: str
    phase: str
    do: Do
    codes: tuple[int, ...] = (0,)
    says: str = ""  # a pattern of its last line
    reason: str = ""  # a pattern of why the first attempt of the mesh's run failed
    command: tuple[str, ...] = LIBRARY
    place: str = ""
    size: str = "8m"
    goes_on: bool = True
    prepare: Do = lambda session: None

    def __str__(self) -> str:
        kind = "command, " if self.command is COMMAND else ""
        return f"{kind}{self.fault}, {self.phase}"


def send(number: int) -> Do:
    return lambda session: os.kill(session.pid, number)


def kill(words: str) -> Do:
    return lambda session: os.kill(session.component(words), signal.SIGKILL)


def twice(number: int) -> Do:
    """A user who does not wait."""

    def do(session: Session) -> None:
        os.kill(session.pid, number)
        time.sleep(0.2)
        os.kill(session.pid, number)

    return do


def stop(words: str) -> Do:
    """For a second and a half: a busy neighbour, a debugger, Ctrl-Z."""

    def do(session: Session) -> None:
        pid = session.component(words)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return do


def nothing(session: Session) -> None:
    """The fault exists from the start."""


def fill(place: str) -> Do:
    def do(session: Session) -> None:
        with suppress(OSError), (session.inside(place) / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass

    return do


def fill_names(place: str) -> Do:
    """Fill the file system with empty files, so that no further file fits although there is room."""

    def do(session: Session) -> None:
        folder = session.inside(place) / "filler"
        with suppress(OSError):
            folder.mkdir()
            for number in range(10_000):
                (folder / str(number)).touch()

    return do


def read_only(place: str, of: str) -> Do:
    def do(session: Session) -> None:
        where = str(session.root / of)
        enter = ("nsenter", "-t", str(session.pid), "-m", "mount", "-o", "remount,ro", where)
        # An open file keeps a file system writable, so repeat until it is closed.
        while subprocess.run(enter, capture_output=True, check=False).returncode:
            time.sleep(0.01)

    return do


def remove(part: str) -> Do:
    def do(session: Session) -> None:
        (found,) = session.root.glob(part)
        kept = session.root / "kept"
        found.rename(kept) if found.is_file() else shutil.rmtree(found)

    return do


def second_session(session: Session) -> None:
    # Held meanwhile, so the other process meets the lock however long it takes.
    os.kill(session.pid, signal.SIGSTOP)
    other = subprocess.run(session.command, env=session.environment, capture_output=True, text=True, check=False)
    os.kill(session.pid, signal.SIGCONT)
    assert other.returncode == 1, other.stderr
    assert other.stdout.strip().endswith("another process is running this study; wait for it"), other.stdout


def no_more_files(session: Session) -> None:
    most = max(int(path.name) for path in Path(f"/proc/{session.pid}/fd").iterdir()) + 1
    resource.prlimit(session.pid, resource.RLIMIT_NOFILE, (most, most))


def out_of_memory(words: str) -> Do:
    return lambda session: session.memory.end(session.component(words))  # type: ignore[union-attr]


def confined(session: Session) -> None:
    session.memory = Memory(f"{os.getpid()}-{time.monotonic_ns()}")
    session.memory.start_taker()


def set_clock(seconds: float) -> Do:
    return lambda session: (session.root / "clock").write_text(str(seconds)) and None


def set_clock_and_kill(session: Session) -> None:
    set_clock(-3600)(session)
    os.kill(session.pid, signal.SIGKILL)


def clocked(session: Session) -> None:
    session.changed["MESHTRIAL_FORTIO"] = str(generator_that_is_set(session.root / "bin", native.find("fortio")))


def dying_kernel(session: Session) -> None:
    profile = session.root / "dying" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    session.changed["IPYTHONDIR"] = str(profile.parent)


def ask(command: str, *codes: int) -> Do:
    """Run a command about a running study: it prints one line and does not disturb the study."""

    def do(session: Session) -> None:
        about = () if command == "status" else (str(session.store().path),)
        words = (sys.executable, "-m", "meshtrial", command, *about)
        asked = subprocess.run(
            words, env=session.environment, cwd=session.root, capture_output=True, text=True, check=False
        )
        assert asked.returncode in codes, asked.stderr
        assert len((asked.stdout + asked.stderr).splitlines()) == 1, asked.stderr
        assert command != "status" or "running" in asked.stdout

    return do


COMPONENTS = {
    "app": ("fortio server", "app"),
    "client's sidecar": ("client-sidecar.json", "client sidecar"),
    "server's sidecar": ("server-sidecar.json", "server sidecar"),
    "policy server": ("opa-extauthz -grpc", "policy server"),
    "generator": ("fortio load", "load generator"),
}
SPACE, RIGHT = (
    f"cannot be (?:written|made) \\({why}\\)" for why in ("No space left on device", "Read-only file system")
)
GOES_ON = r"; \d of 4 runs are recorded, .*; resume: meshtrial run ambient_vs_no_mesh -p study_dir=.*$"
DATA, REPORTS, TEMPORARY = "MESHTRIAL_DATA", "MESHTRIAL_REPORTS", "TMPDIR"


EVERY = ("deploying", "warm-up", "measuring", "second run")
LOADED = ("warm-up", "measuring")


def _signals() -> list[Cell]:
    asked = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), (INTERRUPTED,))
    asked[signal.SIGKILL] = (-9,)
    cells = [
        Cell(number.name, phase, send(number), codes) for number, codes in asked.items() for phase in ("sealed", *EVERY)
    ]
    cells += [
        Cell(
            number.name, phase, send(number), asked[number], "interrupted$" * (asked[number] != (-9,)), command=COMMAND
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
        for phase in ("any run", "second run", "report")
    ]
    # The second signal may come when nothing remains to be ended in order.
    impatient = [(number, phase, LIBRARY) for number in (signal.SIGINT, signal.SIGTERM) for phase in EVERY[::2]]
    impatient += [
        (number, phase, COMMAND) for number in (signal.SIGINT, signal.SIGTERM) for phase in ("any run", "report")
    ]
    return cells + [
        Cell(f"{number.name} twice", phase, twice(number), (INTERRUPTED, -number), command=command)
        for number, phase, command in impatient
    ]


def _components() -> list[Cell]:
    cells = []
    for name, (words, said) in COMPONENTS.items():
        ended, stopped = f"check {said} alive", f"check {said} ran on|{said} .*suspended it"
        if name == "generator":
            ended = "load generator .*: ended with code -9"
        else:
            cells.append(Cell(f"{name} killed", "deploying", kill(words), reason=said))
        for phase in LOADED:
            cells.append(Cell(f"{name} killed", phase, kill(words), reason=ended))
            cells.append(Cell(f"{name} stopped a while", phase, stop(words), reason=stopped))
            cells.append(Cell(f"no memory for the {name}", phase, out_of_memory(words), reason=ended, prepare=confined))
    return cells


def _machine() -> list[Cell]:
    full = {"place": DATA, "codes": (1,), "says": SPACE}
    cells = [Cell("disk full", phase, fill(DATA), **full) for phase in EVERY]
    names = {**full, "size": "8m,nr_inodes=300"}
    cells += [Cell("disk without a file left", phase, fill_names(DATA), **names) for phase in EVERY]
    cells.append(Cell("disk read-only", "start", nothing, (1,), RIGHT, place=DATA, size="8m,ro"))
    cells += [
        Cell("temporary folder full", "start", nothing, (1,), SPACE, place=TEMPORARY, size="4k"),
        *(Cell("temporary folder full", p, fill(TEMPORARY), (0, 1), SPACE, place=TEMPORARY) for p in EVERY[::3]),
    ]
    cells += [Cell("no more open files", p, no_more_files, (0, 1), "Too many open files") for p in EVERY]
    cells += [Cell("no memory for the study", p, out_of_memory(""), (-9,), prepare=confined) for p in EVERY]
    return cells + [Cell("study stopped a while", phase, stop("")) for phase in EVERY]


def _clock() -> list[Cell]:
    cells = [
        Cell(
            f"clock set {way} an hour",
            phase,
            set_clock(by),
            reason="clock was set" * (phase in LOADED),
            prepare=clocked,
        )
        for way, by in (("back", -3600), ("forward", 3600))
        for phase in ("sealed", *EVERY)
    ]
    return cells + [
        Cell("SIGKILL and clock set back", phase, set_clock_and_kill, (-9,), prepare=clocked)
        for phase in ("measuring", "second run")
    ]


def _others() -> list[Cell]:
    gone = r"cannot be written \(No such file or directory\)"
    went = {
        ("plan", "second run"): ("plan.json", r"plan\.json: was removed during the study"),
        ("environment", "measuring"): ("environment.json", ""),
        ("runs", "measuring"): ("runs", gone),
        ("runs", "second run"): ("runs", gone),
        ("study", "measuring"): ("", f"{gone}|was removed during the study"),
        ("study", "second run"): ("", f"{gone}|was removed during the study"),
    }
    cells = [
        Cell(f"{what} removed", phase, remove(f"studies/*/*/{part}".rstrip("/")), (1, 0), said, goes_on=False)
        for (what, phase), (part, said) in went.items()
    ]
    cells += [
        Cell("whole run removed", "second run", remove("studies/*/*/runs/0*")),
        Cell("run removed while it is made", "measuring", remove(f"studies/*/*/runs/{MESH}"), (1,), gone),
    ]
    asked = {"status": (0,), "verify": (1,), "pack": (1,)}
    cells += [Cell(f"{word} asked for", "second run", ask(word, *codes)) for word, codes in asked.items()]
    return cells + [Cell("second session", phase, second_session) for phase in EVERY]


def _command() -> list[Cell]:
    def failing(fault: str, phase: str, do: Do, says: str, **more: Any) -> Cell:
        return Cell(fault, phase, do, (1,), says, **{"command": COMMAND, **more})

    removed = r"cannot be written \(output folder .* doesn't exist\.\)"
    died = "the notebook's kernel died: it was killed, or found no memory$"
    limits = {"16 files": "ulimit -n 16", "32 files": "ulimit -n 32", "1 GB of addresses": "ulimit -v 1000000"}
    limited = [(name, ("sh", "-c", f'{ask}; exec "$@"', "sh", *COMMAND)) for name, ask in limits.items()]
    return [
        failing("reports full", "start", nothing, SPACE, place=REPORTS, size="8k", goes_on=False),
        failing("reports full", "second run", fill(REPORTS), SPACE + GOES_ON, place=REPORTS),
        failing("reports read-only", "second run", read_only(REPORTS, "reports"), RIGHT + GOES_ON, place=REPORTS),
        failing("reports removed", "second run", remove("reports"), removed + GOES_ON),
        failing("kernel dead before its reply", "start", nothing, "did not start", prepare=dying_kernel, goes_on=False),
        *(failing("kernel killed", phase, kill("ipykernel"), died) for phase in ("any run", "second run")),
        failing("no memory for the kernel", "any run", out_of_memory("ipykernel"), died, prepare=confined),
        *(failing(name, "start", nothing, "this shell allows", command=c, goes_on=False) for name, c in limited),
    ]


CELLS = {str(cell): cell for cell in (*_signals(), *_components(), *_machine(), *_clock(), *_others(), *_command())}
# The faults that `make test` runs: each kind once, at its worst phase.
CHOSEN = (
    *("SIGINT, deploying", "clock set back an hour, measuring", "SIGKILL, measuring", "command, SIGKILL, second run"),
    *("app killed, measuring", "no memory for the server's sidecar, measuring", "generator stopped a while, measuring"),
    *("disk full, measuring", "second session, measuring", "plan removed, second run", "32 files, start"),
    *("command, reports removed, second run", "command, kernel dead before its reply, start"),
)
