"""Another program is detected and waited for, on real processes, and the run's own processes are not counted as one."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from local.studies import PATIENT, executed, study_of, without_twin

from meshtrial.run.quiet import PATIENCE
from meshtrial.testbed.local.proc import LoadSnapshot, Watch

CORES = os.cpu_count() or 1
# One slice, long enough for the kernel's ticks.
SHORT = {"treatments": "none", "rps": 200, "connections": 4, "duration_s": 1.5, "warmup_s": 0.2, "slices": 1}


BURNS = "while True: pass"
# Start processes that each burn a tenth of a second of CPU, and wait for them.
STARTS = f"import subprocess, sys\nwhile True: subprocess.run([sys.executable, '-c', {'sum(range(5_000_000))'!r}])"


@contextmanager
def begun(code: str) -> Iterator[int]:
    """Start somebody else's program; yield its process."""
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def another_program() -> Iterator[int]:
    """Keep one core busy with somebody else's program."""
    with begun(BURNS) as pid:
        yield pid


@pytest.mark.usefixtures("another_program")
def test_a_run_beside_another_program_fails_its_gate_with_the_share():
    store = executed(study_of("ambient_vs_no_mesh", SHORT, replace(PATIENT, foreign_load=0.1), blocks=1))
    for run in store.records():
        # A further program that shares this one's core counts as another program too.
        assert run.responses["foreign_load"] > 0.8 / CORES
        assert [gate.name for gate in run.gates if not gate.passed] == ["foreign load"]
        assert any(reason.startswith("check foreign load: other programs used ") for reason in run.reasons)


def used_ticks(pid: int) -> int:
    """Return the kernel's CPU times of a process and of the children for which it waited."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def watched(own: int) -> Watch:
    """Watch programs, with a process and its descendants as the study's own."""
    return Watch(replace(LoadSnapshot.now(), own=own))


@pytest.fixture
def nobody() -> Iterator[int]:
    """A process without work or children, for which every other program is foreign."""
    with begun("import time; time.sleep(3600)") as pid:
        yield pid


@pytest.mark.parametrize("code", [BURNS, STARTS], ids=["burns", "starts processes that burn"])
def test_a_program_is_named_with_its_share(code, nobody):
    with begun(code) as pid:
        watch, before, began = watched(nobody), used_ticks(pid), time.monotonic()
        found = watch(2.0)
        passed = (time.monotonic() - began) * os.sysconf("SC_CLK_TCK") * CORES
        share = (used_ticks(pid) - before) / passed
    named = {one.pid: one.share for one in found.busiest}
    if pid in named:
        assert named[pid] == pytest.approx(share, abs=0.1)
    else:  # three others were busier
        assert len(named) == 3
        assert min(named.values()) > share - 0.1
    assert found.share > share - 0.1


def test_what_the_study_started_is_its_own():
    """As many programs as cores: if they were counted as foreign, both shares would exceed the machine."""
    with ExitStack() as stack:
        pids = [stack.enter_context(begun(BURNS)) for _ in range(CORES)]
        watch, before, began = watched(os.getpid()), sum(map(used_ticks, pids)), time.monotonic()
        found = watch(2.0)
        passed = (time.monotonic() - began) * os.sysconf("SC_CLK_TCK") * CORES
        own = (sum(map(used_ticks, pids)) - before) / passed
    assert not {one.pid for one in found.busiest} & {*pids, os.getpid()}
    assert 0 <= found.share <= 1.1 - own


@pytest.mark.usefixtures("another_program")
def test_a_study_waits_for_a_quiet_machine_and_records_it(nobody, monkeypatch):
    monkeypatch.setenv(PATIENCE, "4")
    # The check allows no other program, and one runs.
    study = without_twin(study_of("ambient_vs_no_mesh", SHORT, replace(PATIENT, foreign_load=0.0), blocks=1))
    told: list[str] = []
    store = executed(study, tell=told.append, watch=watched(nobody))
    said = [line for line in told if "other programs use " in line and "INVALID" not in line]
    assert [line.split(" ")[0] for line in said] == ["other", "not", "other", "not"]
    first, repeat = store.records()
    assert (first.attempt, repeat.attempt) == (1, 2)
    for run in (first, repeat):
        assert run.extra["waited"]["seconds"] >= 2.0
        assert run.extra["waited"]["before"] > 0 < run.extra["waited"]["after"]


def test_what_a_run_uses_itself_is_nobody_elses():
    """A closed loop uses all available CPU: if it were foreign, both shares would exceed the machine."""
    given = SHORT | {"closed_loop": True, "connections": 8, "rps": 0}
    (run,) = executed(without_twin(study_of("ambient_vs_no_mesh", given, blocks=1))).records()
    own_s = sum(used.cpu_s for used in run.usage)
    own = own_s / (CORES * max(generator.duration_s for generator in run.generators))
    assert own > 0.1
    foreign = run.responses["foreign_load"]
    assert foreign >= 0
    # Both together come to at most the machine, or to `own` more if it is foreign, too; the moments at which the two
    # are read differ a little, so the nearer of the two decides.
    assert foreign + own <= 1 + own / 2
