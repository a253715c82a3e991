"""The tables of the notebook ``published``."""

from __future__ import annotations

from typing import Any

from meshtrial.articles import published
from meshtrial.articles.claims import Claim, claims
from meshtrial.articles.published import Needed, Settings, Single
from meshtrial.report import Fragment, wording
from meshtrial.report.markup import Cell, ColumnOf, Table, part

# Beyond this a number of pairs only says: out of reach.
MOST = 1000


def sources_table() -> Fragment:
    """Where every number was printed."""
    columns: list[ColumnOf[dict[str, Any]]] = [
        ColumnOf("file", lambda row: f"data/published/{row['file']}"),
        ColumnOf("source", lambda row: Cell(row["source"], html=part("link", row["url"], row["source"]))),
        ColumnOf("numbers", lambda row: row["numbers"], numeric=True),
        ColumnOf("of repeated runs", lambda row: row["of repeated runs"], numeric=True),
    ]
    return Table.of("Transcribed numbers", columns, published.sources().iter_rows(named=True)).fragment()


def needed_table(settings: Settings) -> Fragment:
    """How many pairs each repeated response would have needed."""
    margin = wording.declared_percent(settings.margin)
    columns: list[ColumnOf[Needed]] = [
        ColumnOf("response", lambda need: need.response),
        ColumnOf("change", lambda need: Cell(wording.change(need.ratio), need.ratio), numeric=True),
        ColumnOf("noise of a pair", lambda need: Cell(wording.percent(need.sd), need.sd), numeric=True),
        ColumnOf("pairs printed", lambda need: need.n, numeric=True),
        ColumnOf("for an effect as printed", lambda need: _pairs(need.for_estimate), numeric=True),
        ColumnOf(f"for an effect of {margin}", lambda need: _pairs(need.for_margin), numeric=True),
        ColumnOf(f"for equivalence within {margin}", lambda need: _pairs(need.for_equivalence), numeric=True),
    ]
    found = published.needed(settings)
    note = (
        "Power 0.8, never fewer than the exact test's own floor. The noise is estimated from three pairs, so it may be "
        "off by a factor of two and more: read the numbers as orders of magnitude."
    )
    return Table.of("Pairs needed", columns, found, note, groups=[need.experiment for need in found]).fragment()


def _pairs(count: int | None) -> Cell | int | None:
    return Cell(f"more than {MOST}", count) if count is not None and count > MOST else count


def singles_table(*names: str) -> Fragment:
    """What these files, or all, print without a replicate, as arithmetic."""
    columns: list[ColumnOf[Single]] = [
        ColumnOf("response", lambda one: f"{one.response}, {one.treatment}"),
        ColumnOf("baseline → treatment", _from_to),
        ColumnOf("quotient", lambda one: Cell(f"{one.ratio:.2f}{wording.TIMES}", one.ratio), numeric=True),
        ColumnOf("what it is", lambda one: one.statistic),
        ColumnOf("can be tested", lambda _: "no: it has no replicate"),
    ]
    found = published.singles(*names)
    note = "A quotient of two numbers without a spread: no interval, no p, no verdict belongs beside it."
    groups = [one.experiment for one in found]
    return Table.of("Printed once, or as a mean", columns, found, note, groups=groups).fragment()


def _from_to(one: Single) -> str:
    return f"{one.baseline} {wording.plain(one.baseline_value)} → {wording.plain(one.value)} {one.unit}"


def claims_table(settings: Settings) -> Fragment:
    """Which printed sentences stand."""
    columns: list[ColumnOf[Claim]] = [
        ColumnOf("claim", _claimed, wide=True),
        ColumnOf("the printed numbers", lambda claim: claim.numbers, wide=True),
        ColumnOf("stands", lambda claim: claim.stands),
        ColumnOf("shown?", lambda claim: claim.inference, wide=True),
    ]
    return Table.of("Printed claims", columns, claims(settings)).fragment()


def _claimed(claim: Claim) -> Cell:
    return Cell(f"“{claim.words}”" if claim.quoted else claim.words, note=claim.place)
