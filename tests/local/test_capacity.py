"""Capacity, saturation and the generator's own limit, on real processes."""

import math
import shutil
from dataclasses import replace

import pytest
from local.studies import PATIENT, closed_loop_rps, recorded, study_of, without_twin

from meshtrial.design.load import CapacitySearch
from meshtrial.design.study import Treatment
from meshtrial.records.tables import include
from meshtrial.report import figures, tables
from meshtrial.run import capacity
from meshtrial.testbed.local.testbed import LocalTestbed

SHORT = {"duration_s": 0.7, "warmup_s": 0.2, "blocks": 2, "connections": 4}
# A sidecar that delays each request: four connections that wait 20 ms for an answer carry at most 200 per second.
SLOW = """
http_filters:
- name: envoy.filters.http.fault
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault
    delay: {fixed_delay: 0.02s, percentage: {numerator: 100}}
"""


def test_a_search_finishes_and_is_reported():
    # Four connections that each wait for an answer carry at most 200 and 800 per second.
    given = SHORT | {"treatments": "relay+delay-20000us,relay+delay-5000us", "rates": "100"}
    study = study_of("mesh_comparison", given, replace(PATIENT, rate_tolerance=0.2), blocks=1)
    study = without_twin(replace(study, loads=tuple(load for load in study.loads if isinstance(load, CapacitySearch))))
    data = recorded(study)
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
        assert run.responses["closed_loop_rps"] == found["steps"][0]["achieved_rps"]
        assert run.responses["capacity_rps"] == found["steps"][-1]["rate_rps"]
        most = {"relay+delay-20000us": 200, "relay+delay-5000us": 800}[run.treatment]
        assert 0 < run.responses["capacity_rps"] < 1.4 * most
        assert run.responses["path_switches_per_request"] > 0
        assert not [name for name in run.responses if name.startswith("latency_")]
        assert not [proof for proof in run.proofs if not proof.passed]
    responses = data.table.filter(load="capacity-4c")["response"].to_list()
    assert {"capacity_rps", "closed_loop_rps"} <= set(responses)
    assert figures.capacity(data).table.height > 0
    assert {run.treatment for run in searches} <= set(tables.cost(data).text.split())


def test_a_level_that_cannot_be_held_is_counted_and_not_slow(tmp_path):
    slow = tmp_path / "slow.yaml"
    slow.write_text(SLOW)
    given = SHORT | {"treatments": "none,sidecar@slow+mtls", "versions": f"slow={slow}", "capacity": False}
    at_any = study_of("mesh_comparison", given | {"rates": "100"})
    held = closed_loop_rps(at_any, "none", tmp_path / "none", 4)
    not_held = closed_loop_rps(at_any, "sidecar@slow+mtls", tmp_path / "slow", 4)
    # Far above one side's capacity, and far below the other's.
    rate = round(math.sqrt(held * not_held))
    assert rate > 2 * not_held
    data = recorded(study_of("mesh_comparison", given | {"rates": str(rate)}, replace(PATIENT, rate_tolerance=0.3)))
    inclusion = include(data.plan, data.runs, f"{rate}rps-4c")
    assert inclusion.excluded == {"sidecar@slow+mtls": "saturated"}
    rows = [row for row in data.verdicts if row.treatment == "sidecar@slow+mtls" and row.response == "latency_p50_s"]
    # Two blocks do not show that the baseline holds the rate more often.
    assert [(row.verdict, row.ratio) for row in rows] == [("invalid", None)]
    blocks = data.plan.study.blocks
    assert f"did not reach the requested rate in {blocks} of {blocks} blocks" in repr(tables.verdict_sentence(data))


def test_a_generator_at_its_limit_fails_its_gate_and_the_report_says_which():
    given = SHORT | {"treatments": "none,node-proxy", "rates": "300", "capacity": False}
    data = recorded(study_of("mesh_comparison", given, replace(PATIENT, generator_cpu=1e-4)))
    for run in data.runs:
        assert [gate.name for gate in run.gates if not gate.passed] == ["generator CPU"]
        assert not run.valid
    inclusion = include(data.plan, data.runs, "300rps-4c")
    assert set(inclusion.excluded.values()) == {"invalid"}
    last = [run for run in data.runs if run.attempt == 2]
    assert len(last) == len(data.plan.runs)
    for run in last:  # the first attempt's CPU use is recorded separately
        (reason,) = run.reasons
        assert reason.partition(";")[0] in repr(tables.validity(data))


@pytest.mark.skipif(shutil.which("ruby") is None, reason="needs ruby with webrick")
def test_the_missing_nodelay_of_webrick_is_a_material_difference_between_the_apps():
    given = {"treatments": "none@details,none@details-nodelay", "closed_loop": True, "connections": 2}
    given |= {"duration_s": 1.2, "warmup_s": 0.2, "blocks": 6, "primary": "p50"}
    data = recorded(without_twin(study_of("ambient_vs_no_mesh", given)))
    (row,) = [row for row in data.verdicts if row.response == "latency_p50_s" and not row.twin]
    assert (row.treatment, row.baseline) == ("none@details-nodelay", "none@details")
    assert (row.verdict, row.qualifier) == ("faster", "material")
    # The kernel delays an acknowledgement by 40 ms, whatever the machine.
    assert row.baseline_value > 0.035
    assert "faster at p50" in repr(tables.verdict_sentence(data))


def test_a_known_delay_says_the_capacity_and_an_objective_above_it_is_kept(tmp_path):
    # Four connections that each wait 20 ms for an answer carry at most 200 per second.
    most = 200

    def searched(objective: str) -> capacity.Capacity:
        folder = tmp_path / (objective.replace("<", "-") or "none")
        folder.mkdir()
        load = CapacitySearch(4, 0.6, 0.1, objective=objective)
        testbed = LocalTestbed()
        deployment = testbed.deploy(Treatment.parse("relay+delay-20000us"), load, "echo")
        try:
            return capacity.Search(deployment, testbed, load, replace(PATIENT, rate_tolerance=0.1), folder).run()
        finally:
            deployment.close()

    plain = searched("")
    assert plain.closed_rps <= most
    # A rate is kept within 10 %, and a step of 0.6 s may end one request per connection too late.
    assert 0.4 * plain.closed_rps < plain.load.rps < 1.2 * most
    assert plain.load.connections == 4
    kept = searched("p50<2s")
    assert 0 < kept.load.rps < 1.2 * most
    assert kept.confirmed.gates[-1].name == "objective"
    assert kept.confirmed.gates[-1].passed
