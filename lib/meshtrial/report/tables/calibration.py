"""The inference on known truth, and this machine's own A/A tests, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial import stats
from meshtrial.inference.instrument import Repetition, aa_repetitions
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.markup import Cell, ColumnOf, Fragment, Table, paragraph


def simulation_checks(rows: Sequence[stats.CheckResult]) -> Fragment:
    """Every simulated check: the share of studies against what it should be."""
    columns: list[ColumnOf[stats.CheckResult]] = [
        ColumnOf("check", lambda row: row.check, wide=True),
        ColumnOf("situation", lambda row: row.cell, wide=True),
        ColumnOf("should be", lambda row: f"{row.rule} {row.nominal:.3g}"),
        ColumnOf("observed", _observed, numeric=True),
        ColumnOf("studies", lambda row: row.repetitions, numeric=True),
        ColumnOf("holds", lambda row: "yes" if row.passed else "NO"),
    ]
    failed = sum(not row.passed for row in rows)
    note = "Three Monte-Carlo standard errors are allowed. " + (f"{failed} do not hold." if failed else "All hold.")
    return Table.of("Simulated studies with known truth", columns, rows, note).fragment()


def _observed(row: stats.CheckResult) -> Cell:
    return Cell(f"{row.observed:.4f}", row.observed, note=f"standard error {row.mc_se:.4f}")


def aa_table(data: StudyData, size: int = 6) -> Fragment:
    """The machine's own A/A studies of ``size`` blocks, cut from the recorded baseline and twin."""
    found = aa_repetitions(data, size)
    if not found:
        return paragraph(f"Fewer than {size} blocks were recorded: no A/A study of that size can be cut from them.")
    columns: list[ColumnOf[Repetition]] = [
        ColumnOf("blocks", lambda one: f"{one.blocks[0]} to {one.blocks[-1]}"),
        ColumnOf("p", lambda one: Cell(wording.probability(one.p), one.p), numeric=True),
        ColumnOf("called different", lambda one: one.called),
    ]
    called = sum(one.called for one in found)
    note = f"{called} of {len(found)} call a difference where there is none; by chance it would be about one in 32."
    return Table.of(f"A/A studies of {size} blocks on this machine", columns, found, note).fragment()
