"""Plans and records of schema 1 keep their meaning and seal, with today's names."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from meshtrial.design.load import CapacitySearch, ChangesUnderLoad, ClosedLoop, FixedRate, Ramp, RestartUnderLoad
from meshtrial.design.migration import current_responses, current_settings, run_of_1, study_of_1
from meshtrial.design.parameters import with_design
from meshtrial.design.plan import Plan, digest
from meshtrial.design.responses import REGISTRY, response
from meshtrial.errors import UsageError
from meshtrial.records.listing import samples
from meshtrial.records.schema import RunRecord

KINDS = {
    "calibration": {FixedRate},
    "decomposition": {FixedRate},
    "mesh_comparison": {FixedRate, CapacitySearch},
    "propagation": {ChangesUnderLoad},
    "rollout": {RestartUnderLoad},
    "scale_out": {FixedRate},
}
# Fields that not every kind has; otherwise 0, false or empty.
NEUTRAL = {"slices": 1, "arrivals": "uniform"}


def recorded_in(sample: Path, name: str) -> dict[str, Any]:
    """Return the content of the first file with this name."""
    if sample.is_dir():
        return json.loads(min(sample.rglob(name)).read_text())
    with tarfile.open(sample) as packed:
        return json.load(packed.extractfile(min(path for path in packed.getnames() if path.endswith(f"/{name}"))))


@pytest.fixture(params=[pytest.param(path, id=name) for name, path in samples().items()])
def sample(request) -> Path:
    return request.param


def test_a_recorded_plan_keeps_its_seal_its_loads_and_its_order(sample):
    recorded = recorded_in(sample, "plan.json")
    plan = Plan.from_dict(recorded)
    assert plan.sha256 == recorded["sha256"] == digest({k: v for k, v in recorded.items() if k != "sha256"})
    assert [load.label for load in plan.study.loads] == [load["label"] for load in recorded["study"]["loads"]]
    assert [run.run_id for run in plan.runs] == [run["run_id"] for run in recorded["runs"]]
    for load, was in zip(plan.study.loads, recorded["study"]["loads"], strict=True):
        now = load.to_dict() | {"ramp": getattr(load, "steps", 0), "search": isinstance(load, CapacitySearch)}
        # A missing field of a kind gets the value that meant the same.
        assert {name: json.loads(json.dumps(now.get(name, NEUTRAL.get(name, 0)))) for name in was} == {
            name: value or 0 if name not in now else value for name, value in was.items()
        }
    kinds = {type(load) for load in plan.study.loads}
    assert kinds <= KINDS.get(plan.study.name, {FixedRate, ClosedLoop, Ramp})


def test_what_a_recorded_plan_left_out_is_what_was_in_force(sample):
    recorded = recorded_in(sample, "plan.json")
    was, study = recorded["study"], Plan.from_dict(recorded).study
    assert study.correction == was.get("correction", "holm")
    assert study.own_failures == was.get("own_failures", "repeated")
    assert study.gates.foreign_load == was["gates"].get("foreign_load")
    assert set(study.margins) == set(study.scales) <= set(REGISTRY)
    if "scales" not in was:
        assert set(study.scales.values()) == {"ratio"}
    former = {"block": "concurrent", "run": "sequential"}[was.get("standing") or "run"]
    assert study.deployment_mode == was.get("deployment_mode", former)
    assert set(study.primary) <= set(REGISTRY)


def test_a_record_is_read_without_the_copies_of_its_plan(sample):
    record = recorded_in(sample, "run.json")
    run = RunRecord.from_dict(record)
    assert all(name == current_responses(name) for name in run.responses)
    assert sorted(run.responses.values()) == sorted(record["responses"].values())
    again = run.to_dict()
    assert not {"options", "load_spec"} & again.keys()
    assert RunRecord.from_dict(json.loads(json.dumps(again))) == run


@pytest.mark.parametrize(
    ("backend", "slices", "mode"),
    [("local", 4, "concurrent"), ("local", 1, "sequential"), ("kubernetes", 4, "sequential")],
)
def test_slices_took_turns_on_one_machine_before_a_plan_declared_it(make_study, backend, slices, mode):
    old = {
        "backend": backend,
        "loads": [{"rps": 100, "connections": 4, "duration_s": 2, "slices": slices}],
        "primary": [],
        "margins": {},
        "gates": {},
    }
    assert study_of_1(old)["deployment_mode"] == mode


@pytest.mark.parametrize(
    ("former", "current"),
    [
        ("latency_beyond_holds_p50_s", "latency_net_p50_s"),
        ("latency_around_p90_s", "latency_restart_window_p90_s"),
        ("obeyed_first_weight_s", "propagation_first_weight_s"),
        ("obeyed_all_deny_s", "propagation_all_deny_s"),
    ],
)
def test_a_former_name_of_a_response_is_known_and_changes_no_other(former, current):
    assert response(former) == REGISTRY[current]
    assert current_responses(f"{former}=5%,p50=3%") == f"{current}=5%,p50=3%"
    assert current_responses(f"my_{former}") == f"my_{former}"
    reasons = ["gate late: too slow", "proof x (after): expected a, saw b", "the gate fell"]
    assert run_of_1({"responses": {former: 1.0}, "bounds": {former: 0.1}, "reasons": reasons}) == {
        "responses": {current: 1.0},
        "bounds": {current: 0.1},
        "reasons": ["check late: too slow", "check x (after): expected a, saw b", "the gate fell"],
    }


def test_former_names_of_settings_are_taken_from_the_command_line_and_from_designs(tmp_path):
    design = tmp_path / "old.yaml"
    design.write_text("standing: run\nprimary: obeyed_all_deny_s\n")
    expected = {"deployment_mode": "sequential", "primary": "propagation_all_deny_s", "measure": False}
    assert with_design({"design": str(design), "run_missing": False}) == expected
    assert with_design({"design": str(design), "deployment_mode": "concurrent"})["deployment_mode"] == "concurrent"
    with refused(UsageError):
        current_settings({"standing": "block", "deployment_mode": ""})
