"""The columns of the verdict table, each declared once: pages, Markdown and terminals show them from this list.

A column names the outputs that show it. An output that shows it differently has a function of its own: a page adds a
second line, Markdown has no room for one, a terminal has a hundred columns.
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

Output = Literal["page", "markdown", "terminal", "below"]  # a terminal has one line, and further lines below it
PAGE, MARKDOWN, TERMINAL, BELOW = get_args(Output)


@dataclass(frozen=True)
class Line:
    """A verdict row, the contrasts of its table, the number of its treatment's runs, and a CI gate's result."""

    row: VerdictRow
    contrasts: Contrasts
    runs: int = 0
    gate: str = "–"


ValueOf = Callable[[Line], object]  # from a line to any value that `markup.cell` accepts


@dataclass(frozen=True)
class VerdictColumn:
    """A column of the verdict table, and what each output shows in it."""

    heading: str  # may contain {counted} (blocks or runs) and {corrected} (the name of the corrected p)
    value: ValueOf
    outputs: Sequence[Output] = (PAGE, MARKDOWN, BELOW)
    values: Mapping[Output, ValueOf] = field(default_factory=dict)  # replaces `value` in an output
    meaning: str = ""  # shown in the legend if the heading does not explain itself
    name: bool = False  # whether it holds a name from the records, which Markdown writes as code
    numeric: bool = False
    middle: bool = False

    def value_in(self, output: Output, line: Line) -> object:
        """Return the value that an output shows, None for a missing one."""
        return self.values.get(output, self.value)(line)


def columns_of(output: Output) -> list[VerdictColumn]:
    """Return the columns of an output in order."""
    return [column for column in COLUMNS if output in column.outputs]


def _treatment_on_page(line: Line) -> Cell:
    row = line.row
    against = f"against {row.baseline}" if len(line.contrasts.baselines) > 1 else ""
    return Cell(wording.treatment(row), note=against)


def _value(line: Line) -> str:
    row = line.row
    bucket = " [bucket]" if wording.warned(row, COARSE_QUANTILE) else ""
    return wording.in_unit(wording.response_of(row), row.treatment_value) + bucket


def _verdict(line: Line) -> str:
    reported = line.contrasts.reported(line.row)
    return wording.verdict_text(line.row) if reported else f"{VerdictLabel.INVALID}: not reported"


def _verdict_below(line: Line) -> str:
    return ", ".join(filter(None, (line.row.sentence, wording.uncorrected(line.row))))


def _verdict_on_page(line: Line) -> Cell:
    """Return the verdict with qualifier and corrected p; the stored verdict is the cell's value."""
    row, contrasts = line.row, line.contrasts
    text: str
    if contrasts.reported(row):
        text, html = row.verdict, verdict_badge(row.verdict)
        why = {VerdictLabel.SATURATED: "requested rate not reached", VerdictLabel.INVALID: "see validity"}.get(
            row.verdict, ""
        )
    else:
        text, html = "not reported", Fragment("quiet", "not reported")
        why = "too few requests" if row.response.startswith("latency_") else "not measured"
    corrected = "q" if row.adjustment == "benjamini-hochberg" else "p"
    parts = (
        wording.qualifier(row),
        wording.uncorrected(row),
        wording.equation(corrected, row.p_adjusted) if row.p_adjusted is not None else "",
        f"{row.n_blocks} {row.counted}" if row.n_blocks and row.n_blocks != contrasts.blocks else "",
        why,
        "after the fact" if row.after_the_fact else "",
    )
    return Cell(text, row.verdict, html, ", ".join(filter(None, parts)))


def _note(ends: str) -> str:
    """Return an interval as a cell's note, nothing if the interval is unknown."""
    return "" if ends == wording.UNKNOWN else ends


def _change(line: Line) -> Cell:
    row = line.row
    ends = "" if row.ratio is None else _note(wording.change_interval(row.ci_low, row.ci_high))
    return Cell(wording.change(row.ratio, row.ci_high), row.ratio, note=ends)


def _change_on_page(line: Line) -> Cell:
    change, row = _change(line), line.row
    unusual = _unusual_confidence(line) if change.note and not row.by_difference else ""
    return Cell(change.text, change.value, note=change.note + unusual)


def _unusual_confidence(line: Line) -> str:
    """Return the confidence of the judged interval if it is not that of the table, and whether it is too narrow."""
    confidence, mark = line.row.confidence, wording.interval_mark(line.row)
    return ("" if line.row.ratio is None or confidence in (None, line.contrasts.confidence) else _at(line.row)) + mark


def _at(row: VerdictRow) -> str:
    return f" at {wording.percent(row.confidence)}"


def _interval(line: Line) -> str:
    row = line.row
    ends = wording.effect_interval(row)
    return ends if ends == wording.UNKNOWN or row.confidence is None else ends + _at(row) + wording.interval_mark(row)


def _added(line: Line) -> Cell:
    row = line.row
    ends = "" if row.difference_low is None else wording.added_interval(row)
    return Cell(wording.added(row), row.difference, note=ends)


def _added_on_page(line: Line) -> Cell:
    added = _added(line)
    unusual = _unusual_confidence(line) if added.note and line.row.by_difference else ""
    return Cell(added.text, added.value, note=added.note + unusual)


def _other_effect(line: Line) -> Cell | None:
    """Return the effect that does not decide the verdict, or None if it would repeat the deciding one."""
    row = line.row
    if row.ratio is None or not wording.response_of(row).unit:
        return None
    if row.by_difference:
        return _change(line)
    return Cell(wording.added(row), note=_note(wording.added_interval(row)))


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
    # The floor decides. Its share of the baseline is on the second line, because the column is already wide.
    below = "; ".join(filter(None, (wording.margin_share(row), detectable)))
    return Cell(f"±{wording.in_unit(row.response, row.margin_floor)}", row.margin, note=below)


def _detects(line: Line) -> str | None:
    row = line.row
    return None if row.mde is None else wording.mde_text(row)


_DETECTS = "the smallest effect that this number of blocks detects with 80 % power, given this noise"
# In the order of every output.
COLUMNS: list[VerdictColumn] = [
    VerdictColumn(
        "treatment",
        lambda line: Cell(line.row.treatment, note="A/A twin" if line.row.twin else ""),
        (PAGE, MARKDOWN, TERMINAL),
        {PAGE: _treatment_on_page},
        name=True,
    ),
    # A page has these two in the treatment's second line and above the rows, a terminal above the rows.
    VerdictColumn("against", lambda line: line.row.baseline, (MARKDOWN,), name=True),
    VerdictColumn("response", lambda line: wording.typical(line.row), (MARKDOWN,)),
    VerdictColumn("{counted}", lambda line: line.runs, (TERMINAL,)),
    VerdictColumn("median", _value, (TERMINAL,)),
    VerdictColumn(
        "verdict",
        _verdict,
        values={PAGE: _verdict_on_page, BELOW: _verdict_below},
        middle=True,
    ),
    VerdictColumn(
        "change",
        _change,
        (PAGE, MARKDOWN, TERMINAL),
        {PAGE: _change_on_page, TERMINAL: lambda line: wording.effect(line.row)},
        numeric=True,
    ),
    # A page has the interval in the second line of the change, and the corrected p in that of the verdict.
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
    VerdictColumn("besides", _other_effect, (BELOW,)),
    VerdictColumn("baseline → treatment", _values, (PAGE,), numeric=True),
    VerdictColumn("equivalence p", _p_equivalence, (BELOW,)),
    # A terminal has the margin in the title above the rows, a page the detectable effect in the margin's second line.
    VerdictColumn("margin", _margin, (PAGE, MARKDOWN), {PAGE: _margin_on_page}, numeric=True),
    VerdictColumn("detects", _detects, (BELOW,), meaning=_DETECTS),
    VerdictColumn("gate", lambda line: line.gate, (MARKDOWN,)),
]
