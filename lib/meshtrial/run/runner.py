"""The plan, executed: block after block, one repeat of an invalid run inside its block.

The runner knows neither processes nor statistics. It can be interrupted anywhere: a run is recorded
whole or not at all, and the same plan started again goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshtrial import signals
from meshtrial.design.plan import ATTEMPTS, Plan, PlannedRun
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.run.measured import run_interleaved, run_once
from meshtrial.testbed.base import Testbed


@dataclass(frozen=True)
class Progress:
    """Where a study stands, told after every run.

    Attributes
    ----------
    done, total : int
        Runs, repeats not counted.
    left_s : float or None
        Estimated from the runs so far; None before the first.
    """

    done: int
    total: int
    run: PlannedRun
    blocks: int
    left_s: float | None
    record: RunRecord | None

    def line(self) -> str:
        """One line for a terminal."""
        left = "" if self.left_s is None else f", {_clock(self.left_s)} left"
        state = ""
        if self.record is not None and not self.record.valid:
            state = f"  INVALID: {'; '.join(self.record.reasons)}"
        where = f"block {self.run.repetition}/{self.blocks}, {self.run.load}, {self.run.treatment}"
        return f"[{self.done}/{self.total}] {where}{left}{state}"


Tell = Callable[[Progress], None]
Enough = Callable[[Sequence[RunRecord], int], bool]


def execute(store: StudyStore, testbed: Testbed, tell: Tell, enough: Enough | None = None) -> None:
    """Run everything of the plan that is not recorded yet.

    Parameters
    ----------
    store : StudyStore
    testbed : Testbed
    tell : callable
        Called with a :class:`Progress` after every run.
    enough : callable, optional
        The plan's stopping rule, asked after every whole repetition with the records and its number.

    Raises
    ------
    RecordError
        When another process runs the same study.
    """
    with store.locked():
        store.discard_incomplete()
        _Executor(store, testbed, tell).run(enough)


class _Executor:
    def __init__(self, store: StudyStore, testbed: Testbed, tell: Tell) -> None:
        self.store = store
        self.plan = store.plan
        self.testbed = testbed
        self.tell = tell
        self.records = {(r.run_id, r.attempt): r for r in store.records()}
        self.planned = store.runs_here()
        self.began = time.monotonic()
        self.fresh = 0

    def run(self, enough: Enough | None) -> None:
        for repetition, runs in _by_repetition(self.planned):
            if enough is not None and repetition > 1 and enough(tuple(self.records.values()), repetition - 1):
                return
            for block in _together(self.plan, runs):
                self.first_attempts(block)
                # Repeats come after the block's other runs: still inside the block, and a passing
                # disturbance of the machine has had time to pass.
                for planned in block:
                    if not self.records[planned.run_id, 1].valid:
                        self.attempt(planned, ATTEMPTS)

    def first_attempts(self, block: list[PlannedRun]) -> None:
        # Slices of one deployment lie between those of the block's others, so that what drifts within a block
        # drifts through all of them. A cluster holds one mesh at a time, so there they follow one another.
        if self.plan.study.backend == "local" and self.plan.load_of(block[0]).slices > 1:
            signals.check()
            waiting = [planned for planned in block if (planned.run_id, 1) not in self.records]
            for planned, record in zip(waiting, run_interleaved(self.store, self.testbed, waiting), strict=True):
                self.note(planned, 1, record)
            return
        for planned in block:
            self.attempt(planned, 1)

    def attempt(self, planned: PlannedRun, attempt: int) -> None:
        if (planned.run_id, attempt) not in self.records:
            signals.check()
            self.note(planned, attempt, run_once(self.store, self.testbed, planned, attempt))

    def note(self, planned: PlannedRun, attempt: int, record: RunRecord) -> None:
        self.records[planned.run_id, attempt] = record
        self.fresh += 1
        done = sum(1 for _, number in self.records if number == 1)
        left = (time.monotonic() - self.began) / self.fresh * (len(self.planned) - done)
        self.tell(Progress(done, len(self.planned), planned, self.plan.study.blocks, left, record))


def _by_repetition(planned: Sequence[PlannedRun]) -> list[tuple[int, list[PlannedRun]]]:
    found: dict[int, list[PlannedRun]] = {}
    for run in planned:
        found.setdefault(run.repetition, []).append(run)
    return sorted(found.items())


def _together(plan: Plan, runs: list[PlannedRun]) -> list[list[PlannedRun]]:
    """Runs after which their repeats come: all treatments at one load; of deployments that grow, all loads of one."""
    found: dict[str, list[PlannedRun]] = {}
    for run in runs:
        found.setdefault(run.treatment if plan.study.order == "growing" else run.load, []).append(run)
    return list(found.values())


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
