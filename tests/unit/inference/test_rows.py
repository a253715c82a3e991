"""Rows of one response whose contrasts lie on two scales: a parent that has the part, a baseline that lacks it."""

import numpy as np
import pytest
from unit.inference.recorded import rows_of, study_of

from meshtrial import stats
from meshtrial.design.plan import make_plan
from meshtrial.design.responses import REGISTRY
from meshtrial.design.study import Contrast
from meshtrial.inference.rows import verdict_row
from meshtrial.margin import Margin
from meshtrial.vocabulary import VerdictLabel

CPU = "app_cpu_cores"

TREATMENTS = ("none", "none-aa", "sidecar", "sidecar+mtls")
COST = {"none": 0.0, "none-aa": 0.0, "sidecar": 4e-4, "sidecar+mtls": 6e-4}


@pytest.fixture
def rows(make_study):
    contrasts = (
        Contrast("sidecar", "none"),
        Contrast("sidecar+mtls", "sidecar"),
        Contrast("sidecar+mtls", "none"),
    )
    plan = make_plan(make_study(TREATMENTS, blocks=8, contrasts=contrasts))
    rng = np.random.default_rng(5)
    name = "data_plane_cpu_s_per_request"
    data = study_of(plan, lambda run: {name: COST[run.treatment] * float(np.exp(rng.normal(0, 0.02)))})
    return {(row.treatment, row.baseline): row for row in rows_of(data) if row.response == name}


def test_a_part_that_the_baseline_lacks_is_compared_as_a_difference(rows):
    row = rows["sidecar", "none"]
    assert row.ratio is None
    assert row.difference == pytest.approx(4e-4, rel=0.05)
    assert row.verdict == "more"


def test_a_part_that_the_parent_has_is_compared_as_a_ratio(rows):
    row = rows["sidecar+mtls", "sidecar"]
    assert row.ratio == pytest.approx(1.5, rel=0.05)
    assert row.noise_floor is None  # the twin lacks the part too, so it shows no noise


def test_two_treatments_without_the_part_are_no_a_a_test(rows):
    assert not any(row.twin for row in rows.values())


@pytest.mark.parametrize("spoilt", TREATMENTS[:3])
def test_one_zero_among_sizes_leaves_no_ratio_to_it_and_the_others_as_they_are(make_study, spoilt):
    plan, rng = make_plan(make_study(TREATMENTS, blocks=8)), np.random.default_rng(5)
    cost = {"none": 0.2, "none-aa": 0.2, "sidecar": 0.4, "sidecar+mtls": 0.6}

    def values(run):
        zero = run.treatment == spoilt and run.repetition == 3
        return {CPU: 0.0 if zero else cost[run.treatment] * float(np.exp(rng.normal(0, 0.02)))}

    rows = {row.treatment: row for row in rows_of(study_of(plan, values)) if row.response == CPU}
    assert rows.keys() == {*TREATMENTS[1:]}
    for treatment, row in rows.items():
        assert (row.ratio is None) == row.by_difference == (spoilt in (treatment, "none"))
    assert rows["sidecar+mtls"].verdict is VerdictLabel.MORE


def test_a_baseline_that_ranks_worst_leaves_a_ratio_without_a_size():
    rng = np.random.default_rng(5)
    values = {name: np.exp(rng.normal(0, 0.02, 8)) for name in ("none", "sidecar")}
    values["none"][:7] = np.inf
    (result,) = stats.analyse_family(values, stats.Family("none", margin=Margin(0.05)))
    row = verdict_row(result, REGISTRY["latency_p50_s"], {}, study="", load="", exploratory=False)
    assert (row.verdict, row.ratio, row.difference) == (VerdictLabel.FASTER, None, None)


def test_a_treatment_of_which_every_run_left_ranks_worst_is_not_compared(make_study):
    plan, rng = make_plan(make_study(TREATMENTS[:3], blocks=8)), np.random.default_rng(5)
    size = {"none": np.inf, "none-aa": 1.0, "sidecar": 1.0}
    data = study_of(plan, lambda run: {CPU: size[run.treatment] * float(np.exp(rng.normal(0, 0.02)))})
    assert {row.verdict for row in rows_of(data) if row.response == CPU} == {VerdictLabel.INVALID}
