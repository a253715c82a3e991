"""Studies of single hops with known costs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from building import record, study
from unit.inference.recorded import study_of

from meshtrial.design.load import FixedRate
from meshtrial.design.plan import PlannedRun, make_plan
from meshtrial.load.quantiles import COLUMNS
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import ComponentUsage, RunRecord

WINDOW_S = 10.0
MIB = 2**20
# Microseconds per request: of caller's and callee's proxy at 100 and at 1,000 requests per second.
CALLER_US = {100: 300.0, 1000: 200.0}
CALLEE_US = {100: 200.0, 1000: 100.0}
APP_US = 150.0


def loads(*rates: float, **more: object) -> tuple[FixedRate, ...]:
    """Loads of these rates; `more` are further fields."""
    return tuple(FixedRate(rate, 4, WINDOW_S, **more) for rate in rates)


def usage(component: str, role: str, us: float, rps: float, mib: float = 20.0, count: int = 1) -> ComponentUsage:
    """Return a component's use at this CPU per request."""
    cpu_s = us * 1e-6 * rps * WINDOW_S
    return ComponentUsage(component, role, WINDOW_S, cpu_s, int(mib * count * MIB), count=count)


def sidecars(load: FixedRate, noise: float = 0.0) -> list[ComponentUsage]:
    """Two sidecars with the costs of the tables above, and 1 ns per byte."""
    rps = int(load.rps)
    body = (load.payload_bytes + (load.response_bytes or load.payload_bytes)) * 1e-3
    memory = 40.0 + 0.1 * (load.connections - 4)
    return [
        usage("client sidecar", "data plane", CALLER_US.get(rps, 0) + body + noise, rps, memory),
        usage("server sidecar", "data plane", CALLEE_US.get(rps, 0) + body, rps, memory),
    ]


def node_proxy(load: FixedRate, noise: float = 0.0) -> list[ComponentUsage]:
    """One proxy on each of two nodes."""
    return [usage("ztunnel", "data plane", 80.0 + noise, load.rps, 10.0, count=2)]


DataPlane = Callable[[FixedRate, float], list[ComponentUsage]]


def recorded(
    data_planes: Mapping[str, DataPlane],
    at: tuple[FixedRate, ...] = loads(100, 1000),
    *,
    blocks: int = 6,
    noise_us: float = 0.0,
    seed: int = 1,
    folder: Path = Path("nowhere"),
    app_us: float = APP_US,
    requests: int = 20_000,
) -> StudyData:
    """Return a study of these treatments and none, without its requests."""
    plan = make_plan(study(("none", "none-aa", *data_planes), blocks=blocks, loads=at, seed=seed))
    by_label = {load.label: load for load in at}
    rng = np.random.default_rng(seed)

    def run_of(run: PlannedRun) -> RunRecord:
        load = by_label[run.load]
        parts = data_planes.get(run.treatment, lambda load, noise: [])(load, noise_us * rng.standard_normal())
        used = [usage("app", "app", app_us, load.rps), *parts]
        per_request = sum(one.cpu_s for one in used) / (load.rps * WINDOW_S)
        responses = {"path_cpu_s_per_request": per_request, "requests": float(requests)}
        return replace(record(plan, run, responses), usage=tuple(used))

    runs = [run_of(run) for run in plan.runs]
    responses = {run.run_id: run.responses for run in runs}
    data = study_of(plan, lambda run: responses[run.run_id], runs=runs)
    return replace(data, path=folder)


def write_latencies(data: StudyData, latencies_s: Callable[[str], np.ndarray]) -> None:
    """Write each run's requests, whose latencies depend on the treatment's name."""
    for run in data.runs:
        values = latencies_s(run.treatment)
        folder = data.run_folder(run)
        folder.mkdir(parents=True)
        empty = pl.DataFrame(schema=COLUMNS)
        rows = pl.DataFrame({"latency_s": values, "ok": [True] * len(values), "imputed": [False] * len(values)})
        pl.concat([empty, rows], how="diagonal_relaxed").write_parquet(folder / "latency.parquet")
