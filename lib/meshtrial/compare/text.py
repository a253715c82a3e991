"""The comparison for a terminal: the smallest possible p first, then a table a metric, readable at 100 columns.

Plain ASCII but for the user's own names, so that it can be piped and compared line by line. What was not shown is
inconclusive, with what would settle it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from meshtrial.compare.analysis import Outcome
from meshtrial.design.responses import Response
from meshtrial.records.schema import VerdictRow
from meshtrial.report import wording
from meshtrial.report.wording import response_of, to_ascii, warned
from meshtrial.vocabulary import COARSE_QUANTILE, Word

WIDTH = 100


def render(outcome: Outcome) -> str:
    """The whole text."""
    parts = [*(wrap(sentence) for sentence in outcome.limits)]
    for metric in outcome.metrics:
        parts.append(_metric(outcome, metric))
    found = notes(outcome)
    if found:
        parts.append("\n".join(["Warnings", *(wrap(note, "  - ", "    ") for note in found)]))
    parts.append(wrap(method_sentence(outcome)))
    return "\n\n".join(parts)


def wrap(text: str, first: str = "", rest: str = "") -> str:
    """A paragraph of at most 100 columns; names and numbers are never broken."""
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def columns_in_line(lines: Sequence[Sequence[str]]) -> list[str]:
    """Rows of text in columns: the first to the left, the others to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))])
        for first, *rest in lines
    ]


def _metric(outcome: Outcome, metric: Response) -> str:
    rows = [row for row in outcome.rows if row.response == metric.name]
    sample = outcome.sample
    corrected = "q" if rows[0].exploratory else "p Holm"
    base = to_ascii(wording.in_unit(metric, rows[0].baseline_value))
    lines = [
        ["", "blocks" if sample.paired else "runs", "median", "change", "interval", "p", corrected],
        [sample.baseline, str(len(sample.by_treatment[sample.baseline])), base, *[""] * 4],
        *(_cells(row, len(sample.by_treatment[row.treatment])) for row in rows),
    ]
    below = ["", "", *(_said(row) for row in rows)]
    shown = [_title(rows)]
    for line, verdict in zip(columns_in_line(lines), below, strict=True):
        shown.append(f"  {line}".rstrip())
        if verdict:
            shown.append(wrap(verdict, "    ", "      "))
    if any(warned(row, COARSE_QUANTILE) for row in rows):
        shown.append(wrap("[bucket] the quantile is known to a histogram bucket wider than the margin", "  ", "  "))
    return "\n".join(shown)


def _title(rows: Sequence[VerdictRow]) -> str:
    margins = {to_ascii(wording.margin(row)) for row in rows if row.margin is not None and row.ratio is not None}
    margin = f"; margin {' or '.join(sorted(margins))}" if margins else "; no margin"
    return wording.typical(rows[0]) + margin + ("; exploratory" if rows[0].exploratory else "")


def _cells(row: VerdictRow, runs: int) -> list[str]:
    response = response_of(row)
    if row.ratio is None:
        change = "" if row.difference is None else wording.in_unit(response, row.difference, sign=True)
        interval = "" if row.difference is None else _added_interval(row)
    else:
        change = wording.change(row.ratio, row.ci_high)
        interval = wording.change_interval(row.ci_low, row.ci_high)
    if row.confidence is not None:
        interval += f" at {wording.percent(row.confidence)}"
    value = wording.in_unit(response, row.treatment_value) + (" [bucket]" if warned(row, COARSE_QUANTILE) else "")
    corrected = "" if row.twin else wording.probability(row.p_adjusted)
    numbers = [value, change, interval, wording.probability(row.p), corrected]
    return [row.treatment + (" (A/A twin)" if row.twin else ""), str(runs), *map(to_ascii, numbers)]


def _said(row: VerdictRow) -> str:
    parts = [row.sentence]
    response = response_of(row)
    if row.ratio is not None and response.unit:
        parts.append(f"added {wording.in_unit(response, row.difference, sign=True)} ({_added_interval(row)})")
    if row.p_equivalence_adjusted is not None and row.verdict in (Word.EQUIVALENT, Word.INCONCLUSIVE):
        parts.append(f"equivalence p {wording.probability(row.p_equivalence_adjusted)}")
    if row.mde is not None and row.ratio is not None:
        parts.append(f"detects {wording.mde_text(row)}")
    return to_ascii("; ".join(parts))


def _added_interval(row: VerdictRow) -> str:
    return wording.interval_in_unit(response_of(row), row.difference_low, row.difference_high)


def notes(outcome: Outcome) -> list[str]:
    """Every finding and warning once."""
    found = [str(finding) for finding in outcome.findings]
    for row in outcome.rows:
        for warning in row.warnings:
            # What holds for every row alike (the order is unknown) is said once.
            common = all(warning in other.warnings for other in outcome.rows)
            found.append(str(warning) if common else f"{row.treatment}, {row.label}: {warning}")
    return list(dict.fromkeys(found))


def method_sentence(outcome: Outcome) -> str:
    """What was computed."""
    methods = list(dict.fromkeys(row.method for row in outcome.rows if row.method))
    pairing = f", {outcome.sample.pairing}" if outcome.sample.pairing else ", not paired"
    corrected = any(row.p_adjusted is not None for row in outcome.rows)
    family = "Holm over the treatments of a metric" if corrected else "not corrected"
    exact = "The interval is the inversion of the test beside it and says the confidence that it reaches. "
    model = "Below the smallest n the interval is model-based and only to be looked at. "
    provisional = [method for method in methods if "provisional" in method]
    interval = (exact if len(provisional) < len(methods) else "") + (model if provisional else "")
    return (
        f"Method: {'; '.join(methods) or 'none'}{pairing}; {family}; alpha {outcome.alpha:g}. {interval}Metrics and "
        "margins were chosen after the runs: what this shows is to be confirmed by a trial that declares them first."
    )
