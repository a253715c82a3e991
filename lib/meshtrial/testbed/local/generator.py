"""fortio processes on this machine, started at the same moment and reaped with their CPU time."""

from __future__ import annotations

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
    """Run the calls side by side and wait for all of them, so long at the most; TestbedError when one has no result.

    ``folder`` gets ``<name>.json``, ``<name>.log`` (access log) and ``<name>.txt`` of every call.
    """
    children: list[Child] = []
    started = time.monotonic()
    try:
        for call in calls:
            # Run inside the folder, so that no path of this machine gets into fortio's files, which are the record.
            argv = (
                *(str(native.find("fortio")), "load", *call.arguments),
                *("-json", f"{call.name}.json", "-access-log-file", f"{call.name}.log", "-access-log-format", "json"),
                *target.arguments(call),
            )
            children.append(Child("load generator", argv, folder / f"{call.name}.txt", folder))
        return tuple(
            _collect(call.name, child, started, timeout_s) for call, child in zip(calls, children, strict=True)
        )
    finally:
        stop_all(children)


def _collect(name: str, child: Child, started: float, timeout_s: float) -> GeneratorOutput:
    json_path, log = (child.log.with_name(f"{name}{ending}") for ending in (".json", ".log"))
    code, cpu_s, switches = child.reap(max(0.1, started + timeout_s - time.monotonic()))
    if code is None:
        raise TestbedError(f"load generator {name}: did not end within {timeout_s:g} s; {child.tail()}")
    if child.was_paused:
        raise TestbedError(f"load generator {name}: was stopped by a signal and continued, so it measured itself")
    if code != 0 or not json_path.exists():
        raise TestbedError(f"load generator {name}: ended with code {code}: {child.tail()}")
    usage = ComponentUsage(name, "load generator", time.monotonic() - started, cpu_s, None, count=1, switches=switches)
    argv = publishable(child.argv)
    return GeneratorOutput(name, argv, code, json_path, log, child.said(), usage)
