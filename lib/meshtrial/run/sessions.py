"""Sessions of a study: stretches of time in which whole blocks run, with nothing of the study left between them.

A session is one sample of what a machine or cluster is like for a while. The plan seals which blocks belong to which
session and how long the gaps are, so any process can tell from the records which session is due, and when.
"""

import datetime
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from meshtrial.design.plan import Plan
from meshtrial.inference import finished_blocks
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.run.progress import ProgressCallback, span

# A clock that is set forwards during the gap, or a suspended machine, ends the wait at most this late.
_NAP_S = 5.0


@dataclass(frozen=True)
class Session:
    """A session of a plan that has runs to make."""

    number: int  # from 1
    of: int
    blocks: range
    due_unix_s: float  # 0.0 for a session that may begin at once
    gap_s: float

    @property
    def name(self) -> str:
        """Its number and how many there are."""
        return f"session {self.number} of {self.of}"

    @property
    def blocks_text(self) -> str:
        """Its blocks: ``block 3`` or ``blocks 3 to 5``."""
        first, last = self.blocks[0], self.blocks[-1]
        return f"block {first}" if first == last else f"blocks {first} to {last}"

    def remaining_s(self, now_unix_s: float) -> float:
        """Return the seconds until it may begin: at least 0, and at most the gap if the clock was set back."""
        return min(max(0.0, self.due_unix_s - now_unix_s), self.gap_s)

    def announcement(self, now_unix_s: float) -> str:
        """Return the line that says when it begins."""
        remaining_s = self.remaining_s(now_unix_s)
        moment = datetime.datetime.fromtimestamp(now_unix_s + remaining_s, datetime.UTC)
        return f"{self.name} begins at {moment:%Y-%m-%d %H:%M:%S} UTC, in {span(remaining_s)}"


def next_session(store: StudyStore) -> Session | None:
    """Return the first session with a block that is not finished, or None.

    A session that was interrupted continues at once. A new one is due when the plan's gap after the last recorded run
    has passed.
    """
    plan, records = store.plan, store.records()
    finished = finished_blocks(plan, records)
    for number, blocks in enumerate(plan.sessions, start=1):
        if finished.issuperset(set(blocks) & set(store.blocks)):
            continue
        has_begun = any(record.repetition in blocks for record in records)
        ends = [record.finished_unix_s for record in records]
        gap_s = plan.study.session_gap_s
        due_unix_s = 0.0 if has_begun or not ends else max(ends) + gap_s
        return Session(number, len(plan.sessions), blocks, due_unix_s, gap_s)
    return None


def gaps_s(plan: Plan, records: Iterable[RunRecord]) -> float:
    """Return the seconds of waiting between the sessions that have not begun."""
    begun = {record.repetition for record in records}
    waiting = sum(begun.isdisjoint(blocks) for blocks in plan.sessions)
    return plan.study.session_gap_s * (waiting if begun else waiting - 1)


def wait_for(
    session: Session,
    progress: ProgressCallback,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until a session is due, after one line that says when that is; never longer than the gap."""
    waited_s = 0.0
    if session.remaining_s(clock()):
        progress(session.announcement(clock()))
    while (remaining_s := min(session.remaining_s(clock()), session.gap_s - waited_s)) > 0:
        nap_s = min(_NAP_S, remaining_s)
        sleep(nap_s)
        waited_s += nap_s
