"""Restarts under load: what failed and how, and how long nothing was answered, run by run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, paragraph

_NOTE = (
    "Medians over the runs, and from the least to the most of them. Failed requests are those of the whole run; the "
    "longest silence, the time without an answer on any connection, is that around the restart, or around the same "
    "moment where nothing was restarted. Reconnects are broken connections whose request the load generator repeated "
    "in silence."
)
_COUNTED = ("restart_s", "failed_requests", "longest_gap_s", "reconnects")


def restarts(data: StudyData) -> Fragment:
    """A row a treatment; one sentence where no run of the study restarted anything."""
    runs = [run for run in data.included_runs() if "failed_requests" in run.responses]
    if not any("restart" in run.extra for run in runs):
        return Fragment(paragraph(text := "No run that takes part in the inference restarted anything."), text)
    columns = [Column("treatment"), Column("runs", numeric=True), Column("restart took", numeric=True)]
    columns += [Column("failed requests", numeric=True), Column("of these", numeric=False)]
    columns += [Column("longest silence", numeric=True), Column("reconnects", numeric=True)]
    rows = []
    for name in frames.order(data, [run.treatment for run in runs]):
        mine = [run for run in runs if run.treatment == name]
        took, failed, gap, broke = (_spread(mine, response) for response in _COUNTED)
        kinds = sum((Counter(run.failures) for run in mine), Counter[str]())
        rows.append([Cell(name), Cell(wording.count(len(mine))), took, failed, Cell(_kinds(kinds)), gap, broke])
    return Table("Restarts under load", columns, rows, _NOTE).fragment()


def _kinds(counted: Counter[str]) -> str:
    return ", ".join(f"{wording.count(number)} {kind}" for kind, number in counted.most_common()) or "–"


def _spread(runs: Sequence[RunRecord], response: str) -> Cell:
    values = [run.responses[response] for run in runs if response in run.responses]
    if not values:
        return Cell("–")
    middle, least, most = float(np.median(values)), min(values), max(values)
    shown = wording.in_unit(response, middle)
    if least == most:
        return Cell(shown, middle)
    return Cell(shown, middle, note=f"{wording.in_unit(response, least)} to {wording.in_unit(response, most)}")
