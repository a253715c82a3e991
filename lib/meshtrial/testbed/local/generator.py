"""fortio processes on this machine, started at the same moment and reaped with their CPU time."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from meshtrial import native
from meshtrial.errors import TestbedError
from meshtrial.records.schema import ComponentUsage
from meshtrial.testbed.base import GeneratorCall, GeneratorOutput, Target
from meshtrial.testbed.local.processes import Child, stop_all


def run_generators(
    calls: Sequence[GeneratorCall], target: Target, folder: Path, timeout_s: float
) -> tuple[GeneratorOutput, ...]:
    """Run the calls side by side and wait for all of them.

    Parameters
    ----------
    calls : sequence of GeneratorCall
    target : Target
    folder : Path
        Gets ``<name>.json``, ``<name>.log`` (access log) and ``<name>.txt`` of every call.
    timeout_s : float
        Wall-clock limit for all of them together.

    Raises
    ------
    TestbedError
        When a generator does not end in time or leaves no result.
    """
    children: list[tuple[GeneratorCall, Child, Path, Path, Path]] = []
    started = time.monotonic()
    try:
        for call in calls:
            json_path, log, text = (folder / f"{call.name}{ending}" for ending in (".json", ".log", ".txt"))
            # No space behind the colon: fortio's HTTP/2 client sends it as part of the value, which no policy accepts.
            headers = [part for name, value in target.headers for part in ("-H", f"{name}:{value}")]
            argv = (
                *(str(native.find("fortio")), "load", *call.arguments, *headers),
                *("-json", str(json_path), "-access-log-file", str(log), "-access-log-format", "json"),
                target.url,
            )
            children.append((call, Child("load generator", argv, text), json_path, log, text))
        return tuple(_collect(*parts, started=started, timeout_s=timeout_s) for parts in children)
    finally:
        stop_all([child for _, child, *_ in children])


def _collect(
    call: GeneratorCall, child: Child, json_path: Path, log: Path, text: Path, *, started: float, timeout_s: float
) -> GeneratorOutput:
    code, cpu_s, switches = child.reap(max(0.1, started + timeout_s - time.monotonic()))
    if code is None:
        raise TestbedError(f"load generator {call.name}: did not end within {timeout_s:g} s; {child.tail()}")
    if code != 0 or not json_path.exists():
        raise TestbedError(f"load generator {call.name}: ended with code {code}: {child.tail()}")
    usage = ComponentUsage(
        call.name, "load generator", time.monotonic() - started, cpu_s, None, count=1, switches=switches
    )
    # A run-time token must not end up in a record, even one that is worthless tomorrow.
    argv = tuple("Authorization: (run-time token)" if a.startswith("Authorization:") else a for a in child.argv)
    return GeneratorOutput(call.name, argv, code, json_path, log, text.read_text(errors="replace"), usage)


def generator_cpus() -> float:
    """Cores that a generator may use: those this process may run on."""
    return float(len(os.sched_getaffinity(0)))
