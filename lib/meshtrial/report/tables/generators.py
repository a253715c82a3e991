"""More load generators under the same load: a treatment that is what is measured does not change with them."""

from __future__ import annotations

from meshtrial.inference import sweep
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import wording
from meshtrial.report.markup import Cell, ColumnOf, Fragment, Table, join, paragraph

_NOTE = (
    "The same treatment, load and blocks; only the number of generators differs. Where the treatment is what is "
    "measured the verdict is equivalent: the generators are not the limit. Exploratory, corrected by Benjamini and "
    "Hochberg within a treatment and response."
)


def generators(data: StudyData) -> Fragment:
    """A table a load; one sentence where the study has one number of generators."""
    found = [_table(data, one).fragment() for one in sweep.sweeps(data)]
    if not found:
        return paragraph("One number of load generators: whether they were the limit, their own gates say.")
    return join(*found)


def _table(data: StudyData, one: sweep.Sweep) -> Table:
    rows = [
        (treatment.name, row)
        for treatment in data.plan.study.treatments
        for response in data.plan.study.primary
        if not treatment.twin
        for row in sweep.contrasts(data, one, treatment.name, response)
    ]
    columns: list[ColumnOf[tuple[str, VerdictRow]]] = [
        ColumnOf("treatment", lambda row: row[0]),
        ColumnOf("response", lambda row: wording.short_label(row[1].response), wide=True),
        ColumnOf("generators", lambda row: f"{row[1].treatment} against {row[1].baseline}"),
        ColumnOf("median", lambda row: _median(row[1]), numeric=True),
        ColumnOf("change", lambda row: Cell(wording.change(row[1].ratio, row[1].ci_high), row[1].ratio), numeric=True),
        ColumnOf("interval", lambda row: wording.change_interval(row[1].ci_low, row[1].ci_high), numeric=True),
        ColumnOf("verdict", lambda row: wording.verdict_text(row[1])),
    ]
    return Table.of(f"More generators, {one.name}", columns, rows, _NOTE)


def _median(row: VerdictRow) -> Cell:
    median, before = (wording.in_unit(row.response, value) for value in (row.treatment_value, row.baseline_value))
    return Cell(median, row.treatment_value, note=before)
