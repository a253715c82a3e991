"""The machine's counters in /proc/stat."""

import os

import pytest

from meshtrial.testbed.local import proc


def _times(user=0, nice=0, system=0, idle=0, iowait=0, irq=0, softirq=0, steal=0):
    return [user, nice, system, idle, iowait, irq, softirq, steal]


@pytest.fixture
def told():
    """Replace each reading of the counters."""

    def answer(*readings):
        left = list(readings)
        return proc.MachineMeter(lambda: left.pop(0))

    return answer


def test_shares_since_the_last_reading(told):
    meter = told(
        _times(user=100, idle=900),
        _times(user=130, system=10, idle=950, steal=10),
        _times(user=130, system=10, idle=1050, steal=10),
    )
    used = meter.used()
    assert used.busy == pytest.approx(0.5)
    assert used.stolen == pytest.approx(0.1)
    idle = meter.used()
    assert (idle.busy, idle.stolen) == (0, 0)


def test_waiting_for_a_disk_is_not_work(told):
    assert told(_times(), _times(user=20, iowait=60, idle=20)).used().busy == pytest.approx(0.2)


def test_counters_that_go_back_give_no_impossible_share(told):
    # The kernel may lower iowait, and steal when the machine migrates.
    used = told(_times(idle=100, iowait=50, steal=50), _times(user=50, idle=120, iowait=40, steal=45)).used()
    assert 0 <= used.busy <= 1
    assert used.stolen == 0


def test_programs_are_what_is_neither_idle_nor_the_hosts_nor_an_interrupts(told):
    used = told(_times(), _times(user=30, nice=10, system=20, idle=100, iowait=10, irq=4, softirq=6, steal=20)).used()
    ticks = os.sysconf("SC_CLK_TCK")
    assert used.programs_s == pytest.approx(60 / ticks)
    assert used.total_s == pytest.approx(200 / ticks)
    assert used.own_s >= 0
    assert used.foreign_s(20 / ticks) == pytest.approx(40 / ticks, abs=used.own_s + 1e-9)
    assert used.foreign_s(1e6) == 0


def test_no_time_passed(told):
    assert told(_times(idle=5), _times(idle=5)).used() is None


@pytest.mark.linux
def test_of_this_machine():
    used = proc.MachineMeter()
    sum(range(3_000_000))
    share = used.used()
    assert share is None or (0 <= share.busy <= 1 and 0 <= share.stolen <= 1)
