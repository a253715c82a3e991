"""How long the statistics of a large study take: 5 treatments x 200 blocks (1000 runs), 10 responses. Run by hand:

.venv/bin/python tests/benchmarks/statistics.py
"""

from __future__ import annotations

import time

import numpy as np
import polars as pl

from meshtrial.design.plan import Plan, make_plan
from meshtrial.design.responses import REGISTRY, default_margins
from meshtrial.design.study import Load, Study, Treatment
from meshtrial.inference.rows import LoadFamilies
from meshtrial.records.dataset import RUNS_SCHEMA
from meshtrial.records.tables import Inclusion

TREATMENTS = ("none", "none-aa", "node-proxy", "sidecar", "sidecar+mtls")
BLOCKS, RESPONSES = 200, 10
LIMIT_S = 10  # of CPU time


def plan() -> Plan:
    """The study."""
    treatments = tuple(Treatment.parse(name) for name in TREATMENTS)
    return make_plan(
        Study(
            name="mesh_comparison",
            title="benchmark",
            question="?",
            backend="local",
            app="echo",
            treatments=treatments,
            baseline=treatments[0],
            loads=(Load(100, 4, 10),),
            primary=("latency_p50_s", "latency_p99_s"),
            margins=default_margins(),
            blocks=BLOCKS,
            seed=1,
        )
    )


def table(made: Plan, names: list[str]) -> pl.DataFrame:
    """Values with noise that drifts a little."""
    rng = np.random.default_rng(1)
    rows = []
    for run in made.runs:
        head = (run.run_id, run.load, run.repetition, run.position, run.sequence, run.treatment, "echo", 1)
        wander = 0.02 * np.sin(run.sequence / 40)
        for name in names:
            value = 0.001 * (1 + 0.1 * TREATMENTS.index(run.treatment)) * float(np.exp(wander + rng.normal(0, 0.05)))
            rows.append((*head, float(run.sequence), True, True, name, value, None))
    return pl.DataFrame(rows, schema=RUNS_SCHEMA, orient="row")


def main() -> bool:
    """Say how long it took, and whether that is within the limit."""
    made = plan()
    names = [name for name, found in REGISTRY.items() if found.margin and found.kind == "latency"][:RESPONSES]
    values = table(made, names)
    inclusion = Inclusion({}, tuple(range(1, BLOCKS + 1)), {}, {}, ())
    began, cpu = time.perf_counter(), time.process_time()
    rows = LoadFamilies(made, values, made.study.loads[0].label, inclusion, 0.05).verdict_rows()
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    print(
        f"{len(made.runs)} runs x {len(names)} responses x {len(TREATMENTS)} treatments: "
        f"{len(rows)} rows in {wall:.2f} s"
    )
    print(f"CPU {used:.2f} s; the limit is {LIMIT_S} s")
    return used <= LIMIT_S


if __name__ == "__main__":
    raise SystemExit(not main())
