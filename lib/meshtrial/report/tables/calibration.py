"""Is the instrument right: the inference on known truth, this machine's own A/A tests, and more load generators."""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial import stats
from meshtrial.inference import instrument
from meshtrial.inference.instrument import AaStudy, aa_studies
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph

_NOTE = (
    "The same treatment, load and blocks; only the number of generators differs. Where the treatment is what is "
    "measured the verdict is equivalent: the generators are not the limit. Exploratory, corrected by Benjamini and "
    "Hochberg within a treatment and response."
)


def simulation_checks(rows: Sequence[stats.CheckResult]) -> Fragment:
    """Every simulated check: the share of studies against what it should be."""
    columns: list[Column[stats.CheckResult]] = [
        Column("check", lambda row: row.check, wide=True),
        Column("situation", lambda row: row.cell, wide=True),
        Column("should be", lambda row: f"{row.rule} {row.nominal:.3g}"),
        Column(
            "observed",
            lambda row: Cell(f"{row.observed:.4f}", row.observed, note=f"standard error {row.mc_se:.4f}"),
            numeric=True,
        ),
        Column("studies", lambda row: row.repetitions, numeric=True),
        Column("holds", lambda row: "yes" if row.passed else "NO"),
    ]
    failed = sum(not row.passed for row in rows)
    note = "Three Monte-Carlo standard errors are allowed. " + (f"{failed} do not hold." if failed else "All hold.")
    return Table.of("Simulated studies with known truth", columns, rows, note).fragment()


def aa_table(data: StudyData, size: int = 6) -> Fragment:
    """The machine's own A/A studies of ``size`` blocks, cut from the recorded baseline and twin."""
    found = aa_studies(data, size)
    columns: list[Column[AaStudy]] = [
        Column("blocks", lambda one: f"{one.blocks[0]} to {one.blocks[-1]}"),
        Column("p", lambda one: Cell(wording.probability(one.p), one.p), numeric=True),
        Column("called different", lambda one: one.called),
    ]
    called = sum(one.called for one in found)
    note = f"{called} of {len(found)} call a difference where there is none; by chance it would be about one in 32."
    nothing = f"Fewer than {size} blocks were recorded: no A/A study of that size can be cut from them."
    return Table.of(f"A/A studies of {size} blocks on this machine", columns, found, note).fragment(nothing)


def generators(data: StudyData) -> Fragment:
    """A table a load; one sentence where the study has one number of generators."""
    found = [_table(data, one).fragment() for one in instrument.sweeps(data)]
    if not found:
        return paragraph("One number of load generators: whether they were the limit, their own checks say.")
    return join(*found)


def _table(data: StudyData, one: instrument.Sweep) -> Table:
    rows = [
        (treatment.name, row)
        for treatment in data.plan.study.treatments
        for response in data.plan.study.primary
        if not treatment.twin
        for row in instrument.contrasts(data, one, treatment.name, response)
    ]
    columns: list[Column[tuple[str, VerdictRow]]] = [
        Column("treatment", lambda row: row[0]),
        Column("response", lambda row: wording.short_label(row[1].response), wide=True),
        Column("generators", lambda row: f"{row[1].treatment} against {row[1].baseline}"),
        Column("median", lambda row: _median(row[1]), numeric=True),
        Column("effect", lambda row: wording.effect(row[1]), numeric=True),
        Column("interval", lambda row: wording.effect_interval(row[1]), numeric=True),
        Column("verdict", lambda row: wording.verdict_text(row[1])),
    ]
    return Table.of(f"More generators, {one.name}", columns, rows, _NOTE)


def _median(row: VerdictRow) -> Cell:
    median, before = (wording.in_unit(row.response, value) for value in (row.treatment_value, row.baseline_value))
    return Cell(median, row.treatment_value, note=before)
