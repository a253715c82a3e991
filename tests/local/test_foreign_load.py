"""Another program on the machine is seen by the gate, on real processes, and the run's own are not taken for one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from local.studies import PATIENT, executed, study_of, without_twin

CORES = os.cpu_count() or 1
# Of one slice, which is long enough for the kernel's ticks.
SHORT = {"treatments": "none", "rps": 200, "connections": 4, "duration_s": 1.5, "warmup_s": 0.2, "slices": 1}


@pytest.fixture
def another_program() -> Iterator[None]:
    """One core kept busy by somebody else."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        child.kill()
        child.wait()


@pytest.mark.usefixtures("another_program")
def test_a_run_beside_another_program_fails_its_gate_with_the_share():
    store = executed(study_of("ambient_vs_no_mesh", SHORT, replace(PATIENT, foreign_load=0.1), blocks=1))
    for run in store.records():
        # Where a further program takes from this one's core, it is another program too.
        assert run.responses["foreign_load"] > 0.8 / CORES
        assert [gate.name for gate in run.gates if not gate.passed] == ["foreign load"]
        assert any(reason.startswith("gate foreign load: other programs used ") for reason in run.reasons)


def test_what_a_run_uses_itself_is_nobody_elses():
    """A closed loop takes what it can get: were that foreign, both shares exceeded the machine."""
    given = SHORT | {"closed_loop": True, "connections": 8, "rps": 0}
    (run,) = executed(without_twin(study_of("ambient_vs_no_mesh", given, blocks=1))).records()
    own_s = sum(used.cpu_s for used in run.usage)
    own = own_s / (CORES * max(generator.duration_s for generator in run.generators))
    assert own > 0.1
    assert 0 <= run.responses["foreign_load"] <= 1.02 - own
