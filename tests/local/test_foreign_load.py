"""Another program on the machine is seen by the gate, on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from meshtrial.design.parameters import read_parameters
from meshtrial.design.plan import make_plan
from meshtrial.design.studies import study_module
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.run.runner import execute
from meshtrial.testbed.local.testbed import LocalTestbed

SHORT = {"treatments": "none", "rps": 200, "connections": 4, "duration_s": 1.5, "warmup_s": 0.2, "blocks": 2}


@pytest.fixture
def another_program() -> Iterator[None]:
    """One core kept busy by somebody else."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        child.kill()
        child.wait()


def recorded() -> tuple[RunRecord, ...]:
    module = study_module("ambient_vs_no_mesh")
    study = module.build(read_parameters(module.PARAMETERS, SHORT))
    # The treatment and its twin; no contrast is asked for.
    study = replace(study, blocks=1)
    store = StudyStore.create(Path(os.environ["MESHTRIAL_DATA"]), make_plan(study), {})
    execute(store, LocalTestbed(), lambda _: None)
    return store.records()


@pytest.mark.usefixtures("another_program")
def test_a_run_beside_another_program_fails_its_gate_with_the_share():
    runs = recorded()
    share = 0.8 / (os.cpu_count() or 1)
    for run in runs:
        assert run.responses["foreign_load"] > share
        assert not run.valid
        assert any(reason.startswith("gate foreign load: other programs used ") for reason in run.reasons)


def test_on_a_machine_of_its_own_there_is_next_to_none():
    assert all(run.responses["foreign_load"] < 0.1 for run in recorded())
