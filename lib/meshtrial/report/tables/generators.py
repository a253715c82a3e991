"""More load generators under the same load: a treatment that is what is measured does not change with them."""

from __future__ import annotations

from meshtrial.inference import sweep
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph

_NOTE = (
    "The same treatment, load and blocks; only the number of generators differs. Where the treatment is what is "
    "measured the verdict is equivalent: the generators are not the limit. Exploratory, corrected by Benjamini and "
    "Hochberg within a treatment and response."
)


def generators(data: StudyData) -> Fragment:
    """A table a load; one sentence where the study has one number of generators."""
    found = [_table(data, one).fragment() for one in sweep.sweeps(data)]
    if not found:
        text = "One number of load generators: whether they were the limit, their own gates say."
        return Fragment(paragraph(text), text)
    return join(*found)


def _table(data: StudyData, one: sweep.Sweep) -> Table:
    columns = [Column("treatment"), Column("response", wide=True), Column("generators"), Column("median", numeric=True)]
    columns += [Column("change", numeric=True), Column("interval", numeric=True), Column("verdict")]
    rows = []
    for treatment in (t.name for t in data.plan.study.treatments if not t.twin):
        for response in data.plan.study.primary:
            for row in sweep.contrasts(data, one, treatment, response):
                rows.append([Cell(treatment), *_cells(row)])
    return Table(f"More generators, {one.name}", columns, rows, _NOTE)


def _cells(row: VerdictRow) -> list[Cell]:
    return [
        Cell(wording.short_label(row.response)),
        Cell(f"{row.treatment} against {row.baseline}"),
        Cell(
            wording.in_unit(row.response, row.treatment_value),
            row.treatment_value,
            note=wording.in_unit(row.response, row.baseline_value),
        ),
        Cell(wording.change(row.ratio, row.ci_high), row.ratio),
        Cell(wording.change_interval(row.ci_low, row.ci_high)),
        Cell(wording.verdict_text(row)),
    ]
