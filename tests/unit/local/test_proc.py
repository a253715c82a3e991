"""The machine's counters, and its other users, from a /proc that a test writes: short-lived, own and hidden ones."""

import os
from pathlib import Path

import pytest

from meshtrial.testbed.local import proc
from meshtrial.testbed.local.proc import LoadSnapshot, Process, Watch, between

OWN = 100
# A machine of two cores, read once per second.
SECOND = 2 * os.sysconf("SC_CLK_TCK")


class Proc:
    """Write a /proc: the ticks used so far, and whose they are."""

    def __init__(self, root: Path) -> None:
        self.root, self.busy, self.seconds = root, 0, 0
        self.add(1, "init", 0)
        self.add(OWN, "python", 1)

    def add(self, pid: int, name: str, parent: int, ticks: int = 0, started: int = 7, waited_for: int = 0) -> None:
        """A process with its own ticks and those of its ended children."""
        fields = ["0"] * 50
        fields[0], fields[1], fields[19] = "S", str(parent), str(started)
        fields[11], fields[12], fields[13] = str(ticks // 2), str(ticks - ticks // 2), str(waited_for)
        (self.root / str(pid)).mkdir(exist_ok=True)
        (self.root / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")

    def end(self, pid: int) -> None:
        (self.root / str(pid) / "stat").unlink()
        (self.root / str(pid)).rmdir()

    def look(self, used: int = 0, own: int = OWN) -> LoadSnapshot:
        """One second later, in which all programs together used the given ticks."""
        self.busy, self.seconds = self.busy + used, self.seconds + 1
        idle = self.seconds * SECOND - self.busy
        (self.root / "stat").write_text(f"cpu  {self.busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n")
        found = LoadSnapshot.now(self.root)
        return LoadSnapshot(float(self.seconds), own, found.cpu, found.processes)


@pytest.fixture
def machine(tmp_path: Path) -> Proc:
    (tmp_path / "self").mkdir()
    (tmp_path / "uptime").write_text("1 2\n")
    return Proc(tmp_path)


def named(found) -> list[tuple[str, int, float]]:
    return [(one.name, one.pid, one.share) for one in found.busiest]


def test_the_three_busiest_are_named_and_own_processes_are_not(machine):
    for pid, name, parent in ((200, "envoy", OWN), (300, "a", 1), (301, "b) S (c", 1), (302, "d", 300), (303, "e", 1)):
        machine.add(pid, name, parent, ticks=10**6)
    before = machine.look()
    used = {200: 40, 300: 1, 301: 60, 302: 20, 303: 10, OWN: 9}
    for pid, name, parent in ((200, "envoy", OWN), (300, "a", 1), (301, "b) S (c", 1), (302, "d", 300), (303, "e", 1)):
        machine.add(pid, name, parent, ticks=10**6 + used[pid])
    machine.add(OWN, "python", 1, ticks=used[OWN])
    found = between(before, machine.look(sum(used.values())))
    assert found.share == pytest.approx(91 / SECOND)
    assert named(found) == [
        ("b) S (c", 301, pytest.approx(60 / SECOND)),
        ("d", 302, pytest.approx(20 / SECOND)),
        ("e", 303, pytest.approx(10 / SECOND)),
    ]
    assert found.unseen == pytest.approx(0)


def test_a_program_that_starts_and_ends_processes_is_known_by_who_waits_for_them(machine):
    machine.add(300, "make", 1)
    machine.add(301, "cc1", 300, ticks=5000)
    machine.add(400, "sh", OWN)
    machine.add(401, "git", 400, ticks=3000)
    before = machine.look()
    for pid in (301, 401, 400):
        machine.end(pid)
    machine.add(300, "make", 1, waited_for=5000 + 70)  # the old compiler's 10, and the rest from two short-lived ones
    machine.add(302, "cc1", 300, ticks=30, started=8)
    machine.add(OWN, "python", 1, waited_for=3000 + 25)
    found = between(before, machine.look(70 + 30 + 25))
    assert found.share == pytest.approx(100 / SECOND)
    assert [(name, share) for name, _, share in named(found)] == [
        ("make", pytest.approx(70 / SECOND)),
        ("cc1", pytest.approx(30 / SECOND)),
    ]


def test_who_adopts_an_orphan_is_not_taken_for_what_that_used_in_its_life(machine):
    machine.add(300, "burner", 1)
    machine.add(400, "make", 1)
    machine.add(401, "sh", 400)
    machine.add(402, "cc1", 401, ticks=9000)
    before = machine.look()
    machine.end(401)  # first, so that the compiler ends as a child of init
    machine.end(402)
    machine.add(1, "init", 0, waited_for=9000 + 4)
    machine.add(300, "burner", 1, ticks=80)
    found = between(before, machine.look(84))
    assert named(found) == [("burner", 300, pytest.approx(80 / SECOND)), ("init", 1, pytest.approx(4 / SECOND))]


def test_a_number_that_another_process_has_now_is_not_the_old_one(machine):
    machine.add(300, "old", 1, ticks=50, started=7)
    before = machine.look()
    machine.add(300, "new", 1, ticks=80, started=9)
    assert named(between(before, machine.look(80))) == [("new", 300, pytest.approx(80 / SECOND))]


def test_of_hidden_processes_the_share_is_known_and_no_name(machine):
    machine.add(300, "mine", 1)
    before = machine.look()
    machine.add(300, "mine", 1, ticks=4)
    found = between(before, machine.look(84))
    assert found.share == pytest.approx(84 / SECOND)
    assert found.unseen == pytest.approx(80 / SECOND)
    assert [name for name, *_ in named(found)] == ["mine"]


def test_sums_that_disagree_give_no_impossible_share(machine):
    """The kernel counts a process exactly, but cores by samples."""
    before = machine.look()
    machine.add(OWN, "python", 1, ticks=60)
    machine.add(300, "burner", 1, ticks=90, started=9)
    found = between(before, machine.look(100))
    assert found.share == pytest.approx(40 / SECOND)
    assert named(found) == [("burner", 300, pytest.approx(40 / SECOND))]
    assert between(before, before).share == 0
    machine.add(OWN, "python", 1, ticks=400)
    assert between(before, machine.look(0)) == type(found)(0.0)


def test_what_vanishes_or_is_damaged_while_it_is_looked_at_is_passed_over(machine):
    (machine.root / "500").mkdir()
    (machine.root / "501").mkdir()
    (machine.root / "501" / "stat").write_text("501 (half")
    assert machine.look().processes.keys() == {1, OWN}


def test_a_watch_goes_on_from_the_last_look_and_begins_anew_after_a_long_time(machine):
    now, slept = [0.0], list[float]()

    def look() -> LoadSnapshot:
        used = int(100 * now[0])
        return LoadSnapshot(now[0], 4711, [used, 0, 0, used, 0, 0, 0, 0], {OWN: Process("python", 1, 7, used, 0)})

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    # The first reading decides which processes are the study's.
    watch = Watch(LoadSnapshot(-1.5, OWN, [0] * 8, {}), look, lambda: now[0], sleep)
    assert watch(2.0).share == 0
    assert slept == [0.5]  # it was made after a second and a half
    watch(2.0)
    assert slept == [0.5, 2.0]
    now[0] += 5.0
    watch(2.0)  # five seconds have passed, so the wait ends
    assert slept == [0.5, 2.0, 0.0]
    now[0] += 60.0
    assert watch(2.0).share == 0
    assert slept == [0.5, 2.0, 0.0, 2.0]


def test_what_was_seen_is_handed_over_as_it_is(machine, tmp_path):
    machine.add(300, "näme (x", 1, ticks=9)
    seen = machine.look(12)
    seen.write(tmp_path / "look.json")
    assert LoadSnapshot.read(tmp_path / "look.json") == seen


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
