"""Restarts under load: what failed and how, and how long nothing was answered, run by run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, ColumnOf, Fragment, Table, paragraph

_NOTE = (
    "Medians over the runs, and from the least to the most of them. Failed requests are those of the whole run; the "
    "longest silence, the time without an answer on any connection, is that around the restart, or around the same "
    "moment where nothing was restarted. Reconnects are broken connections whose request the load generator repeated "
    "in silence."
)


def restarts(data: StudyData) -> Fragment:
    """A row a treatment; one sentence where no run of the study restarted anything."""
    runs = [run for run in data.included_runs() if "failed_requests" in run.responses]
    if not any("restart" in run.extra for run in runs):
        return paragraph("No run that takes part in the inference restarted anything.")
    of = {
        name: [run for run in runs if run.treatment == name] for name in frames.order(data, [r.treatment for r in runs])
    }
    columns: list[ColumnOf[list[RunRecord]]] = [
        ColumnOf("treatment", lambda mine: mine[0].treatment),
        ColumnOf("runs", lambda mine: wording.count(len(mine)), numeric=True),
        ColumnOf("restart took", lambda mine: _spread(mine, "restart_s"), numeric=True),
        ColumnOf("failed requests", lambda mine: _spread(mine, "failed_requests"), numeric=True),
        ColumnOf("of these", _kinds),
        ColumnOf("longest silence", lambda mine: _spread(mine, "longest_gap_s"), numeric=True),
        ColumnOf("reconnects", lambda mine: _spread(mine, "reconnects"), numeric=True),
    ]
    return Table.of("Restarts under load", columns, of.values(), _NOTE).fragment()


def _kinds(runs: Sequence[RunRecord]) -> str:
    counted = sum((Counter(run.failures) for run in runs), Counter[str]())
    return ", ".join(f"{wording.count(number)} {kind}" for kind, number in counted.most_common()) or "–"


def _spread(runs: Sequence[RunRecord], response: str) -> Cell | None:
    values = [run.responses[response] for run in runs if response in run.responses]
    if not values:
        return None
    middle, least, most = float(np.median(values)), min(values), max(values)
    ends = f"{wording.in_unit(response, least)} to {wording.in_unit(response, most)}"
    return Cell(wording.in_unit(response, middle), middle, note=ends if least < most else "")
