"""The mechanism behind a difference: system calls and context switches per request, by component.

They are counted in a separate pass, never in timed runs: strace stops a process at every system call, so times under it
mean nothing. The counts are exact. Their number per request depends on the rate, because requests that arrive together
are read together; the rate is therefore part of the result.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from meshtrial import waiting
from meshtrial.design.load import FixedRate, Load
from meshtrial.design.plan import Plan
from meshtrial.design.study import Treatment
from meshtrial.errors import MissingToolError, TestbedError
from meshtrial.load import fortio, ingest
from meshtrial.records.mechanism import ComponentCalls, Mechanism
from meshtrial.testbed.base import usage_between
from meshtrial.testbed.local import host
from meshtrial.testbed.local.deployment import LocalDeployment
from meshtrial.testbed.local.processes import Child, stop_all
from meshtrial.testbed.local.testbed import LocalTestbed

_ATTACH_S = 10.0
_DETACH_S = 10.0


def lines(counted: Mechanism, most: int = 6) -> list[str]:
    """Return the counts as lines of text, with the ``most`` frequent calls of each component."""
    traced, untraced = counted.traced, counted.untraced
    text = [
        f"{counted.treatment} at {counted.load}: {traced} requests under strace, {untraced} without",
        f"{'component':<22}{'syscalls/request':>17}{'switches/request':>18}  most frequent, per request",
    ]
    for component in counted.components:
        total = sum(component.calls.values()) / traced
        switches = "-" if component.switches is None else f"{component.switches / untraced:.2f}"
        ranked = sorted(component.calls.items(), key=lambda item: (-item[1], item[0]))[:most]
        named = ", ".join(f"{name} {count / traced:.2f}" for name, count in ranked)
        text.append(f"{component.component:<22}{total:>17.2f}{switches:>18}  {named}")
    return text


def require_strace() -> Path:
    """Return the path of strace; MissingToolError if it is missing or may not trace."""
    program = shutil.which("strace")
    if program is None:
        raise MissingToolError("strace is missing; install it (Debian, Ubuntu: apt install strace)")
    tried = subprocess.run([program, "-c", "-f", "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        reason = (tried.stderr.strip().splitlines() or ["no reason given"])[0]
        raise MissingToolError(f"strace may not trace here ({reason}); it needs CAP_SYS_PTRACE or ptrace_scope 0")
    return Path(program)


# Under strace every call stops twice: at higher rates the processes fall behind.
MOST_RPS = 200.0
STAGE_S = 2.0


def probe_study(plan: Plan, progress: Callable[[str], None]) -> tuple[Mechanism, ...]:
    """Count for every treatment of a study except the A/A twin, at its first open load but at most 200 rps."""
    study = plan.study
    load = next((load for load in study.loads if load.asked_rps), study.loads[0])
    rate = min(load.asked_rps or MOST_RPS, MOST_RPS)
    load = FixedRate.like(load, rps=rate, duration_s=max(STAGE_S, 3 * load.connections / rate), warmup_s=0.0)
    counted = []
    for treatment in (treatment for treatment in study.treatments if not treatment.twin):
        progress(f"counting system calls of {treatment.name}, after the runs")
        counted.append(probe(treatment, load, treatment.app or study.app, study.parameters))
    return tuple(counted)


def probe(treatment: Treatment, load: Load, app: str, parameters: Mapping[str, object] | None = None) -> Mechanism:
    """Deploy a treatment, count context switches under load, then system calls under the same load."""
    host.require()
    strace = require_strace()
    deployment = LocalTestbed({"parameters": parameters or {}}).deploy(treatment, load, app)
    try:
        with tempfile.TemporaryDirectory(prefix="meshtrial-probe-") as name:
            folder = Path(name)
            before = deployment.snapshot()
            untraced = _send(deployment, load, folder / "untraced")
            switches = {u.component: u.switches for u in usage_between(before, deployment.snapshot())}
            tracers = _attach(strace, deployment, folder)
            try:
                traced = _send(deployment, load, folder / "traced")
            finally:
                # When it is asked to end, strace detaches and writes its table.
                stop_all(tracers, grace_s=_DETACH_S)
            components = tuple(
                ComponentCalls(w.component, w.role, read_counts(folder / _table(w.component)), switches[w.component])
                for w in deployment.watched
            )
    finally:
        deployment.close()
    return Mechanism(treatment.name, load.label, traced, untraced, components)


def _attach(strace: Path, deployment: LocalDeployment, folder: Path) -> list[Child]:
    tracers: list[Child] = []
    for watched in deployment.watched:
        pids = [part for pid in watched.pids for part in ("-p", str(pid))]
        argv = (str(strace), "-c", "-f", "-o", str(folder / _table(watched.component)), *pids)
        tracers.append(Child(f"strace of {watched.component}", argv, folder / f"{_table(watched.component)}.txt"))

    def untraced() -> list[str]:
        return [w.component for w in deployment.watched if not all(map(_is_traced, w.pids))]

    waiting.until(lambda: not untraced() or not all(tracer.alive() for tracer in tracers), _ATTACH_S, 0.02)
    if components := untraced():
        reason = next(tracer.tail() for tracer in tracers if tracer.name == f"strace of {components[0]}")
        stop_all(tracers)
        raise TestbedError(f"strace could not attach to {components[0]}: {reason}")
    return tracers


def _is_traced(pid: int) -> bool:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return all("TracerPid:\t0\n" not in (thread / "status").read_text() for thread in threads)
    except OSError:
        return False


def _send(deployment: LocalDeployment, load: Load, folder: Path) -> int:
    folder.mkdir()
    outputs = deployment.generate(fortio.calls(load, "measure"), folder, 60 + 10 * load.duration_s)
    return sum(record.requests for record in ingest.ingest(outputs, load, 0).generators)


def _table(component: str) -> str:
    return f"{component.replace(' ', '-')}.strace"


def read_counts(path: Path) -> dict[str, int]:
    """Return the system calls by name from the table that ``strace -c`` writes.

    The columns are % time, seconds, usecs/call, calls, errors (may be empty) and the name.
    """
    counts: dict[str, int] = {}
    for line in path.read_text().splitlines():
        fields = line.split()
        if len(fields) in (5, 6) and fields[3].isdigit() and fields[-1] != "total":
            counts[fields[-1]] = int(fields[3])
    return counts
