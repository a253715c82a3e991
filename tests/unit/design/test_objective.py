"""Objectives are read as people write them, and refused by name."""

from __future__ import annotations

import pytest
from refused import refused

from meshtrial.design.objective import Objective
from meshtrial.design.parameters import read_parameters
from meshtrial.design.studies import study_module
from meshtrial.design.study import Load
from meshtrial.errors import UsageError
from meshtrial.report import wording


@pytest.mark.parametrize(
    ("text", "q", "limit_s", "again"),
    [
        ("p99<10ms", 0.99, 0.010, "p99<10ms"),
        (" p99.9 < 0.5 s", 0.999, 0.5, "p99.9<500ms"),
        ("p50<250us", 0.5, 0.00025, "p50<0.25ms"),
    ],
)
def test_it_is_read_and_written(text, q, limit_s, again):
    found = Objective.parse(text)
    assert (round(found.q, 9), round(found.limit_s, 12)) == (q, limit_s)
    assert found.text == again
    assert Objective.parse(again) == found


@pytest.mark.parametrize("text", ["p99", "p99<10", "p99>10ms", "p100<1ms", "p10<1ms", "p99<0ms", "mean<1ms", ""])
def test_what_is_none_is_refused(text):
    with refused(UsageError, f"objective = {text!r}: allowed is a percentile from p50 below a time, e.g. p99<10ms"):
        Objective.parse(text)


def test_a_search_carries_it_and_nothing_else_can():
    load = Load(0, 4, 1, search=True, objective="p99 < 10ms")
    assert load.objective == "p99<10ms"
    assert load.label == "capacity-p99-under-10ms-4c"
    assert wording.load_text(load) == (
        "the highest rate kept with p99 below 10\N{NO-BREAK SPACE}ms, searched over 4 connections"
    )
    with refused(UsageError, "objective = 'p99<10ms': is for a capacity search"):
        Load(100, 4, 1, objective="p99<10ms")


def test_the_mesh_comparison_takes_it():
    module = study_module("mesh_comparison")
    study = module.build(read_parameters(module.PARAMETERS, {"objective": "p99<10ms"}))
    assert [load.objective for load in study.loads] == ["", "", "p99<10ms"]
    with refused(UsageError, "objective = 'p99<10ms': is for the capacity search; leave capacity on"):
        module.build(read_parameters(module.PARAMETERS, {"objective": "p99<10ms", "capacity": False}))
    with refused(UsageError, names=["objective", "fast"]):
        module.build(read_parameters(module.PARAMETERS, {"objective": "fast"}))
