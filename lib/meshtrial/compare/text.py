"""The comparison for a terminal: the smallest possible p first, then a table a metric, readable at 100 columns.

Plain ASCII but for the user's own names, so that it can be piped and compared line by line. What was not shown is
inconclusive, with what would settle it.
"""

import textwrap
from collections.abc import Iterator, Sequence

from meshtrial.compare.analysis import Outcome
from meshtrial.design.responses import Response
from meshtrial.records.schema import VerdictRow
from meshtrial.report import palette, wording
from meshtrial.report.frames import Contrasts
from meshtrial.report.markup import cell, in_line
from meshtrial.report.tables.verdict_columns import BELOW, TERMINAL, Line, VerdictColumn, columns_of
from meshtrial.report.wording import to_ascii, warned
from meshtrial.vocabulary import COARSE_QUANTILE

WIDTH = 100


def render(outcome: Outcome) -> str:
    """The whole text."""
    parts = [*(wrap(sentence) for sentence in outcome.limits)]
    for metric in outcome.metrics:
        parts.append(_metric(outcome, metric))
    noted = notes(outcome)
    if noted:
        parts.append("\n".join(["Warnings", *(wrap(note, "  - ", "    ") for note in noted)]))
    parts.append(wrap(method_sentence(outcome)))
    return "\n\n".join(parts)


def wrap(text: str, first: str = "", rest: str = "") -> str:
    """A paragraph of at most 100 columns; names and numbers are never broken."""
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def title(outcome: Outcome) -> str:
    """What is compared with what."""
    return f"{' and '.join(outcome.sample.treatments)} against {outcome.sample.baseline}"


def contrasts(outcome: Outcome) -> Contrasts:
    """The rows as the report's figures and tables take them."""
    sample = outcome.sample
    twin = next((row.treatment for row in outcome.rows if row.twin), None)
    looks = palette.looks_of(sample.baseline, twin, list(sample.by_treatment))
    return Contrasts(outcome.rows, looks, ("",), counted="blocks" if sample.paired else "runs")


def _metric(outcome: Outcome, metric: Response) -> str:
    chosen = contrasts(outcome).where(lambda row: row.response == metric.name)
    rows, sample, columns = chosen.rows, outcome.sample, columns_of(TERMINAL)
    lines = [Line(row, chosen, len(sample.by_treatment[row.treatment])) for row in rows]
    heads = {"counted": chosen.counted, "corrected": "q" if rows[0].exploratory else "p Holm"}
    base = {
        "treatment": sample.baseline,
        "{counted}": str(len(sample.by_treatment[sample.baseline])),
        "median": to_ascii(wording.in_unit(metric, rows[0].baseline_value)),
    }
    # What the names are of stands over them, in the title.
    table = [["", *(column.heading.format(**heads) for column in columns[1:])]]
    table.append([base.get(column.heading, "") for column in columns])
    table += [[_cell(column, line) for column in columns] for line in lines]
    shown = [_title(rows)]
    beside = in_line(table, [not column.name for column in columns])
    for told, below in zip(beside, ["", "", *map(_below, lines)], strict=True):
        shown.append(f"  {told}")
        if below:
            shown.append(wrap(below, "    ", "      "))
    return "\n".join([*shown, *(wrap(sentence, "  ", "  ") for sentence in _explained(outcome, metric, rows))])


def _explained(outcome: Outcome, metric: Response, rows: Sequence[VerdictRow]) -> Iterator[str]:
    if any(warned(row, COARSE_QUANTILE) for row in rows):
        yield "[bucket] the quantile is known to a histogram bucket or to digits wider than the margin"
    if any(row.ratio is not None and wording.effect_interval(row) == wording.UNKNOWN for row in rows):
        yield "The interval has no end on either side where the buckets are as wide as the quantiles themselves."
    opposed = [row.treatment for row in rows if _opposed(metric, row)]
    if opposed:
        of = "ratios" if not rows[0].by_difference else "differences"
        pairs = "within the pairs" if outcome.sample.paired else "of all pairs of runs"
        yield (
            f"The medians of {wording.listing(opposed)} point the other way than the change, which is the middle of "
            f"the {of} {pairs} (Hodges-Lehmann): close to no change, or where runs fall into groups, the two can "
            "differ; look at every run (--html)."
        )


def _opposed(metric: Response, row: VerdictRow) -> bool:
    """Whether the two medians, as they are shown, lie the other way round than the change that is shown."""
    before, after = row.baseline_value, row.treatment_value
    effect = row.difference if row.by_difference else None if row.ratio is None else row.ratio - 1
    if (
        before is None
        or after is None
        or not effect
        or wording.in_unit(metric, before) == wording.in_unit(metric, after)
    ):
        return False
    shown = any(digit in wording.effect(row) for digit in "123456789")
    return shown and (after > before) != (effect > 0)


def _cell(column: VerdictColumn, line: Line) -> str:
    text = cell(column.value_in(TERMINAL, line)).line
    return text if column.name else to_ascii(text)


def _below(line: Line) -> str:
    """The columns below a row's own line, without what is not there; a verdict needs no heading."""
    shown = [(column, column.value_in(BELOW, line)) for column in columns_of(BELOW)]
    parts = [
        ("" if column.heading == "verdict" else f"{column.heading} ") + cell(value).line
        for column, value in shown
        if value is not None
    ]
    return to_ascii("; ".join(parts))


def _title(rows: Sequence[VerdictRow]) -> str:
    margins = {to_ascii(wording.margin(row)) for row in rows if row.margin is not None}
    margin = f"; margin {' or '.join(sorted(margins))}" if margins else "; no margin"
    return wording.typical(rows[0]) + margin + ("; exploratory" if rows[0].exploratory else "")


def notes(outcome: Outcome) -> list[str]:
    """Every finding and warning once."""
    lines = [str(finding) for finding in outcome.findings]
    for row in outcome.rows:
        for warning in row.warnings:
            # What holds for every row alike (the order is unknown) is said once.
            common = all(warning in other.warnings for other in outcome.rows)
            lines.append(str(warning) if common else f"{row.treatment}, {row.label}: {warning}")
    return list(dict.fromkeys(lines))


def method_sentence(outcome: Outcome) -> str:
    """What was computed."""
    methods = list(dict.fromkeys(row.method for row in outcome.rows if row.method))
    pairing = f", {outcome.sample.pairing}" if outcome.sample.pairing else ", not paired"
    corrected = any(row.p_adjusted is not None for row in outcome.rows)
    family = "Holm over the treatments of a metric" if corrected else "not corrected"
    exact = "The interval is the inversion of the test beside it and says the confidence that it reaches. "
    model = "Below the smallest n the interval is model-based and only to be looked at. "
    provisional = [method for method in methods if "provisional" in method]
    known_to = (run.bounds.get(metric.name) for run in outcome.sample.runs for metric in outcome.metrics)
    widened = "Intervals are widened by what buckets and digits leave open. " if any(known_to) else ""
    interval = (exact if len(provisional) < len(methods) else "") + (model if provisional else "") + widened
    return (
        f"Method: {'; '.join(methods) or 'none'}{pairing}; {family}; alpha {outcome.alpha:g}. {interval}Metrics and "
        "margins were chosen after the runs: what this shows is to be confirmed by a trial that declares them first."
    )
