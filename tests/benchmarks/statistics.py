"""How long the statistics of a large study take: 5 treatments x 200 blocks (1000 runs), 10 responses. Run by hand:

PYTHONPATH=tests .venv/bin/python -m benchmarks.statistics
"""

from __future__ import annotations

import time

import numpy as np
from unit.inference.recorded import planned, rows_of, study_of

from meshtrial.design.plan import PlannedRun
from meshtrial.design.responses import REGISTRY

TREATMENTS = ("none", "none-aa", "node-proxy", "sidecar", "sidecar+mtls")
BLOCKS, RESPONSES = 200, 10
LIMIT_S = 10  # of CPU time


def main() -> bool:
    """Say how long it took, and whether that is within the limit."""
    names = [name for name, found in REGISTRY.items() if found.margin and found.kind == "latency"][:RESPONSES]
    rng = np.random.default_rng(1)

    def values(run: PlannedRun) -> dict[str, float]:
        """With noise that drifts a little."""
        wander, level = 0.02 * np.sin(run.sequence / 40), 0.001 * (1 + 0.1 * TREATMENTS.index(run.treatment))
        return {name: level * float(np.exp(wander + rng.normal(0, 0.05))) for name in names}

    plan = planned("ambient_vs_no_mesh", treatments=",".join(TREATMENTS), blocks=BLOCKS, primary="p50,p99")
    data = study_of(plan, values)
    began, cpu = time.perf_counter(), time.process_time()
    rows = rows_of(data)
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    print(f"{len(plan.runs)} runs x {len(names)} responses x {len(TREATMENTS)} treatments:", end=" ")
    print(f"{len(rows)} rows in {wall:.2f} s")
    print(f"CPU {used:.2f} s; the limit is {LIMIT_S} s")
    return used <= LIMIT_S


if __name__ == "__main__":
    raise SystemExit(not main())
