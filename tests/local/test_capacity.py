"""Capacity, saturation and the generator's own limit, on real processes."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from meshtrial.design.parameters import read_parameters
from meshtrial.design.plan import make_plan
from meshtrial.design.studies import study_module
from meshtrial.design.study import Gates, Load, Study, Treatment
from meshtrial.inference import analyse
from meshtrial.load import fortio, ingest
from meshtrial.load.accesslog import read_access_log
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import StudyStore
from meshtrial.records.tables import include
from meshtrial.report import figures, tables
from meshtrial.run import capacity
from meshtrial.run.runner import execute
from meshtrial.testbed.local.testbed import LocalTestbed

SHORT = {"duration_s": 0.7, "warmup_s": 0.2, "blocks": 2, "connections": 4}


def study_of(name: str, **given: object) -> Study:
    module = study_module(name)
    return module.build(read_parameters(module.PARAMETERS, given))


def recorded(study: Study) -> StudyData:
    plan = make_plan(study)
    store = StudyStore.create(Path(os.environ["MESHTRIAL_DATA"]), plan, {})
    execute(store, LocalTestbed(), lambda _: None)
    return analyse(store)


@pytest.mark.beside
def test_a_search_finishes_and_is_reported():
    study = study_of("mesh_comparison", **SHORT | {"treatments": "none,node-proxy", "rates": "200"})
    search = tuple(load for load in study.loads if load.search)
    treatments = tuple(treatment for treatment in study.treatments if not treatment.twin)
    # Loose gates: this is about the search, on a machine that other tests may share.
    gates = Gates(late_ratio=0.9, rate_tolerance=0.2, generator_cpu=0.999, foreign_load=1.0)
    data = recorded(replace(study, loads=search, treatments=treatments, blocks=1, gates=gates))
    searches = [run for run in data.runs if run.attempt == 1]
    assert [run.load for run in searches] == ["capacity-4c"] * 2
    for run in searches:
        assert run.valid, run.reasons
        found = run.extra["search"]
        stages = [step["stage"] for step in found["steps"]]
        assert stages[0] == "closed loop"
        assert stages[-1] == "confirm"
        assert {"latency_p50_s", "latency_p99_s", "generator_cpu", "failed"} <= set(found["steps"][0])
        assert len(run.generators) == 2
        # An open rate cannot be kept above what a closed loop reaches, but a neighbour may have slowed the latter.
        assert 0 < run.responses["capacity_rps"] < 3 * run.responses["closed_loop_rps"]
        assert run.responses["path_switches_per_request"] > 0
        assert not [name for name in run.responses if name.startswith("latency_")]
        assert not [proof for proof in run.proofs if not proof.passed]
    responses = data.table.filter(pl.col("load") == "capacity-4c")["response"].to_list()
    assert {"capacity_rps", "closed_loop_rps"} <= set(responses)
    assert "apacity" in figures.capacity(data).alt
    assert "cores per" in tables.cost(data)._repr_html_()
    assert "searched" in repr(tables.design(data))


def test_a_level_that_cannot_be_held_is_saturated_not_slow():
    # A pair of sidecars with TLS holds about 13 000 rps on a whole machine; none holds twice that.
    study = study_of(
        "mesh_comparison", **SHORT | {"treatments": "none,sidecar+mtls", "rates": "20000", "capacity": False}
    )
    data = recorded(replace(study, gates=Gates(generator_cpu=0.999)))
    inclusion = include(data.plan, data.runs, "20000rps-4c")
    assert inclusion.excluded["sidecar+mtls"] == "saturated"
    rows = [row for row in data.verdicts if row.treatment == "sidecar+mtls" and row.response == "latency_p50_s"]
    assert [(row.verdict, row.ratio) for row in rows] == [("saturated", None)]
    assert "saturated" in repr(tables.verdict_sentence(data))


@pytest.mark.beside
def test_a_generator_at_its_limit_fails_its_gate_and_the_report_says_which():
    study = study_of("mesh_comparison", **SHORT | {"treatments": "none,node-proxy", "rates": "300", "capacity": False})
    data = recorded(replace(study, gates=Gates(generator_cpu=1e-4)))
    for run in data.runs:
        assert not run.valid
        assert any("gate generator CPU: the load generator used" in reason for reason in run.reasons)
    inclusion = include(data.plan, data.runs, "300rps-4c")
    assert set(inclusion.excluded.values()) == {"invalid"}
    assert "the load generator used" in repr(tables.validity(data))


def test_two_generators_merged_are_their_concatenated_requests(tmp_path):
    load = Load(400, 4, 1.0, generators=2)
    deployment = LocalTestbed().deploy(Treatment.parse("none"), load, "echo")
    try:
        outputs = deployment.generate(fortio.calls(load, "measure"), tmp_path, 30)
    finally:
        deployment.close()
    logs = [read_access_log(output.access_log_path) for output in outputs]
    # A machine that stalls at the end costs sends that are not made up.
    assert all(180 <= log.height <= 200 for log in logs)
    latencies = np.concatenate([log["latency_s"].to_numpy() for log in logs])
    measured = ingest.ingest(outputs, load, 1)
    for q, share in {"p50": 0.5, "p90": 0.9, "p99": 0.99}.items():
        assert measured.responses[f"latency_{q}_s"] == np.quantile(latencies, share)


@pytest.mark.skipif(shutil.which("ruby") is None, reason="needs ruby with webrick")
def test_the_missing_nodelay_of_webrick_is_a_material_difference_between_the_apps():
    study = study_of(
        "ambient_vs_no_mesh",
        treatments="none@details,none@details-nodelay",
        closed_loop=True,
        connections=2,
        duration_s=1.2,
        warmup_s=0.2,
        blocks=6,
        primary="p50",
    )
    # At 45 ms two connections send some fifty requests in that time: enough for a median, not for the usual floor.
    data = recorded(replace(study, gates=Gates(sample_floor=20)))
    (row,) = [row for row in data.verdicts if row.response == "latency_p50_s" and not row.twin]
    assert (row.treatment, row.baseline) == ("none@details-nodelay", "none@details")
    assert (row.verdict, row.qualifier) == ("faster", "material")
    assert row.baseline_value == pytest.approx(0.042, abs=0.02)
    assert "faster at p50" in repr(tables.verdict_sentence(data))


def test_a_known_delay_says_the_capacity_and_an_objective_above_it_is_kept(tmp_path):
    def searched(objective: str) -> capacity.Found:
        folder = tmp_path / (objective.replace("<", "-") or "none")
        folder.mkdir()
        load = Load(0, 4, 0.3, 0.1, search=True, objective=objective)
        testbed = LocalTestbed()
        deployment = testbed.deploy(Treatment.parse("relay+delay-2000us"), load, "echo")
        try:
            return capacity.find(deployment, testbed, load, Gates(foreign_load=1.0, generator_cpu=1.0), folder)
        finally:
            deployment.close()

    # Four connections that each wait 2 ms for an answer: late sends behind answers end no search.
    plain = searched("")
    assert 0.6 * plain.closed_rps < plain.load.rps < min(2000, 1.6 * plain.closed_rps)
    assert plain.load.connections == 4
    kept = searched("p50<20ms")
    # Four connections that each wait 2 ms for an answer carry 2000 a second at the most.
    assert 100 < kept.load.rps < 2200
    assert kept.confirmed.gates[-1].name == "objective"
