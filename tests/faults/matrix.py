"""Faults x phases: what is done to a study, when, and what must come of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from faults.session import COMMAND, LIBRARY, Session

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
    reason: str = ""  # a pattern of why the first attempt of the mesh's run is not valid
    command: tuple[str, ...] = LIBRARY
    place: str = ""
    size: str = "8m"
    goes_on: bool = True
    changed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        kind = "command, " if self.command is COMMAND else ""
        return f"{kind}{self.fault}, {self.phase}"


def send(number: int) -> Do:
    return lambda session: os.kill(session.pid, number)


def kill(words: str) -> Do:
    return lambda session: os.kill(session.component(words), signal.SIGKILL)


def stop(words: str) -> Do:
    """For a second and a half: a neighbour that takes the machine, a debugger, Ctrl-Z."""

    def do(session: Session) -> None:
        pid = session.component(words)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return do


def nothing(session: Session) -> None:
    """It is as it is from the start."""


def fill(place: str) -> Do:
    def do(session: Session) -> None:
        with suppress(OSError), (session.inside(place) / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass

    return do


def read_only(place: str, of: str) -> Do:
    def do(session: Session) -> None:
        where = str(session.root / of)
        enter = ("nsenter", "-t", str(session.pid), "-m", "mount", "-o", "remount,ro", where)
        # A file that is open for writing keeps a file system writable: asked again until it is closed.
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
    # Held meanwhile, so that it is still there however long the other takes to come so far.
    os.kill(session.pid, signal.SIGSTOP)
    other = subprocess.run(session.command, env=session.environment, capture_output=True, text=True, check=False)
    os.kill(session.pid, signal.SIGCONT)
    assert other.returncode == 1, other.stderr
    assert other.stdout.strip().endswith("another process is running this study; wait for it"), other.stdout


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
GOES_ON = r"; \d of 4 runs are recorded, .*; `meshtrial run ambient_vs_no_mesh -p study_dir=.*` goes on$"
DATA, REPORTS = "MESHTRIAL_DATA", "MESHTRIAL_REPORTS"
KERNEL = {"IPYTHONDIR": "dying"}


def _signals() -> list[Cell]:
    asked = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), (INTERRUPTED,))
    asked[signal.SIGKILL] = (-9,)
    cells = [
        Cell(number.name, phase, send(number), codes)
        for number, codes in asked.items()
        for phase in ("sealed", "deploying", "warm-up", "measuring", "second run")
    ]
    return cells + [
        Cell(
            number.name, phase, send(number), asked[number], "interrupted$" * (asked[number] != (-9,)), command=COMMAND
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
        for phase in ("any run", "second run", "report")
    ]


def _components() -> list[Cell]:
    cells = []
    for name, (words, said) in COMPONENTS.items():
        ended, stopped = f"proof {said} alive", f"proof {said} ran on|{said} .*was stopped"
        if name == "generator":
            ended = "load generator .*: ended with code -9"
        for phase in ("warm-up", "measuring"):
            cells.append(Cell(f"{name} killed", phase, kill(words), reason=ended))
            cells.append(Cell(f"{name} stopped a while", phase, stop(words), reason=stopped))
    return cells


def _machine() -> list[Cell]:
    cells = [
        Cell("disk full", phase, fill(DATA), (1,), SPACE, place=DATA) for phase in ("deploying", "warm-up", "measuring")
    ]
    cells.append(Cell("disk read-only", "start", nothing, (1,), RIGHT, place=DATA, size="8m,ro"))
    went = {
        "plan removed": ("studies/*/*/plan.json", r"plan\.json: went while the study runs"),
        "runs removed": ("studies/*/*/runs", r"cannot be written \(No such file or directory\)"),
        "study removed": ("studies/*/*", r"cannot be written \(No such file or directory\)|went while the study runs"),
    }
    cells += [
        Cell(fault, "second run" if fault == "plan removed" else "measuring", remove(part), (1, 0), said, goes_on=False)
        for fault, (part, said) in went.items()
    ]
    return [*cells, Cell("second session", "measuring", second_session)]


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
        failing("kernel dead before its reply", "start", nothing, "did not come up", changed=KERNEL, goes_on=False),
        failing("kernel killed", "any run", kill("ipykernel"), died),
        failing("kernel killed", "second run", kill("ipykernel"), died),
        *(failing(name, "start", nothing, "this shell allows", command=c, goes_on=False) for name, c in limited),
    ]


CELLS = {str(cell): cell for cell in (*_signals(), *_components(), *_machine(), *_command())}
# What `make test` runs: each kind of fault once, where it hurts most.
CHOSEN = (
    *("SIGINT, deploying", "SIGTERM, measuring", "SIGKILL, measuring", "command, SIGKILL, second run"),
    *("app killed, measuring", "policy server killed, measuring", "generator stopped a while, measuring"),
    *("disk full, measuring", "second session, measuring", "plan removed, second run", "32 files, start"),
    *("command, reports removed, second run", "command, kernel dead before its reply, start"),
)
