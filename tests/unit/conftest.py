"""Small studies and records for several tests, and the number of examples per property."""

import os
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from meshtrial.design.load import FixedRate
from meshtrial.design.plan import Plan, PlannedRun, make_plan
from meshtrial.design.responses import default_margins
from meshtrial.design.study import Study, Treatment
from meshtrial.inference import read_study
from meshtrial.records import listing, packed
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import GateResult, Proof, RunRecord, VerdictRow
from meshtrial.records.store import StudyStore

pytest.register_assert_rewrite("refused", "waiting")  # so that it prints what it compared

# The same examples every time, no deadline on a busy machine, no folder left behind. HYPOTHESIS_PROFILE=many, by hand:
# more examples, and different ones each time.
settings.register_profile(
    "same", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("many", settings.get_profile("same"), derandomize=False, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def study(treatments=("none", "none-aa", "node-proxy"), blocks=6, seed=7, **more) -> Study:
    parsed = tuple(Treatment.parse(name) for name in treatments)
    fields = {
        "name": "ambient_vs_no_mesh",
        "title": "t",
        "question": "q",
        "backend": "local",
        "app": "echo",
        "treatments": parsed,
        "baseline": parsed[0],
        "loads": (FixedRate(100, 4, 2),),
        "primary": ("latency_p50_s",),
        "margins": default_margins(),
        "blocks": blocks,
        "seed": seed,
        "correction": "holm",
        "scales": {},
        "own_failures": "repeated",
        "deployment_mode": "sequential",
        "sessions": 1,
        "session_gap_s": 0.0,
        "stopping": {"rule": "fixed", "n": 10},
    }
    return Study(**(fields | more))


def record(plan: Plan, run: PlannedRun, responses: dict[str, float], *, attempt: int = 1, fail: str = "") -> RunRecord:
    """A run record; ``fail`` names a gate, or ``proof`` for a failed proof."""
    gates = (GateResult(fail, 0.5, 0.98, False, "too slow"),) if fail and fail != "proof" else ()
    proofs = (Proof("peer certificate", "before", fail != "proof", "seen", "seen or not"),)
    return RunRecord(
        **asdict(run),
        plan_sha256=plan.sha256,
        study=plan.study.name,
        backend="local",
        attempt=attempt,
        app="echo",
        started_at="2026-01-01T00:00:00.000+00:00",
        finished_at="2026-01-01T00:00:02.000+00:00",
        start_unix_s=1000.0 + 10 * run.sequence + attempt,
        deploy_s=0.1,
        target="http://127.0.0.1:1/echo",
        generators=(),
        proofs=proofs,
        gates=gates,
        usage=(),
        versions={},
        responses=responses,
        bounds={},
        valid=not fail,
        reasons=(f"check {fail}: too slow",) if fail else (),
    )


def verdict_row(**changes) -> VerdictRow:
    values = dict.fromkeys(field.name for field in fields(VerdictRow) if field.init)
    values |= {"study": "s", "load": "l", "response": "latency_p50_s", "label": "p50 latency", "unit": "ms"}
    values |= {"treatment": "t", "baseline": "none", "twin": False, "exploratory": False, "n_blocks": 10}
    values |= {"adjustment": "holm", "scale": "ratio", "counted": "blocks", "sessions": 1}
    values |= {"verdict": "slower", "qualifier": "", "method": "", "warnings": ()}
    return VerdictRow(**values | changes)


@pytest.fixture(scope="session")
def make_row():
    return verdict_row


@pytest.fixture
def small_plan() -> Plan:
    return make_plan(study())


@pytest.fixture(scope="session")
def make_record():
    return record


@pytest.fixture(scope="session")
def make_study():
    return study


@pytest.fixture(scope="session")
def sample(tmp_path_factory) -> Callable[[str], StudyData]:
    """Return a function that unpacks and reads a sample by its name, once per session; tests must not change it."""
    root = tmp_path_factory.mktemp("samples")

    @cache
    def read(name: str) -> StudyData:
        return read_study(StudyStore.open(packed.unpack(listing.SAMPLE / f"{name}.zip", root)))

    return read


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Figures are made with words and numbers but not rendered, which costs most of the time."""
    monkeypatch.setattr("meshtrial.report.svg.to_svg", lambda canvas, alt: "<svg></svg>")
