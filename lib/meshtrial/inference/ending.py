"""How a study ended: whether it gave a verdict, and what was excluded from its verdicts, in one line.

A study with verdicts has succeeded, whatever was excluded on the way; one without a verdict has not. The line names
the checks that failed by the worst value of each: every run with its reasons is in the report.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import part_of
from meshtrial.records.schema import GateResult, RunRecord
from meshtrial.vocabulary import VerdictLabel

# The advice of a check's message stands behind the first colon or semicolon that is in no brackets.
_ADVICE = re.compile(r"[:;] (?![^(]*\))")


@dataclass(frozen=True)
class Ending:
    """What a study came to."""

    has_verdict: bool  # whether a primary contrast was judged, where one was due
    excluded: str  # which blocks and treatments were excluded, and why; empty where none was


def ending(data: StudyData, *, measured: bool = True) -> Ending:
    """What a study came to that was measured now; of one that is only reported, no verdict is due before its end."""
    judged = [row for row in data.verdicts if not row.exploratory]
    words = {row.verdict for row in judged if not row.twin} or {row.verdict for row in judged}
    # A part of a divided study gives no verdict by itself.
    is_due = part_of(data.plan, data.environment) is None and (measured or VerdictLabel.PROVISIONAL not in words)
    return Ending(not is_due or not words <= {VerdictLabel.INVALID, VerdictLabel.PROVISIONAL}, _excluded(data))


def _excluded(data: StudyData) -> str:
    said = []
    for load, taken in data.inclusions.items():
        at = f" at {load}" if len(data.plan.study.loads) > 1 else ""
        if taken.excluded:
            several = "s" * (len(taken.excluded) > 1)
            every = len(taken.excluded) == len(data.plan.study.treatments)
            named = "every treatment" if every else f"treatment{several} {' and '.join(taken.excluded)}"
            failed = [run for run in taken.chosen.values() if run.treatment in taken.excluded and not run.valid]
            said.append(f"{named}{at} excluded: {_why(failed)}")
        if lost := len(taken.excluded_blocks):
            total = lost + len(taken.blocks) + len(taken.unfinished)
            failed = [run for runs in taken.excluded_blocks.values() for run in runs]
            used = f"; the verdicts use the other {len(taken.blocks)}" if taken.blocks else ""
            said.append(f"{lost} of {total} blocks{at} excluded: {_why(failed)}{used}")
    return "; ".join(said)


def _why(failed: Sequence[RunRecord]) -> str:
    """The worst value of every check that failed; the first reason of a run that failed no check of load."""
    worst: dict[str, GateResult] = {}
    for gate in (gate for run in failed for gate in run.failed_gates):
        if gate.name not in worst or (gate.value or 0.0) > (worst[gate.name].value or 0.0):
            worst[gate.name] = gate
    others = [run.reasons[0] for run in failed if run.reasons and not run.failed_gates]
    return ", ".join([*(_ADVICE.split(gate.message)[0] for gate in worst.values()), *dict.fromkeys(others[:1])])
