"""The inference on known truth, and this machine's own A/A tests, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial import stats
from meshtrial.inference.instrument import aa_repetitions
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, paragraph


def simulation_checks(rows: Sequence[stats.CheckResult]) -> Fragment:
    """Every simulated check: the share of studies against what it should be."""
    columns = [
        Column("check", wide=True),
        Column("situation", wide=True),
        Column("should be"),
        Column("observed", numeric=True),
        Column("studies", numeric=True),
        Column("holds"),
    ]
    cells = [
        [
            Cell(row.check),
            Cell(row.cell),
            Cell(f"{row.rule} {row.nominal:.3g}"),
            Cell(f"{row.observed:.4f}", row.observed, note=f"standard error {row.mc_se:.4f}"),
            Cell(str(row.repetitions), row.repetitions),
            Cell("yes" if row.passed else "NO"),
        ]
        for row in rows
    ]
    failed = sum(not row.passed for row in rows)
    note = "Three Monte-Carlo standard errors are allowed. " + (f"{failed} do not hold." if failed else "All hold.")
    return Table("Simulated studies with known truth", columns, cells, note).fragment()


def aa_table(data: StudyData, size: int = 6) -> Fragment:
    """The machine's own A/A studies of ``size`` blocks, cut from the recorded baseline and twin."""
    found = aa_repetitions(data, size)
    if not found:
        text = f"Fewer than {size} blocks were recorded: no A/A study of that size can be cut from them."
        return Fragment(paragraph(text), text)
    called = sum(one.called for one in found)
    columns = [Column("blocks"), Column("p", numeric=True), Column("called different")]
    cells = [
        [
            Cell(f"{one.blocks[0]} to {one.blocks[-1]}"),
            Cell(wording.probability(one.p), one.p),
            Cell("yes" if one.called else "no"),
        ]
        for one in found
    ]
    note = f"{called} of {len(found)} call a difference where there is none; by chance it would be about one in 32."
    return Table(f"A/A studies of {size} blocks on this machine", columns, cells, note).fragment()
