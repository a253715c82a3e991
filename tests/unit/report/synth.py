"""A simulated study: the real records and dataclasses, filled from a seeded generator."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import building
import numpy as np
import polars as pl

from meshtrial.design.load import ClosedLoop, FixedRate, Load
from meshtrial.design.plan import Plan, PlannedRun, make_plan
from meshtrial.design.responses import QUANTILES
from meshtrial.design.study import Contrast
from meshtrial.inference import infer
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import ComponentUsage, GateResult, GeneratorRecord, Proof, RunRecord, VerdictRow
from meshtrial.vocabulary import OwnFailures, Scale

# name: (added p50 in s, tail factor, data-plane CPU s/request, data-plane PSS)
TREATMENTS = {
    "none": (0.0, 1.0, 0.0, 0),
    "none-aa": (0.0, 1.0, 0.0, 0),
    "node-proxy": (1.2e-4, 1.15, 68e-6, 33 << 20),
    "sidecar+mtls": (4.1e-4, 1.7, 240e-6, 34 << 20),
}
PRIMARY = ("latency_p50_s", "latency_p99_s", "path_cpu_s_per_request")


@dataclass(frozen=True)
class Shape:
    """Properties of a synthetic study."""

    treatments: tuple[str, ...] = tuple(TREATMENTS)
    blocks: int = 10
    loads: tuple[Load, ...] = (FixedRate(2000, 10, 6.0),)
    requests: int = 1500
    noise: float = 0.06
    invalid: tuple[str, ...] = ()
    saturated: tuple[tuple[str, str], ...] = ()
    failed_blocks: tuple[int, ...] = ()
    own_failures: OwnFailures = "repeated"
    p999: bool = False
    verdicts: bool = True
    seed: int = 7
    contrasts: tuple[tuple[str, str], ...] = ()
    scales: Mapping[str, Scale] = field(default_factory=dict)
    sessions: int = 1


TWO_LOADS = (FixedRate(200, 10, 6.0), ClosedLoop(10, 6.0))
# Variations of studies that a page must show correctly.
VARIANTS = {
    "usual": Shape(requests=300),
    "no verdicts": Shape(requests=300, verdicts=False, blocks=3),
    "invalid": Shape(requests=300, invalid=("node-proxy",), failed_blocks=(3, 7)),
    "p999": Shape(requests=300, p999=True),
    "saturated": Shape(requests=300, loads=TWO_LOADS, saturated=((TWO_LOADS[1].label, "sidecar+mtls"),), blocks=5),
    "two baselines": Shape(
        requests=300,
        treatments=("none", "none-aa", "sidecar", "sidecar+mtls"),
        contrasts=(("sidecar", "none"), ("sidecar+mtls", "sidecar")),
    ),
    "no twin": Shape(requests=300, treatments=("none", "sidecar+mtls")),
}


def row_of(data: StudyData, treatment: str, response: str = "latency_p50_s") -> VerdictRow:
    """Return the one verdict of a treatment and response."""
    (row,) = [row for row in data.verdicts if (row.treatment, row.response) == (treatment, response)]
    return row


def study_data(root: Path, shape: Shape | None = None) -> StudyData:
    """Write a study's raw data below ``root`` and return it as it would be read back."""
    shape = shape or Shape()
    drawn = {"seed": shape.seed, "blocks": shape.blocks}
    study = building.study(
        shape.treatments,
        shape.blocks,
        shape.seed,
        title="The ambient architecture against no mesh",
        question="What do node proxies, and a pair of sidecars, add to latency, CPU and memory?",
        loads=shape.loads,
        primary=PRIMARY,
        contrasts=tuple(Contrast(*pair) for pair in shape.contrasts),
        scales=shape.scales,
        own_failures=shape.own_failures,
        sessions=shape.sessions,
        unit_sessions=6,
        options={"parameters": {"profile": "quick", **drawn, "keepalive": True, "treatments": ""}},
    )
    plan = make_plan(study)
    rng = np.random.default_rng(shape.seed)
    path = root / "data" / "studies" / study.name / f"20261121T024500Z-{plan.sha256[:8]}"
    levels = {
        (load.label, block): rng.normal(0, shape.noise) for load in shape.loads for block in range(1, shape.blocks + 1)
    }
    runs: list[RunRecord] = []
    for planned in plan.runs:
        level = levels[planned.load, planned.repetition] + 0.03 * planned.sequence / len(plan.runs)
        broken, *own = _flaws(shape, planned)
        repeated = broken or (any(own) and shape.own_failures == "repeated")
        for attempt in (1, 2) if repeated else (1,):
            runs.append(_run(path, plan, planned, shape, level, rng, attempt))
    table, rows = infer(plan, runs)
    return StudyData(path, plan, ENVIRONMENT, tuple(runs), table, tuple(rows) if shape.verdicts else ())


def changed(data: StudyData, wanted: Callable[[VerdictRow], bool] = lambda row: True, **more: Any) -> StudyData:
    """Return the study with the selected verdict rows changed."""
    rows = tuple(dataclasses.replace(row, **more) if wanted(row) else row for row in data.verdicts)
    return dataclasses.replace(data, verdicts=rows)


def asked(data: StudyData, **more: Any) -> StudyData:
    """Return the study as if its plan were different."""
    study = dataclasses.replace(data.plan.study, **more)
    return dataclasses.replace(data, plan=dataclasses.replace(data.plan, study=study))


@contextmanager
def rewritten(data: StudyData, run: RunRecord, *columns: pl.Expr) -> Iterator[pl.DataFrame]:
    """Replace the requests of a run with these columns inside the block."""
    path = data.run_folder(run) / "latency.parquet"
    kept = path.read_bytes()
    frame = pl.read_parquet(path).with_columns(*columns)
    frame.write_parquet(path)
    try:
        yield frame
    finally:
        path.write_bytes(kept)


ENVIRONMENT = {
    "cpu_model": "Example CPU @ 2.50GHz",
    "cpus": 2,
    "cpus_allowed": 2,
    "cpu_governor": "not reported",
    "hypervisor": True,
    "memory_bytes": 25276514304,
    "kernel": "6.1.0-example",
    "system": "Debian GNU/Linux 12 (bookworm)",
    "python": "3.11.7",
    "machine": "x86_64",
    "versions": {"fortio": "1.68.1", "envoy": "1.40.0/RELEASE", "meshtrial": "0.1.0"},
    "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": True},
    "lock_sha256": "ab" * 32,
}


def _flaws(shape: Shape, planned: PlannedRun) -> tuple[bool, bool, bool]:
    """Whether its proofs fail, its rate is missed, or its sends are late."""
    late = planned.repetition in shape.failed_blocks and planned.treatment == shape.treatments[-1]
    return planned.treatment in shape.invalid, (planned.load, planned.treatment) in shape.saturated, late


def _run(
    path: Path, plan: Plan, planned: PlannedRun, shape: Shape, level: float, rng: np.random.Generator, attempt: int
) -> RunRecord:
    broken, slow, late = _flaws(shape, planned)
    load = plan.load_of(planned)
    added, tail, cpu, pss = TREATMENTS.get(planned.treatment, (6e-4, 2.0, 300e-6, 40 << 20))
    n = shape.requests
    run_noise = math.exp(level + rng.normal(0, 0.03))
    latency = (1.1e-4 + added) * run_noise * np.exp(rng.normal(0, 0.22, n))
    latency += rng.exponential(4e-4 * tail, n) * (rng.random(n) < 0.03)
    latency += rng.exponential(4e-3 * tail, n) * (rng.random(n) < 0.003)
    scheduled = np.arange(n) / (load.asked_rps or 2000)
    lag = np.abs(rng.normal(0, 3e-5, n))
    frame = pl.DataFrame(
        {
            "slice": np.zeros(n, dtype=np.int32),
            "generator": np.zeros(n, dtype=np.int32),
            "thread": (np.arange(n) % load.connections).astype(np.int32),
            "iter": (np.arange(n) // load.connections).astype(np.int32),
            "scheduled_start_s": scheduled,
            "actual_start_s": scheduled + lag,
            "latency_s": latency,
            "corrected_latency_s": latency + lag,
            "ok": np.ones(n, dtype=bool),
            "code": np.full(n, 200, dtype=np.int32),
            "imputed": np.zeros(n, dtype=bool),
        }
    )
    folder = path / "runs" / (planned.run_id + ("" if attempt == 1 else f"-attempt{attempt}"))
    folder.mkdir(parents=True)
    frame.write_parquet(folder / "latency.parquet")

    usage = [
        ComponentUsage("app", "app", 6.0, 22e-6 * n * run_noise, 14 << 20, 0.0, 1, 4 * n),
        ComponentUsage("fortio", "load generator", 6.0, 31e-6 * n * run_noise, 21 << 20, None, 1, 6 * n),
    ]
    if cpu:
        names = (
            ("node proxy A", "node proxy B") if "node" in planned.treatment else ("client sidecar", "server sidecar")
        )
        usage += [
            ComponentUsage(name, "data plane", 6.0, cpu / 2 * n * run_noise, pss // 2, None, 1, 5 * n) for name in names
        ]
    held = 0.62 if slow else 0.9995
    responses = {
        f"latency_{q}_s": float(np.quantile(latency, level))
        for q, level in QUANTILES.items()
        if shape.p999 or q != "p999"
    }
    responses |= {f"latency_corrected_{q}_s": responses[f"latency_{q}_s"] + 3e-5 for q in ("p50", "p99")}
    responses |= {
        "requests": float(n),
        "achieved_ratio": held,
        "error_ratio": 0.0,
        "late_ratio": 0.004,
        "idle_before": 0.97,
        "machine_busy": 0.31,
        "data_plane_cpu_s_per_request": cpu * run_noise,
        "data_plane_memory_bytes": float(pss),
        "path_cpu_s_per_request": (22e-6 + cpu) * run_noise,
        "path_memory_bytes": float((14 << 20) + pss) * math.exp(rng.normal(0, 0.004)),
        "app_cpu_s_per_request": 22e-6 * run_noise,
        "load_generator_cpu_s_per_request": 31e-6 * run_noise,
    }
    gates = (
        GateResult("rate", held, 0.02, not slow, "asked 2000 rps, held 1240" if slow else ""),
        GateResult("errors", 0.0, 0.01, True),
        GateResult("late", 0.11 if late else 0.004, 0.05, not late, "11 % of sends were late" if late else ""),
        GateResult("generator CPU", 0.31, 0.70, True),
    )
    own, peer = "the app's own address", "spiffe://meshtrial/server"
    proofs = []
    for phase in ("before", "after"):
        if planned.treatment.startswith("none"):
            proofs.append(Proof("no proxy in the path", phase, True, own, own))
            continue
        seen = "HTTP 200" if broken else "connection reset"
        proofs.append(Proof("peer certificate", phase, True, peer, peer))
        proofs.append(Proof("plaintext refused", phase, not broken, "refused", seen))
    reasons = [f"check {g.name}: {g.message}" for g in gates if not g.passed]
    reasons += [f"check {p.name} ({p.phase}): expected {p.expected}, saw {p.observed}" for p in proofs if not p.passed]
    started = 1795229100.0 + 8.1 * planned.sequence
    ran = (("fortio", "load", "-qps", "2000"), "1.68.1", 0, started, 6.0)
    generator = GeneratorRecord(*ran, n, n, 0, load.asked_rps, load.asked_rps, 10, 10, 1e-5, {"200": n})
    return dataclasses.replace(
        building.record(plan, planned, responses, attempt=attempt),
        started_at="2026-11-21T02:45:00.000+00:00",
        finished_at="2026-11-21T02:45:08.000+00:00",
        start_unix_s=started + (attempt - 1) * 4,
        deploy_s=0.7,
        target="http://127.0.0.9:8080/",
        generators=(generator,),
        proofs=tuple(proofs),
        gates=gates,
        usage=tuple(usage),
        versions={"fortio": "1.68.1"} | ({"envoy": "1.40.0/RELEASE"} if cpu else {}),
        valid=not reasons,
        reasons=tuple(reasons),
    )
