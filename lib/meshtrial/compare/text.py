"""The comparison for a terminal of 100 columns: the smallest possible p, then one table per metric.

The text is ASCII except for names from the user, so that it can be piped and compared line by line.
"""

import textwrap
from collections.abc import Iterator, Sequence

from meshtrial.compare.analysis import Outcome
from meshtrial.design.responses import Response
from meshtrial.records.schema import VerdictRow
from meshtrial.report import palette, wording
from meshtrial.report.frames import Contrasts
from meshtrial.report.markup import cell, in_line
from meshtrial.report.tables.verdicts import BELOW, TERMINAL, Line, VerdictColumn, columns_of
from meshtrial.report.wording import to_ascii, warned
from meshtrial.vocabulary import COARSE_QUANTILE

WIDTH = 100


def render(outcome: Outcome) -> str:
    """Return the whole text."""
    parts = [*map(wrap, outcome.limits), *(_metric(outcome, metric) for metric in outcome.metrics)]
    if listed := notes(outcome):
        parts.append("\n".join(["Warnings", *(wrap(note, "  - ", "    ") for note in listed)]))
    parts.append(wrap(method_sentence(outcome)))
    return "\n\n".join(parts)


def wrap(text: str, first: str = "", rest: str = "") -> str:
    """Return a paragraph of at most 100 columns; names and numbers are never broken."""
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def title(outcome: Outcome) -> str:
    """Return "istio and linkerd against none"."""
    return f"{' and '.join(outcome.sample.treatments)} against {outcome.sample.baseline}"


def contrasts(outcome: Outcome) -> Contrasts:
    """Return the rows for the report's figures and tables."""
    sample = outcome.sample
    twin = next((row.treatment for row in outcome.rows if row.twin), None)
    looks = palette.looks_of(sample.baseline, twin, list(sample.by_treatment))
    return Contrasts(outcome.rows, looks, ("",))


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
    # The column of treatments needs no heading.
    table = [["", *(column.heading.format(**heads) for column in columns[1:])]]
    table.append([base.get(column.heading, "") for column in columns])
    table += [[_cell(column, line) for column in columns] for line in lines]
    text = [_title(rows)]
    aligned = in_line(table, [not column.name for column in columns])
    for line, below in zip(aligned, ["", "", *map(_below, lines)], strict=True):
        text.append(f"  {line}")
        if below:
            text.append(wrap(below, "    ", "      "))
    return "\n".join([*text, *(wrap(sentence, "  ", "  ") for sentence in _explained(outcome, metric, rows))])


def _explained(outcome: Outcome, metric: Response, rows: Sequence[VerdictRow]) -> Iterator[str]:
    if any(warned(row, COARSE_QUANTILE) for row in rows):
        yield "[bucket] The resolution of the quantile (histogram bucket or digits) is wider than the margin."
    if any(row.ratio is not None and wording.effect_interval(row) == wording.UNKNOWN for row in rows):
        yield "An interval is unbounded if the buckets are as wide as the quantiles themselves."
    opposed = [row.treatment for row in rows if _opposed(metric, row)]
    if opposed:
        effects = "ratios" if not rows[0].by_difference else "differences"
        pairs = "within the pairs" if outcome.sample.paired else "of all pairs of runs"
        yield (
            f"The medians of {wording.listing(opposed)} change in the opposite direction of the estimate, which is the "
            f"median of the {effects} {pairs} (Hodges-Lehmann). The two can differ near zero, or if runs form groups; "
            "look at every run (--html)."
        )


def _opposed(metric: Response, row: VerdictRow) -> bool:
    """Return whether the displayed medians change in the opposite direction of the displayed estimate."""
    before, after = row.baseline_value, row.treatment_value
    effect = row.difference if row.by_difference else None if row.ratio is None else row.ratio - 1
    if (
        before is None
        or after is None
        or not effect
        or wording.in_unit(metric, before) == wording.in_unit(metric, after)
    ):
        return False
    is_displayed = any(digit in wording.effect(row) for digit in "123456789")
    return is_displayed and (after > before) != (effect > 0)


def _cell(column: VerdictColumn, line: Line) -> str:
    text = cell(column.value_in(TERMINAL, line)).line
    return text if column.name else to_ascii(text)


def _below(line: Line) -> str:
    """Return the columns that are printed below a row; a verdict needs no heading."""
    cells = [(column, column.value_in(BELOW, line)) for column in columns_of(BELOW)]
    parts = [
        ("" if column.heading == "verdict" else f"{column.heading} ") + cell(value).line
        for column, value in cells
        if value is not None
    ]
    return to_ascii("; ".join(parts))


def _title(rows: Sequence[VerdictRow]) -> str:
    margins = {to_ascii(wording.margin(row)) for row in rows if row.margin is not None}
    margin = f"; margin {' or '.join(sorted(margins))}" if margins else "; no margin"
    return wording.typical(rows[0]) + margin + ("; exploratory" if rows[0].exploratory else "")


def notes(outcome: Outcome) -> list[str]:
    """Return every finding and warning once."""
    lines = [str(finding) for finding in outcome.findings]
    for row in outcome.rows:
        for warning in row.warnings:
            # A warning that all rows have (such as an unknown order) is listed once.
            common = all(warning in other.warnings for other in outcome.rows)
            lines.append(str(warning) if common else f"{row.treatment}, {row.label}: {warning}")
    return list(dict.fromkeys(lines))


def method_sentence(outcome: Outcome) -> str:
    """Return the method in one paragraph."""
    methods = list(dict.fromkeys(row.method for row in outcome.rows if row.method))
    pairing = f", {outcome.sample.pairing}" if outcome.sample.pairing else ", not paired"
    corrected = any(row.p_adjusted is not None for row in outcome.rows)
    family = "Holm over the treatments of a metric" if corrected else "not corrected"
    exact = "Intervals are inversions of the exact test, with their achieved confidence. "
    model = "Below the smallest n intervals are model-based and only indicative. "
    provisional = [method for method in methods if "provisional" in method]
    resolutions = (run.bounds.get(metric.name) for run in outcome.sample.runs for metric in outcome.metrics)
    widened = "Intervals are widened by the resolution of buckets and digits. " if any(resolutions) else ""
    interval = (exact if len(provisional) < len(methods) else "") + (model if provisional else "") + widened
    return (
        f"Method: {'; '.join(methods) or 'none'}{pairing}; {family}; alpha {outcome.alpha:g}. {interval}Metrics and "
        "margins were chosen after the runs, so confirm the result by a trial that declares them first."
    )
