"""The headline of a scale-out study gives the cost of endpoints with an interval."""

import re
from dataclasses import replace

import numpy as np
import pytest
from building import built
from unit.inference.recorded import planned, study_of

from meshtrial.report import tables
from meshtrial.report.tables.growth import growth_lines, growth_notes

CORES, BYTES = 0.004, 30 * 2**20  # a sidecar


def recorded(make_row, blocks: int = 6, **given):
    plan, rng = planned("scale_out", blocks=blocks, **given), np.random.default_rng(1)

    def responses(run):
        proxies = 3 * plan.load_of(run).replicas * run.treatment.startswith("sidecar")
        truth = {"total_cpu_cores": 0.2 + CORES * proxies, "total_memory_bytes": 2e8 + BYTES * proxies}
        return {name: value * float(np.exp(rng.normal(0, 0.02))) for name, value in truth.items()}

    return replace(study_of(plan, responses), verdicts=(make_row(load=plan.study.loads[0].label),))


def test_the_headline_says_what_a_hundred_endpoints_cost(make_row):
    data = recorded(make_row)
    (sentence,) = tables.headlines(data)
    assert sentence.startswith("From 30 to 300 endpoints at 200 requests per second, every 100 cost sidecar+mtls +0.3")
    assert sentence.endswith(" more than none.")
    assert re.search(r"cores \(\+0\.3.*MiB \(\+[23]", sentence.replace("\u00a0", " "))
    (note,) = growth_notes(data)
    assert "over 6 blocks at 96.9" in note
    assert "(exact signed-rank over blocks)" in note


def test_few_blocks_say_that_a_model_stands_in_and_a_rate_that_grows_with_the_size_is_said(make_row):
    (note,) = growth_notes(recorded(make_row, blocks=3))
    assert "over 3 blocks at 95" in note
    assert "(t over blocks, model-based, provisional)" in note
    (sentence,) = tables.headlines(recorded(make_row, rate_per_replica=20))
    assert "at a rate that grows with them" in sentence


def test_an_unfinished_study_and_studies_of_one_size_have_no_headline_of_growth(make_row, data):
    unfinished = recorded(make_row)
    rows = tuple(replace(row, verdict="provisional") for row in unfinished.verdicts)
    assert "every 100 cost" not in tables.headline(replace(unfinished, verdicts=rows))
    assert growth_lines(data) == []
    assert growth_notes(data) == []


@pytest.mark.parametrize("profile", ["quick", "standard", "full"])
def test_every_profile_can_call_its_contrasts(profile):
    study = built("scale_out", profile=profile)
    contrasts = len(study.all_contrasts())
    assert 2 * 0.5**study.blocks * contrasts <= study.alpha
    assert len({load.replicas for load in study.loads}) >= 3
