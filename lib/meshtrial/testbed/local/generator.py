"""fortio processes on this machine, started at the same moment and reaped with their CPU time."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from meshtrial import native
from meshtrial.errors import TestbedError
from meshtrial.load.generators import GeneratorCall, GeneratorOutput, Target, publishable
from meshtrial.records.schema import ComponentUsage
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
            # Run inside the folder, so that no path of this machine gets into fortio's files, which are the record.
            argv = (
                *(str(native.find("fortio")), "load", *call.arguments),
                *("-json", json_path.name, "-access-log-file", log.name, "-access-log-format", "json"),
                *target.arguments(call),
            )
            children.append((call, Child("load generator", argv, text, cwd=folder), json_path, log, text))
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
    argv = publishable(child.argv)
    return GeneratorOutput(call.name, argv, code, json_path, log, text.read_text(errors="replace"), usage)


def generator_cpus() -> float:
    """Cores that a generator may use: those this process may run on."""
    return float(len(os.sched_getaffinity(0)))
