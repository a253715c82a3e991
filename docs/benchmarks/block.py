"""Time spent per phase of one block, on this machine or on any cluster that you may write to:

PYTHONPATH=docs:lib:tests .venv/bin/python -P -m benchmarks.block [STUDY local [NAME=VALUE...]]
PYTHONPATH=docs:lib:tests .venv/bin/python -P -m benchmarks.block STUDY kubernetes cluster_file=FILE [NAME=VALUE...]

NAME is a parameter of the study, as for `meshtrial run`. Without arguments, two quick local studies are timed. A phase
is wall-clock time, so parallel work counts once. The rest of a block is what the runner does between phases. In a study
of several loads, a block here is one block at each load.
"""

import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.table import Row, main

from meshtrial.design.plan import make_plan
from meshtrial.design.studies import study_module
from meshtrial.load import ingest
from meshtrial.records.store import StudyStore
from meshtrial.run import runner, stage
from meshtrial.run.trial import make_testbed
from meshtrial.testbed.kubernetes.deployment import KubernetesDeployment
from meshtrial.testbed.kubernetes.meshes import MeshInstaller
from meshtrial.testbed.local.deployment import LocalDeployment
from meshtrial.testbed.local.testbed import LocalTestbed

Interval = tuple[float, float]
# The phases in order, and what each of them does.
PHASES = {
    "state of the machine": "how fast it wakes up and computes, before every run",
    "mesh install": "its pods start; treatments without a mesh are deployed meanwhile",
    "deploy": "pods start in parallel, until a request succeeds",
    "proofs": "counters and refusals before and after the load, in parallel",
    "warm-up": "in parallel, at the rate of one load",
    "pushes": "what a change costs the control plane, after the load",
    "readings of usage": "the kubelet's next reading, after one slice and before the next",
    "load": "measured requests, and those discarded before each slice",
    "ingest": "reading every request, in parallel",
    "logs": "of every container",
    "removal": "pods end; namespaces are deleted while the next block begins",
    "mesh removal": "before the next block, if it is reinstalled",
}


def owners(backend: str) -> list[tuple[str, Any, str]]:
    """Return what is timed of a backend: phase, owner and method name."""
    deployment: Any = KubernetesDeployment if backend == "kubernetes" else LocalDeployment
    methods = {"proofs": "prove", "readings of usage": "snapshot", "load": "generate"}
    methods |= {"logs": "collect_logs", "removal": "close"}
    found = [(phase, deployment, name) for phase, name in methods.items()]
    found += [("warm-up", stage, "warm_up"), ("ingest", ingest, "ingest_slices")]
    if backend == "local":
        found += [("state of the machine", LocalTestbed, "before_run"), ("deploy", LocalTestbed, "deploy")]
        found += [("pushes", LocalDeployment, "facts")]
    if backend == "kubernetes":
        found += [
            ("deploy", KubernetesDeployment, "deploy"),
            ("mesh install", MeshInstaller, "install"),
            ("mesh removal", MeshInstaller, "uninstall"),
        ]
    return found


@contextmanager
def timed(backend: str) -> Iterator[dict[str, list[Interval]]]:
    """Every phase's intervals; what happens inside of another one (the load of a warm-up) belongs to that."""
    spent: dict[str, list[Interval]] = defaultdict(list)
    inside = threading.local()

    def clocked(phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def outer(*args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "phase", ""):
                return call(*args, **kwargs)
            inside.phase, began = phase, time.monotonic()
            try:
                return call(*args, **kwargs)
            finally:
                inside.phase = ""
                spent[phase].append((began, time.monotonic()))

        return outer

    with ExitStack() as stack:
        for phase, owner, name in owners(backend):
            stack.enter_context(patch.object(owner, name, clocked(phase, getattr(owner, name))))
        yield spent


def covered(intervals: list[Interval]) -> float:
    """Seconds that lie in at least one of them."""
    total, until = 0.0, float("-inf")
    for began, ended in sorted(intervals):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


def rows(study: str = "", backend: str = "local", *pairs: str) -> Iterator[Row]:
    """A block of the study by phase; without one, of the two quick studies whose duty is known to be poor or large."""
    for name in (study,) if study else ("ambient_vs_no_mesh", "scale_out"):
        yield from phases_of(name, backend, *pairs)


def phases_of(study: str, backend: str, *pairs: str) -> Iterator[Row]:
    """Make the first block of a plan; its phases against the whole, and what was measured of it."""
    module = study_module(study)
    kinds = {name: type(one.text(one.default)) for name, one in module.SETTINGS.settings.items()}
    given = {name: kinds[name](value) for name, value in (pair.split("=", 1) for pair in pairs)}
    plan = make_plan(module.build(module.SETTINGS.read({"blocks": 2} | given | {"backend": backend})))
    bed = make_testbed(plan, {})
    try:
        if problems := bed.preflight(plan.study):
            raise SystemExit("\n".join(problems))
        with tempfile.TemporaryDirectory() as folder, timed(backend) as spent:
            store = StudyStore.create(Path(folder), plan, {})
            began = time.monotonic()
            runner.execute(store, bed, lambda line: print(line, file=sys.stderr), lambda *_: True)
            whole_s = time.monotonic() - began
            records = store.records()
    finally:
        bed.close()
    block = f"a block of {study}, {len(records)} runs"
    for phase, why in PHASES.items():
        if phase in spent:
            seconds = covered(spent[phase])
            yield Row(f"{block}: {phase} ({why})", f"{seconds:.1f} s", f"{whole_s:.1f} s, all of it", seconds / whole_s)
    between_s = whole_s - covered([one for found in spent.values() for one in found])
    what = f"{block}: between (drawing, recording, waiting for the last block)"
    yield Row(what, f"{between_s:.1f} s", f"{whole_s:.1f} s, all of it", between_s / whole_s)
    planned = {run.run_id: plan.load_of(run) for run in plan.runs}
    measured_s = sum(planned[record.run_id].slices * planned[record.run_id].duration_s for record in records)
    invalid = sum(not record.valid for record in records)
    what = f"{block}, {invalid} of them invalid: what is measured of the time"
    yield Row(what, f"{measured_s:.1f} s", f"{whole_s:.1f} s, all of it", measured_s / whole_s)


if __name__ == "__main__":
    main(rows)
