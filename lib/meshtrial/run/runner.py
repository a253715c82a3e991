"""The plan, executed: block after block, one repeat of an invalid run inside its block.

The runner knows neither processes nor statistics. It can be interrupted anywhere: a run is recorded
whole or not at all, and the same plan started again goes on where it stopped.
"""

import time
from collections.abc import Callable, Collection, Sequence

from meshtrial.design.plan import ATTEMPTS, Plan, PlannedRun
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.records.tables import is_result
from meshtrial.run import duration
from meshtrial.run.measured import carry_out
from meshtrial.run.progress import ProgressCallback, passing, span
from meshtrial.run.quiet import Waited, patience_s, wait_for_quiet
from meshtrial.testbed.base import Testbed, Watch

Enough = Callable[[Sequence[RunRecord], int], bool]


def execute(
    store: StudyStore,
    testbed: Testbed,
    tell: ProgressCallback,
    enough: Enough | None = None,
    overhead_s: float = 0.0,
    watch: Watch | None = None,
) -> None:
    """Run everything of the plan that is not recorded yet; RecordError when another process runs the same study.

    ``tell`` gets a line before every run (see :mod:`meshtrial.run.progress`), and one for every run that is not valid.
    ``enough`` is the plan's stopping rule, asked after the blocks of every number, one at each load, with the records
    and that number. A run is expected to take ``overhead_s`` besides its load: the time that is left goes by it, and by
    how the runs go. With a ``watch`` over other programs the first run and repeats wait for a quiet machine.
    """
    with store.locked(), store.written():
        store.discard_incomplete()
        _Executor(store, testbed, tell, overhead_s, watch).run(enough)


class _Executor:
    def __init__(
        self, store: StudyStore, testbed: Testbed, tell: ProgressCallback, overhead_s: float, watch: Watch | None = None
    ) -> None:
        self.store = store
        self.plan = store.plan
        self.testbed = testbed
        self.tell = tell
        self.overhead_s = overhead_s
        self.watch = watch
        self.records = {(r.run_id, r.attempt): r for r in store.records()}
        self.planned = store.runs_here()
        self.began = time.monotonic()
        self.expected_s = self.expect()
        self.fresh = self.repeats = 0

    def run(self, enough: Enough | None) -> None:
        self.make(enough)
        repeats = f", {self.repeats} of them repeats" if self.repeats else ""
        text = f"{self.fresh} runs in {span(time.monotonic() - self.began)}{repeats}"
        self.tell(passing(self.done, len(self.planned), text))

    def make(self, enough: Enough | None) -> None:
        for number, runs in _by_number(self.planned):
            if enough is not None and number > 1 and enough(tuple(self.records.values()), number - 1):
                return
            for block in _together(self.plan, runs):
                self.attempt(block, 1)
                # Repeats come after the block's other runs: still inside the block, and a passing
                # disturbance of the machine has had time to pass.
                again = [planned for planned in block if not is_result(self.plan, self.records[planned.run_id, 1])]
                self.attempt(again, ATTEMPTS)

    def attempt(self, block: Sequence[PlannedRun], attempt: int) -> None:
        """Make what is not recorded of these runs of a block: those at once that may stand at once."""
        waiting = [planned for planned in block if (planned.run_id, attempt) not in self.records]
        waited = self.wait_for_quiet() if waiting and (attempt > 1 or not self.fresh) else None
        for together in self.groups(waiting):
            what = f"{len(together)} treatments in turn" if len(together) > 1 else together[0].treatment
            if attempt == 1:
                self.say(together[0], what)
            else:
                self.say(together[0], f"{what} again", [planned.run_id for planned in together])
            records = carry_out(self.store, self.testbed, together, attempt, waited)
            for planned, record in zip(together, records, strict=True):
                self.note(planned, attempt, record)

    def wait_for_quiet(self) -> Waited | None:
        """Wait while other programs use more than the plan's check lets them; None where nothing was waited for."""
        limit = self.plan.study.gates.foreign_load
        if self.watch is None or limit is None:
            return None
        return wait_for_quiet(self.watch, limit, self.tell, patience_s())

    def groups(self, block: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
        """Runs of a block whose deployments stand at once; one by one where no slices go round."""
        if not block or not self.plan.study.take_turns(self.plan.load_of(block[0])):
            return [[planned] for planned in block]
        runs = {self.plan.treatment_of(planned): planned for planned in block}
        return [[runs[treatment] for treatment in group] for group in self.testbed.together(list(runs))]

    def note(self, planned: PlannedRun, attempt: int, record: RunRecord) -> None:
        self.records[planned.run_id, attempt] = record
        self.fresh += 1
        self.repeats += attempt > 1
        if is_result(self.plan, record) and not record.valid:
            self.tell(f"{planned.run_id} failed by itself, which is a result: {'; '.join(record.reasons)}")
        elif not record.valid:
            what = "it is repeated within its block" if attempt < ATTEMPTS else "it was the repeat"
            self.tell(f"{planned.run_id} is INVALID, {what}: {'; '.join(record.reasons)}")

    def say(self, planned: PlannedRun, what: str, again: Collection[str] = ()) -> None:
        """What is made now, and how long all that is left takes at the pace of the runs so far."""
        remaining_s, made_s = self.expect(again), self.expected_s - self.expect()
        if made_s > 0:
            remaining_s *= (time.monotonic() - self.began) / made_s
        where = f"block {planned.repetition}/{self.plan.study.blocks}, {planned.load}, {what}"
        self.tell(passing(self.done, len(self.planned), f"{duration.said(self.plan, remaining_s)}; {where}"))

    @property
    def done(self) -> int:
        return sum(1 for _, attempt in self.records if attempt == 1)

    def expect(self, again: Collection[str] = ()) -> float:
        """Seconds of all runs that are not made, and of those that are repeated, as expected beforehand."""
        made = {run_id for run_id, _ in self.records} - set(again)
        return duration.remaining_s(self.plan, [run for run in self.planned if run.run_id not in made], self.overhead_s)


def _by_number(planned: Sequence[PlannedRun]) -> list[tuple[int, list[PlannedRun]]]:
    """The runs of the blocks of each number, one block at each load."""
    blocks: dict[int, list[PlannedRun]] = {}
    for run in planned:
        blocks.setdefault(run.repetition, []).append(run)
    return sorted(blocks.items())


def _together(plan: Plan, runs: list[PlannedRun]) -> list[list[PlannedRun]]:
    """Runs after which their repeats come: all treatments at one load; of deployments that grow, all loads of one."""
    groups: dict[str, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(run.treatment if plan.study.order == "growing" else run.load, []).append(run)
    return list(groups.values())
