"""The columns of the verdict table, each declared once: pages, Markdown and a terminal show them from this list.

An output shows a column unless the list says that it cannot hold it. Where one says the same in another way (a page
adds a quieter line, Markdown has room for none, a terminal has a hundred columns), that stands beside the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from meshtrial.records.schema import VerdictRow
from meshtrial.report import wording
from meshtrial.report.frames import Contrasts
from meshtrial.report.markup import Cell, Fragment, verdict_badge
from meshtrial.vocabulary import COARSE_QUANTILE, VerdictLabel

Output = Literal["page", "markdown", "terminal", "below"]  # the last two: beside a treatment's name, and in lines below
PAGE, MARKDOWN, TERMINAL, BELOW = get_args(Output)


@dataclass(frozen=True)
class Line:
    """A verdict row among those of its table, the runs of its treatment, and a gate's answer where there is one."""

    row: VerdictRow
    among: Contrasts
    runs: int = 0
    gate: str = "–"


Said = Callable[[Line], object]


@dataclass(frozen=True)
class VerdictColumn:
    """What every output says of a verdict row in one place."""

    heading: str  # may name {counted} and {corrected}: blocks or runs, a p of Holm or a q
    said: Said  # from a line to any value that `markup.cell` takes
    outputs: Sequence[Output] = (PAGE, MARKDOWN, BELOW)  # by default all three, in a terminal below the row
    otherwise: Mapping[Output, Said] = field(default_factory=dict)  # what an output says instead
    meaning: str = ""  # what the legend says of it, where its heading does not say enough
    name: bool = False  # a name out of the records, which Markdown writes as code and a terminal as it is
    numeric: bool = False
    middle: bool = False

    def shows(self, output: Output, line: Line) -> object:
        """What an output shows: any value that `markup.cell` takes, None for what is not there."""
        return self.otherwise.get(output, self.said)(line)


def columns_of(output: Output) -> list[VerdictColumn]:
    """The columns of an output, in their order."""
    return [column for column in COLUMNS if output in column.outputs]


def _treatment_on_page(line: Line) -> Cell:
    row = line.row
    against = f"against {row.baseline}" if len(line.among.baselines) > 1 else ""
    return Cell(wording.treatment(row), note=against)


def _value(line: Line) -> str:
    row = line.row
    bucket = " [bucket]" if wording.warned(row, COARSE_QUANTILE) else ""
    return wording.in_unit(wording.response_of(row), row.treatment_value) + bucket


def _verdict(line: Line) -> str:
    reported = line.among.reported(line.row)
    return wording.verdict_text(line.row) if reported else f"{VerdictLabel.INVALID}: not reported"


def _verdict_on_page(line: Line) -> Cell:
    """The verdict, as it is stored behind; what was not reported has none to be read."""
    row, among = line.row, line.among
    said: str
    if among.reported(row):
        said, html = row.verdict, verdict_badge(row.verdict)
        why = {VerdictLabel.SATURATED: "asked rate not held", VerdictLabel.INVALID: "see validity"}.get(row.verdict, "")
    else:
        said, html = "not reported", Fragment("quiet", "not reported")
        why = "too few requests" if row.response.startswith("latency_") else "not measured"
    corrected = "q" if row.adjustment == "benjamini-hochberg" else "p"
    behind = (
        wording.qualifier(row),
        wording.equation(corrected, row.p_adjusted) if row.p_adjusted is not None else "",
        f"{row.n_blocks} {among.counted}" if row.n_blocks and row.n_blocks != among.blocks else "",
        why,
        "after the fact" if row.after_the_fact else "",
    )
    return Cell(said, row.verdict, html, ", ".join(filter(None, behind)))


def _known(ends: str) -> str:
    """An interval as a quieter line; none where it has no end."""
    return "" if ends == wording.UNKNOWN else ends


def _change(line: Line) -> Cell:
    row = line.row
    ends = "" if row.ratio is None else _known(wording.change_interval(row.ci_low, row.ci_high))
    return Cell(wording.change(row.ratio, row.ci_high), row.ratio, note=ends)


def _change_on_page(line: Line) -> Cell:
    change, row = _change(line), line.row
    odd = _odd(line) if change.note and not row.by_difference else ""
    return Cell(change.text, change.value, note=change.note + odd)


def _odd(line: Line) -> str:
    """The confidence of the judged interval, where it is not that of the others."""
    own = line.row.confidence
    return "" if line.row.ratio is None or own in (None, line.among.confidence) else _at(line.row)


def _at(row: VerdictRow) -> str:
    return f" at {wording.percent(row.confidence)}"


def _interval(line: Line) -> str:
    row = line.row
    ends = wording.effect_interval(row)
    return ends if ends == wording.UNKNOWN or row.confidence is None else ends + _at(row)


def _added(line: Line) -> Cell:
    row = line.row
    ends = "" if row.difference_low is None else wording.added_interval(row)
    return Cell(wording.added(row), row.difference, note=ends)


def _added_on_page(line: Line) -> Cell:
    added = _added(line)
    odd = _odd(line) if added.note and line.row.by_difference else ""
    return Cell(added.text, added.value, note=added.note + odd)


def _beside(line: Line) -> Cell | None:
    """The effect that does not carry the verdict, where it says more."""
    row = line.row
    if row.ratio is None or not wording.response_of(row).unit:
        return None
    if row.by_difference:
        return _change(line)
    return Cell(wording.added(row), note=_known(wording.added_interval(row)))


def _values(line: Line) -> Cell | None:
    row = line.row
    if row.baseline_value is None or row.treatment_value is None:
        return None
    response = wording.response_of(row)
    unit = wording.unit(response)
    before, after = (
        wording.in_unit(response, value).removesuffix(unit).strip()
        for value in (row.baseline_value, row.treatment_value)
    )
    return Cell(f"{before} → {after} {unit}".strip(), html=Fragment("before_after", row, before, after, unit))


def _p_equivalence(line: Line) -> str | None:
    row = line.row
    if row.p_equivalence_adjusted is None or row.verdict not in (VerdictLabel.EQUIVALENT, VerdictLabel.INCONCLUSIVE):
        return None
    return wording.probability(row.p_equivalence_adjusted)


def _margin(line: Line) -> str:
    return wording.margin(line.row, "±")


def _margin_on_page(line: Line) -> Cell:
    row = line.row
    detectable = "" if row.mde is None else f"detects {wording.mde_text(row)}"
    if row.margin is None or row.margin_floor is None:
        return Cell(_margin(line), row.margin, note=detectable)
    # The floor decides; what it is of the baseline goes to the line below, where the column is already wide.
    below = "; ".join(filter(None, (wording.margin_share(row), detectable)))
    return Cell(f"±{wording.in_unit(row.response, row.margin_floor)}", row.margin, note=below)


def _detects(line: Line) -> str | None:
    row = line.row
    return None if row.mde is None else wording.mde_text(row)


_DETECTS = "the smallest effect that this many blocks with this much noise would find four times out of five"
# In the order in which every output has them.
COLUMNS: list[VerdictColumn] = [
    VerdictColumn(
        "treatment",
        lambda line: Cell(line.row.treatment, note="A/A twin" if line.row.twin else ""),
        (PAGE, MARKDOWN, TERMINAL),
        {PAGE: _treatment_on_page},
        name=True,
    ),
    # A page says these two in a line of the treatment and over its rows, a terminal over its rows.
    VerdictColumn("against", lambda line: line.row.baseline, (MARKDOWN,), name=True),
    VerdictColumn("response", lambda line: wording.typical(line.row), (MARKDOWN,)),
    VerdictColumn("{counted}", lambda line: line.runs, (TERMINAL,)),
    VerdictColumn("median", _value, (TERMINAL,)),
    VerdictColumn(
        "verdict", _verdict, otherwise={PAGE: _verdict_on_page, BELOW: lambda line: line.row.sentence}, middle=True
    ),
    VerdictColumn(
        "change",
        _change,
        (PAGE, MARKDOWN, TERMINAL),
        {PAGE: _change_on_page, TERMINAL: lambda line: wording.effect(line.row)},
        numeric=True,
    ),
    # A page has its interval in the quieter line of the change, and the corrected p in that of the verdict.
    VerdictColumn("interval", _interval, (TERMINAL,)),
    VerdictColumn("p", lambda line: wording.probability(line.row.p), (TERMINAL,)),
    VerdictColumn(
        "{corrected}", lambda line: "" if line.row.twin else wording.probability(line.row.p_adjusted), (TERMINAL,)
    ),
    VerdictColumn(
        "added",
        _added,
        (PAGE, MARKDOWN),
        {PAGE: _added_on_page, MARKDOWN: lambda line: wording.added(line.row)},
        numeric=True,
    ),
    VerdictColumn("besides", _beside, (BELOW,)),
    VerdictColumn("baseline → treatment", _values, (PAGE,), numeric=True),
    VerdictColumn("equivalence p", _p_equivalence, (BELOW,)),
    # A terminal says the margin in the title over the rows; a page what they detect in the margin's quieter line.
    VerdictColumn("margin", _margin, (PAGE, MARKDOWN), {PAGE: _margin_on_page}, numeric=True),
    VerdictColumn("detects", _detects, (BELOW,), meaning=_DETECTS),
    VerdictColumn("gate", lambda line: line.gate, (MARKDOWN,)),
]
