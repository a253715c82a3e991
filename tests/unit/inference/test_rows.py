"""Rows of one response whose contrasts lie on two scales: a parent that has the part, a baseline that lacks it."""

import numpy as np
import pytest
from unit.inference.recorded import rows_of, study_of

from meshtrial.design.plan import make_plan
from meshtrial.design.study import Contrast

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
    assert row.noise_floor is None  # the twin lacks the part too and tells nothing of its noise


def test_two_treatments_without_the_part_are_no_a_a_test(rows):
    assert not any(row.twin for row in rows.values())
