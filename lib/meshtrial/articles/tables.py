"""The tables of the notebook ``published``."""

from __future__ import annotations

from meshtrial.articles import published
from meshtrial.articles.claims import claims
from meshtrial.articles.published import Settings
from meshtrial.report import Fragment, wording
from meshtrial.report.markup import Cell, Column, Table, part

# Beyond this a number of pairs only says: out of reach.
MOST = 1000


def sources_table() -> Fragment:
    """Where every number was printed."""
    columns = [
        Column("file"),
        Column("source"),
        Column("numbers", numeric=True),
        Column("of repeated runs", numeric=True),
    ]
    rows = [
        [
            Cell(f"data/published/{row['file']}"),
            Cell(row["source"], html=part("link", row["url"], row["source"])),
            Cell(str(row["numbers"]), row["numbers"]),
            Cell(str(row["of repeated runs"]), row["of repeated runs"]),
        ]
        for row in published.sources().iter_rows(named=True)
    ]
    return Table("Transcribed numbers", columns, rows).fragment()


def needed_table(settings: Settings) -> Fragment:
    """How many pairs each repeated response would have needed."""
    margin = wording.declared_percent(settings.margin)
    columns = [
        Column("response"),
        Column("change", numeric=True),
        Column("noise of a pair", numeric=True),
        Column("pairs printed", numeric=True),
        Column("for an effect as printed", numeric=True),
        Column(f"for an effect of {margin}", numeric=True),
        Column(f"for equivalence within {margin}", numeric=True),
    ]
    found = published.needed(settings)
    rows = [
        [
            Cell(need.response),
            Cell(wording.change(need.ratio), need.ratio),
            Cell(wording.percent(need.sd), need.sd),
            Cell(str(need.n), need.n),
            _pairs(need.for_estimate),
            _pairs(need.for_margin),
            _pairs(need.for_equivalence),
        ]
        for need in found
    ]
    note = (
        "Power 0.8, never fewer than the exact test's own floor. The noise is estimated from three pairs, so it may be "
        "off by a factor of two and more: read the numbers as orders of magnitude."
    )
    return Table("Pairs needed", columns, rows, note, groups=[need.experiment for need in found]).fragment()


def _pairs(count: int | None) -> Cell:
    if count is None:
        return Cell("–")
    return Cell(f"more than {MOST}" if count > MOST else str(count), count)


def singles_table(*names: str) -> Fragment:
    """What these files, or all, print without a replicate, as arithmetic."""
    columns = [
        Column("response"),
        Column("baseline → treatment"),
        Column("quotient", numeric=True),
        Column("what it is"),
        Column("can be tested"),
    ]
    found = published.singles(*names)
    rows = [
        [
            Cell(f"{one.response}, {one.treatment}"),
            Cell(f"{one.baseline} {wording.plain(one.baseline_value)} → {wording.plain(one.value)} {one.unit}"),
            Cell(f"{one.ratio:.2f}{wording.TIMES}", one.ratio),
            Cell(one.statistic),
            Cell("no: it has no replicate"),
        ]
        for one in found
    ]
    note = "A quotient of two numbers without a spread: no interval, no p, no verdict belongs beside it."
    return Table("Printed once, or as a mean", columns, rows, note, groups=[one.experiment for one in found]).fragment()


def claims_table(settings: Settings) -> Fragment:
    """Which printed sentences stand."""
    columns = [
        Column("claim", wide=True),
        Column("the printed numbers", wide=True),
        Column("stands"),
        Column("shown?", wide=True),
    ]
    rows = [
        [
            Cell(f"“{claim.words}”" if claim.quoted else claim.words, note=claim.place),
            Cell(claim.numbers),
            Cell(claim.stands),
            Cell(claim.inference),
        ]
        for claim in claims(settings)
    ]
    return Table("Printed claims", columns, rows).fragment()
