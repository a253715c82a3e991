"""Where the seconds of a run on a cluster go, by phase. Run by hand, on any cluster you may write to:

.venv/bin/python tests/benchmarks/cluster_run.py CLUSTER_FILE [TREATMENT,...] [ROUNDS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from meshtrial.design.parameters import read_parameters
from meshtrial.design.plan import make_plan
from meshtrial.design.studies import study_module
from meshtrial.load import ingest
from meshtrial.records.store import StudyStore
from meshtrial.run import measured, stage
from meshtrial.testbed.kubernetes.deployment import KubernetesDeployment
from meshtrial.testbed.kubernetes.meshes import MeshInstaller
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed

# Phases in their order; one inside another is told beside it and not added.
PHASES: tuple[tuple[str, Any, str], ...] = (
    ("mesh install", MeshInstaller, "install"),
    ("deploy", KubernetesDeployment, "stand_up"),
    ("proofs", KubernetesDeployment, "prove"),
    ("warm-up", stage, "warm_up"),
    ("readings of usage", KubernetesDeployment, "snapshot"),
    ("load", KubernetesDeployment, "generate"),
    ("ingest", ingest, "ingest"),
    ("logs", KubernetesDeployment, "collect_logs"),
    ("removal", KubernetesDeployment, "remove"),
)


def main(cluster_file: str, treatments: str = "none,sidecar+mtls,istio+mtls", rounds: int = 2) -> None:
    """Print the median seconds of each phase over the rounds."""
    names = treatments.split(",")
    spent: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in names}
    now: dict[str, float] = {}

    def timed(phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def outer(*args: Any, **kwargs: Any) -> Any:
            began = time.monotonic()
            try:
                return call(*args, **kwargs)
            finally:
                now[phase] = now.get(phase, 0.0) + time.monotonic() - began

        return outer

    module = study_module("mesh_comparison")
    given = {"backend": "kubernetes", "treatments": treatments, "rates": "100", "capacity": False, "blocks": rounds}
    given |= {"cluster_file": cluster_file, "duration_s": 6, "warmup_s": 1, "mesh_reinstall": "once"}
    plan = make_plan(module.build(read_parameters(module.PARAMETERS, given)))
    bed = KubernetesTestbed(plan.study.options)
    try:
        if problems := bed.preflight(plan.study):
            raise SystemExit("\n".join(problems))
        with tempfile.TemporaryDirectory() as folder:
            store = StudyStore.create(Path(folder), plan, {})
            for run in plan.runs:
                now.clear()
                patches = [
                    patch.object(owner, name, timed(phase, getattr(owner, name))) for phase, owner, name in PHASES
                ]
                for one in patches:
                    one.start()
                began = time.monotonic()
                record = measured.run_once(store, bed, run, 1)
                now["whole run"] = time.monotonic() - began
                for one in patches:
                    one.stop()
                deploy = record.extra.get("deploy", {})
                now |= {f"  {key}": value for key, value in deploy.items() if isinstance(value, float)}
                for phase, seconds in now.items():
                    spent[run.treatment][phase].append(seconds)
                print(
                    f"{run.run_id}: {now['whole run']:.1f} s {'' if record.valid else record.reasons}", file=sys.stderr
                )
    finally:
        bed.close()
    phases = dict.fromkeys(phase for found in spent.values() for phase in found)
    print(f"{'seconds':<24}" + "".join(f"{name:>16}" for name in names))
    for phase in phases:
        cells = (float(np.median(found[phase])) if phase in found else 0.0 for found in spent.values())
        print(f"{phase:<24}" + "".join(f"{cell:>16.2f}" for cell in cells))


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:4]))
