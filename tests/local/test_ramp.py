"""A rate that rises, on real processes: every step is sent, read and drawn."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from meshtrial.design.parameters import read_parameters
from meshtrial.design.plan import make_plan
from meshtrial.design.studies import study_module
from meshtrial.design.study import Gates
from meshtrial.inference import analyse
from meshtrial.records.store import StudyStore
from meshtrial.report import figures
from meshtrial.run.runner import execute
from meshtrial.testbed.local.testbed import LocalTestbed

pytestmark = pytest.mark.beside


def test_a_rate_rises_to_what_a_delay_of_known_size_lets_through():
    # Four connections that each wait 20 ms for an answer carry 200 a second at the most.
    given = {"treatments": "none,relay+delay-20000us", "rps": 400, "ramp": 4, "duration_s": 4, "warmup_s": 0.1}
    module = study_module("ambient_vs_no_mesh")
    study = module.build(read_parameters(module.PARAMETERS, {**given, "connections": 4}))
    treatments = tuple(treatment for treatment in study.treatments if not treatment.twin)
    # Other tests may run beside it; and this is about the steps, not about the machine.
    gates = Gates(foreign_load=1.0, generator_cpu=1.0, rate_tolerance=0.1)
    study = replace(study, treatments=treatments, blocks=1, gates=gates)
    store = StudyStore.create(Path(os.environ["MESHTRIAL_DATA"]), make_plan(study), {})
    execute(store, LocalTestbed(), lambda _: None)
    data = analyse(store)
    runs = {run.treatment: run for run in data.runs}
    assert all(run.valid for run in data.runs), [run.reasons for run in data.runs]
    assert [step["asked_rps"] for step in runs["none"].extra["ramp"]] == [100, 200, 300, 400]
    slow = runs["relay+delay-20000us"]
    assert slow.responses["ramp_kept_rps"] in (100, 200)
    assert slow.extra["ramp"][-1]["achieved_rps"] < 300
    assert runs["none"].responses["ramp_kept_rps"] > slow.responses["ramp_kept_rps"]
    drawn = figures.ramp(data)
    assert drawn.table.height == 8
    assert "relay+delay-20000us achieved" in drawn.alt
    assert "<figure" in drawn._repr_html_()
