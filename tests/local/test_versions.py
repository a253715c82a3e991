"""Versions as treatments of one study: a known delay is told apart, an equal configuration is shown equivalent."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from meshtrial import native
from meshtrial.design.parameters import read_parameters
from meshtrial.design.plan import make_plan
from meshtrial.design.studies import study_module
from meshtrial.design.study import Gates
from meshtrial.inference import analyse
from meshtrial.records.store import StudyStore
from meshtrial.run.runner import execute
from meshtrial.testbed.local.testbed import LocalTestbed

pytestmark = pytest.mark.beside
DELAYED = """
http_filters:
- name: envoy.filters.http.fault
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault
    delay: {fixed_delay: 0.004s, percentage: {numerator: 100}}
"""


def test_a_delay_is_told_apart_and_an_equal_version_is_equivalent(tmp_path):
    slow, same = tmp_path / "slow.yaml", tmp_path / "same.yaml"
    slow.write_text(DELAYED)
    same.write_text("flags: [--drain-time-s, '1']")
    given = {
        "treatments": "sidecar@same,sidecar@envoy,sidecar@slow",
        "versions": f"same={same},slow={slow},envoy={native.find('envoy')}",
        "rps": 200,
        "connections": 4,
        "duration_s": 0.6,
        "warmup_s": 0.1,
        "blocks": 7,
        "primary": "p50",
        # Far from the delay, and more than what tests that run beside this one do to a median.
        "margin": "p50=2ms",
    }
    module = study_module("ambient_vs_no_mesh")
    study = module.build(read_parameters(module.PARAMETERS, given))
    treatments = tuple(treatment for treatment in study.treatments if not treatment.twin)
    gates = Gates(foreign_load=1.0, generator_cpu=1.0, late_ratio=1.0, sample_floor=20)
    study = replace(study, treatments=treatments, gates=gates)
    testbed = LocalTestbed(study.options)
    assert testbed.preflight(study) == ()
    store = StudyStore.create(Path(os.environ["MESHTRIAL_DATA"]), make_plan(study), {})
    execute(store, testbed, lambda _: None)
    data = analyse(store)
    assert [run.reasons for run in data.runs if not run.valid] == []
    rows = {row.treatment: row for row in data.verdicts if row.response == "latency_p50_s"}
    assert (rows["sidecar@slow"].verdict, rows["sidecar@slow"].qualifier) == ("slower", "material")
    assert rows["sidecar@slow"].difference == pytest.approx(0.004, abs=0.0015)
    # Too small to matter, be there a difference that so many runs can show.
    same = rows["sidecar@envoy"]
    assert same.verdict == "equivalent" or same.qualifier == "below margin"
    versions = {run.treatment: run.versions for run in data.runs}
    assert versions["sidecar@slow"]["version slow"].startswith("configuration (sha256 ")
    assert "version envoy" in versions["sidecar@envoy"]
    names = {proof.name for proof in data.runs[0].proofs}
    assert any(name.startswith("version ") and name.endswith("of server sidecar") for name in names)
