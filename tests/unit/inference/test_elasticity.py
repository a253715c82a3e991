"""How the added amount grows with the block's level, in studies with constant or proportional cost."""

from pathlib import Path

import numpy as np
import pytest

from meshtrial.design.plan import make_plan
from meshtrial.inference import infer
from meshtrial.inference.elasticity import elasticity
from meshtrial.records.dataset import StudyData

NAMES = ("none", "none-aa", "sidecar", "node-proxy")


@pytest.fixture
def moving(make_study, make_record):
    """A study on a machine whose level moves by 20 %, with the value of each treatment at a level."""

    def made(cost, noise=0.002, blocks=10) -> StudyData:
        rng = np.random.default_rng(2)
        plan = make_plan(make_study(blocks=blocks, treatments=NAMES))
        levels = np.exp(rng.normal(0, 0.2, blocks))
        runs = []
        for run in plan.runs:
            level = levels[run.repetition - 1]
            value = level + (0.0 if run.treatment.startswith("none") else cost(level))
            runs.append(make_record(plan, run, {"latency_p50_s": 1e-3 * value * np.exp(rng.normal(0, noise))}))
        table, rows = infer(plan, runs)
        return StudyData(Path("nowhere"), plan, {}, tuple(runs), table, tuple(rows))

    return made


@pytest.mark.parametrize(("cost", "slope"), [(lambda level: 2.0, 0.0), (lambda level: 2.0 * level, 1.0)])
def test_a_constant_cost_has_none_and_a_proportional_one_has_one(moving, cost, slope):
    data = moving(cost)
    found = elasticity(data, data.plan.study.loads[0].label, "latency_p50_s")
    assert found.low < slope < found.high
    # The level of a sidecar's neutral treatments includes the node proxy, whose constant cost makes it move less.
    assert found.slope == pytest.approx(slope, abs=0.1)
    assert (found.contrasts, found.blocks) == (2, 10)


@pytest.mark.parametrize(
    ("cost", "noise", "blocks"),
    [
        (lambda level: 0.2 * level, 0.002, 10),  # the effect is small
        (lambda level: 2.0 * level, 0.5, 10),  # too noisy to tell
        (lambda level: 2.0 * level, 0.002, 7),  # few blocks
    ],
)
def test_what_cannot_be_estimated_is_not(moving, cost, noise, blocks):
    data = moving(cost, noise, blocks)
    assert elasticity(data, data.plan.study.loads[0].label, "latency_p50_s") is None
