"""A study waits up to half a minute for a quiet machine, and reports either outcome."""

import pytest
from refused import as_reviewed, refused

from meshtrial.errors import UsageError
from meshtrial.run import quiet
from meshtrial.run.quiet import Waited, patience_s, wait_for_quiet
from meshtrial.testbed.base import Others, Program

BURNER, EDITOR, REST = Program("python3", 4711, 0.5), Program("code", 812, 0.021), Program("bash", 7, 0.001)


class Machine:
    """The share that other programs use, sample by sample; the last one repeats."""

    def __init__(self, *looks: Others) -> None:
        self.looks, self.now_s, self.told = list(looks), 0.0, list[str]()

    def watch(self, seconds: float) -> Others:
        self.now_s += seconds
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def wait(self, limit: float = 0.1, **more: float) -> Waited | None:
        return wait_for_quiet(self.watch, limit, self.told.append, clock=lambda: self.now_s, **more)


def test_a_quiet_machine_is_looked_at_for_two_seconds_and_nothing_is_said():
    machine = Machine(Others(0.1, (EDITOR,)))
    assert machine.wait() is None
    assert (machine.now_s, machine.told) == (2.0, [])


def test_who_is_busy_is_named_and_the_study_goes_on_as_soon_as_it_is_quiet():
    busy = Others(0.523, (BURNER, EDITOR, REST))
    machine = Machine(busy, busy, busy, Others(0.02))
    assert machine.wait() == Waited(6.0, 0.523, 0.02)
    as_reviewed(*machine.told)


def test_patience_ends_and_the_study_goes_on():
    machine = Machine(Others(0.9, (BURNER,)), Others(0.48, (BURNER,)))
    assert machine.wait() == Waited(30.0, 0.9, 0.48)
    as_reviewed(machine.told[1])
    assert machine.now_s == 32.0
    machine = Machine(Others(0.9))
    assert machine.wait(patience_s=5.0) == Waited(5.0, 0.9, 0.9)
    machine = Machine(Others(0.9))
    assert machine.wait(patience_s=4.25) == Waited(4.0, 0.9, 0.9)


def test_what_cannot_be_seen_is_said_to_be_that():
    machine = Machine(Others(0.5, (EDITOR,), unseen=0.479), Others(0.5, (), unseen=0.5), Others(0.0))
    machine.wait()
    as_reviewed(machine.told[0])
    machine = Machine(Others(0.5, (BURNER,), unseen=0.01), Others(0.0))
    machine.wait()
    assert "(python3 (pid 4711) 50%)" in machine.told[0]
    machine = Machine(Others(0.2, (REST,)), Others(0.0))
    machine.wait()
    assert "(" not in machine.told[0]


def test_a_record_keeps_what_was_waited():
    assert Waited(13.9996, 0.52345, 0.02).to_dict() == {"seconds": 14.0, "before": 0.523, "after": 0.02}


@pytest.mark.parametrize(("said", "seconds"), [("", 30.0), ("0", 0.0), ("120", 120.0), ("2.5", 2.5)])
def test_patience_is_the_users(said, seconds, monkeypatch):
    monkeypatch.setenv(quiet.PATIENCE, said)
    assert patience_s() == seconds


@pytest.mark.parametrize("said", ["-1", "inf", "nan", "long"])
def test_a_patience_that_is_none_is_refused(said, monkeypatch):
    monkeypatch.setenv(quiet.PATIENCE, said)
    with refused(UsageError):
        patience_s()
