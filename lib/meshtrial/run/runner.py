"""Execute a plan block after block, and repeat a failed run once inside its block.

The runner knows neither processes nor statistics. It can be interrupted at any time: a run is recorded completely or
not at all, and starting the same plan again makes the missing runs.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from meshtrial.design.plan import ATTEMPTS, PlannedRun
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.records.tables import is_result
from meshtrial.run import estimates
from meshtrial.run.measured import carry_out
from meshtrial.run.progress import ProgressCallback, span, transient
from meshtrial.run.quiet import Waited, patience_s, wait_for_quiet
from meshtrial.testbed.base import Testbed, Watch

StoppingRule = Callable[[Sequence[RunRecord], int], bool]


def execute(
    store: StudyStore,
    testbed: Testbed,
    progress: ProgressCallback,
    stop: StoppingRule | None = None,
    overhead_s: float = 0.0,
    watch: Watch | None = None,
    blocks: Collection[int] | None = None,
) -> None:
    """Make the runs of these blocks, or of all, that are not recorded; RecordError if another process runs the study.

    ``progress`` gets a line before every run (see :mod:`meshtrial.run.progress`) and one for every failed run.
    ``stop`` is the plan's stopping rule. It is called with all records and the number of blocks finished at each load.
    ``overhead_s`` is the expected duration of a run without its load, for estimates of the remaining time. With
    ``watch`` the first run and repeats wait for a quiet machine.
    """
    with store.locked(), store.written():
        store.discard_incomplete()
        _Executor(store, testbed, progress, overhead_s, watch, blocks).run(stop)


@dataclass
class _Executor:
    store: StudyStore
    testbed: Testbed
    progress: ProgressCallback
    overhead_s: float
    watch: Watch | None
    blocks: Collection[int] | None

    def __post_init__(self) -> None:
        self.plan = self.store.plan
        self.records = {(r.run_id, r.attempt): r for r in self.store.records()}
        runs_here = self.store.runs_here()
        self.n_runs = len(runs_here)
        self.planned = [run for run in runs_here if self.blocks is None or run.repetition in self.blocks]
        self.began = time.monotonic()
        self.expected_s = self.remaining_s()
        self.made = self.repeats = 0

    def run(self, stop: StoppingRule | None) -> None:
        self.make_blocks(stop)
        repeats = f", including {self.repeats} repeats" if self.repeats else ""
        text = f"{self.made} runs in {span(time.monotonic() - self.began)}{repeats}"
        self.progress(transient(self.done, self.n_runs, text))

    def make_blocks(self, stop: StoppingRule | None) -> None:
        # Repeats follow the runs of their load, or those of their treatment if deployments grow from load to load.
        together = "treatment" if self.plan.study.order == "growing" else "load"
        for number, runs in sorted(_grouped(self.planned, "repetition").items()):
            if stop is not None and number > 1 and stop(tuple(self.records.values()), number - 1):
                return
            for block in _grouped(runs, together).values():
                self.attempt(block, 1)
                # Repeats follow the block's other runs: still inside the block, but after a brief disturbance.
                again = [planned for planned in block if not is_result(self.plan, self.records[planned.run_id, 1])]
                self.attempt(again, ATTEMPTS)

    def attempt(self, block: Sequence[PlannedRun], attempt: int) -> None:
        """Make those of a block's runs that are not recorded, concurrently where possible."""
        waiting = [planned for planned in block if (planned.run_id, attempt) not in self.records]
        waited = self.wait_for_quiet() if waiting and (attempt > 1 or not self.made) else None
        for group in self.concurrent_groups(waiting):
            label = f"{len(group)} treatments in turn" if len(group) > 1 else group[0].treatment
            if attempt == 1:
                self.announce(group[0], label)
            else:
                self.announce(group[0], f"{label} again", [planned.run_id for planned in group])
            records = carry_out(self.store, self.testbed, group, attempt, waited)
            for planned, record in zip(group, records, strict=True):
                self.note(planned, attempt, record)

    def wait_for_quiet(self) -> Waited | None:
        limit = self.plan.study.gates.foreign_load
        if self.watch is None or limit is None:
            return None
        return wait_for_quiet(self.watch, limit, self.progress, patience_s())

    def concurrent_groups(self, block: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
        """Group a block's runs whose deployments are concurrent; without slices every run is a group."""
        if not block or not self.plan.study.take_turns(self.plan.load_of(block[0])):
            return [[planned] for planned in block]
        runs = {self.plan.treatment_of(planned): planned for planned in block}
        return [[runs[treatment] for treatment in group] for group in self.testbed.together(list(runs))]

    def note(self, planned: PlannedRun, attempt: int, record: RunRecord) -> None:
        self.records[planned.run_id, attempt] = record
        self.made += 1
        self.repeats += attempt > 1
        if is_result(self.plan, record) and not record.valid:
            reasons = "; ".join(record.reasons)
            self.progress(f"{planned.run_id} failed, possibly because of its treatment, and is not repeated: {reasons}")
        elif not record.valid:
            next_step = "it will be repeated in its block" if attempt < ATTEMPTS else "it was the repeat"
            self.progress(f"{planned.run_id} is INVALID, {next_step}: {'; '.join(record.reasons)}")

    def announce(self, planned: PlannedRun, label: str, again: Collection[str] = ()) -> None:
        """Report the next run and the remaining time, at the pace of the runs so far."""
        remaining_s, made_s = self.remaining_s(again), self.expected_s - self.remaining_s()
        if made_s > 0:
            remaining_s *= (time.monotonic() - self.began) / made_s
        text = estimates.remaining_text(self.plan, remaining_s)
        where = f"block {planned.repetition}/{self.plan.study.blocks}, {planned.load}, {label}"
        self.progress(transient(self.done, self.n_runs, f"{text}; {where}"))

    @property
    def done(self) -> int:
        return sum(1 for _, attempt in self.records if attempt == 1)

    def remaining_s(self, again: Collection[str] = ()) -> float:
        """Return the expected seconds of all runs that are not recorded or are made ``again``."""
        made = {run_id for run_id, _ in self.records} - set(again)
        waiting = [run for run in self.planned if run.run_id not in made]
        return estimates.remaining_s(self.plan, waiting, self.overhead_s)


def _grouped(runs: Sequence[PlannedRun], field: str) -> dict[Any, list[PlannedRun]]:
    groups: dict[Any, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(getattr(run, field), []).append(run)
    return groups
