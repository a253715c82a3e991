"""The parts of a block are added, and the remainder of the whole is computed."""

import numpy as np
import pytest
from building import built
from refused import refused
from unit.inference.recorded import planned, study_of

from meshtrial.design.plan import PlannedRun
from meshtrial.design.studies.common import treatments_of
from meshtrial.design.studies.decomposition import chain_of
from meshtrial.errors import UsageError
from meshtrial.inference.decomposition import decompose
from meshtrial.records.dataset import StudyData
from meshtrial.report import tables

# Milliseconds that each part adds, and what all together cost beyond that.
ADDS = {"none": 0.1, "tcp-pair": 0.1, "sidecar": 0.2, "mtls": 0.05, "jwt": 0.08, "observability": 0.12}
TOGETHER = 0.1


def truth(treatment: str) -> float:
    plane, *features = treatment.removesuffix("-aa").split("+")
    stages = {"none": ["none"], "tcp-pair": ["none", "tcp-pair"], "sidecar": ["none", "tcp-pair", "sidecar"]}[plane]
    extra = TOGETHER if len(features) > 1 else 0.0
    return sum(ADDS[name] for name in (*stages, *features)) + extra


def recorded(make_record, noise: float = 0.002, lost: tuple[int, str] | None = None, surplus: float = 0.0) -> StudyData:
    plan, rng = planned("decomposition"), np.random.default_rng(5)

    def p50(run: PlannedRun) -> dict[str, float]:
        machine = 0.3 * run.repetition  # the same for the whole block, and not small
        surplus_ms = surplus if run.treatment.count("+") > 1 else 0.0
        return {"latency_p50_s": (truth(run.treatment) + surplus_ms + machine + rng.normal(0, noise)) / 1e3}

    runs = [make_record(plan, run, {}) for run in plan.runs]
    return study_of(plan, p50, lambda run: lost is None or (run.repetition, run.treatment) != lost, runs)


def test_parts_sum_whole_and_remainder_are_found_through_a_machine_that_wanders(make_record):
    found = decompose(recorded(make_record), "latency_p50_s")
    assert found.blocks == 10
    named = {piece.name: piece for piece in found.parts}
    assert list(named) == ["bytes through two proxies", "reading HTTP", "mtls", "jwt", "observability"]
    for name, key in (("bytes through two proxies", "tcp-pair"), ("reading HTTP", "sidecar"), ("jwt", "jwt")):
        piece = named[name]
        assert 1e3 * piece.low <= ADDS[key] <= 1e3 * piece.high
        assert 1e3 * piece.estimate == pytest.approx(ADDS[key], abs=0.004)
    assert 1e3 * found.together.estimate == pytest.approx(0.55, abs=0.006)
    assert 1e3 * found.whole.estimate == pytest.approx(0.65, abs=0.006)
    assert 1e3 * found.remainder.estimate == pytest.approx(TOGETHER, abs=0.008)
    assert found.remainder.low > 0
    assert found.remainder.p < 0.01


def test_that_parts_add_up_is_shown_or_it_is_said_that_it_is_not(make_record):
    # Within 0.1 ms: the parts of this truth cost 0.1 ms more together, and here as much less.
    even, apart = (recorded(make_record, surplus=by) for by in (-TOGETHER, 0.0))
    assert decompose(even, "latency_p50_s").p_adds_up == 0.5**10
    assert decompose(apart, "latency_p50_s").p_adds_up > 0.05
    texts = [tables.decomposition(data).text for data in (even, apart)]
    assert ["The parts add up" in text for text in texts] == [True, False]


def test_a_block_that_lacks_a_treatment_is_not_in_it(make_record):
    assert decompose(recorded(make_record, lost=(3, "sidecar")), "latency_p50_s").blocks == 9


def test_the_table_shows_parts_and_remainder_and_says_where_there_is_none(make_record):
    shown = tables.decomposition(recorded(make_record)).text.replace("\u00a0", " ")
    assert "Parts of p50 latency, 10 blocks" in shown
    assert "remainder" in shown
    assert "+0.100 ms" in shown or "+0.09" in shown or "+0.10" in shown
    assert "No decomposition: path_cpu_s_per_request: a decomposition needs two complete blocks; there are 0" in shown


WHOLE = "none, tcp-pair, sidecar, sidecar+mtls, sidecar+jwt, sidecar+mtls+jwt"


@pytest.mark.parametrize(
    "treatments",
    [
        "none,sidecar,sidecar+mtls,sidecar+jwt,sidecar+mtls+jwt",
        "none,tcp-pair,sidecar,sidecar+mtls,sidecar+mtls+jwt",
        "none,tcp-pair,sidecar,sidecar+mtls",
        f"{WHOLE.replace(' ', '')},node-proxy",
    ],
)
def test_what_does_not_decompose_is_refused(treatments):
    with refused(UsageError):
        chain_of(treatments_of(treatments, ()))


def test_it_is_for_one_machine_and_can_call_its_contrasts():
    with refused(UsageError):
        built("decomposition", backend="kubernetes")
    study = built("decomposition")
    assert 2 * 0.5 ** (study.blocks - 2) * len(study.all_contrasts()) <= study.alpha
