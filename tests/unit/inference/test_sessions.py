"""The effect by session and the prediction of another one, on values that a hand can check."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshtrial.design.plan import make_plan
from meshtrial.inference import infer
from meshtrial.inference.sessions import session_effects
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import Part, described


@pytest.fixture
def recorded(make_study, make_record):
    """A study whose node proxy adds these amounts in its blocks to a baseline of 1 ms."""

    def made(sessions: int, added_ms, **study) -> StudyData:
        plan = make_plan(make_study(blocks=len(added_ms), sessions=sessions, **study))
        runs = []
        for run in plan.runs:
            extra = added_ms[run.repetition - 1] if run.treatment == "node-proxy" else 0.0
            runs.append(make_record(plan, run, {"latency_p50_s": 1e-3 * (1 + extra)}))
        table, rows = infer(plan, runs)
        return StudyData(Path("nowhere"), plan, {}, tuple(runs), table, tuple(rows))

    return made


def row_of(data: StudyData):
    return next(row for row in data.verdicts if (row.treatment, row.response) == ("node-proxy", "latency_p50_s"))


def test_a_sessions_effect_is_the_mean_of_its_block_differences(recorded):
    data = recorded(3, [0.1, 0.3, 0.2, 0.2, 0.5, 0.1])
    effects = session_effects(data, row_of(data), by_difference=True)
    assert effects.estimates == pytest.approx((2e-4, 2e-4, 3e-4))
    assert effects.blocks == (2, 2, 2)
    # mean 7/30 ms, s = 0.1/sqrt(3) ms, t(2) = 4.3027, sqrt(1 + 1/3)
    half = 4.30265 * 1e-4 / math.sqrt(3) * math.sqrt(4 / 3)
    assert (effects.low, effects.high) == pytest.approx((7e-3 / 30 - half, 7e-3 / 30 + half), rel=1e-4)


def test_ratios_are_means_of_logarithms(recorded):
    data = recorded(3, [0.0, 3.0, 1.0, 1.0, 1.0, 1.0])
    effects = session_effects(data, row_of(data), by_difference=False)
    assert effects.estimates == pytest.approx((2.0, 2.0, 2.0))  # sqrt(1 * 4), and 2
    assert (effects.low, effects.high) == pytest.approx((2.0, 2.0))


def test_two_sessions_predict_nothing(recorded):
    effects = session_effects(data := recorded(2, [0.1] * 6), row_of(data), by_difference=True)
    assert (len(effects.estimates), effects.low, effects.high) == (2, None, None)


def test_the_prediction_of_a_further_session_holds_it(recorded):
    rng = np.random.default_rng(1)
    added = np.repeat(rng.normal(0.4, 0.05, 5), 2)
    data = recorded(4, list(added[:8]))
    effects = session_effects(data, row_of(data), by_difference=True)
    assert effects.low < 1e-3 * added[8] < effects.high


def test_six_declared_sessions_are_the_unit_and_fewer_are_not(recorded):
    added = [0.1, 0.12, 0.2, 0.22, 0.3, 0.32, 0.4, 0.42, 0.5, 0.52, 0.6, 0.62]
    six, five = (row_of(recorded(count, added, unit_sessions=6)) for count in (6, 5))
    assert (six.counted, six.n_blocks, six.p) == ("sessions", 6, 2 / 2**6)
    assert (five.counted, five.n_blocks) == ("blocks", 12)
    assert row_of(recorded(6, added)).counted == "blocks"  # a plan that does not declare this number


def test_places_of_a_merged_study_are_sessions(recorded):
    data = recorded(1, [0.1, 0.3, 0.2, 0.2, 0.5, 0.1])
    listed = [{"part": described(Part(number, 3), data.plan)} for number in (1, 2, 3)]
    merged = replace(data, environment={"parts": listed})
    effects = session_effects(merged, row_of(data), by_difference=True)
    assert effects.estimates == pytest.approx((2e-4, 2e-4, 3e-4))
