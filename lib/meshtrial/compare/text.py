"""The comparison for a terminal: the smallest possible p first, then a table a metric, readable at 100 columns.

Plain ASCII but for the user's own names, so that it can be piped and diffed. The words are METHOD's: what was not
shown is inconclusive, with what would settle it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from meshtrial.compare.analysis import Outcome
from meshtrial.compare.rows import is_coarse
from meshtrial.records.schema import VerdictRow
from meshtrial.responses import Response

WIDTH = 100
_LATENCY_NAMES = ("latency_p", "latency_corrected_p")
FACTOR_FROM = 2.0


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


def _metric(outcome: Outcome, metric: Response) -> str:
    rows = [row for row in outcome.rows if row.response == metric.name]
    sample = outcome.sample
    corrected = "q" if rows[0].exploratory else "p Holm"
    head = [sample.baseline, str(len(sample.arms[sample.baseline])), value(metric, rows[0].baseline_value), *[""] * 4]
    lines = [["", "blocks" if sample.paired else "runs", "median", "change", "interval", "p", corrected], head]
    below: list[str] = ["", ""]
    for row in rows:
        lines.append(_cells(row, metric, len(sample.arms[row.treatment])))
        below.append(_said(row, metric))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    shown = [_title(metric, rows)]
    for line, verdict in zip(lines, below, strict=True):
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        shown.append(("  " + "  ".join(cells)).rstrip())
        if verdict:
            shown.append(wrap(verdict, "    ", "      "))
    if any(is_coarse(row) for row in rows):
        shown.append(wrap("[bucket] the quantile is known to a histogram bucket wider than the margin", "  ", "  "))
    return "\n".join(shown)


def _title(metric: Response, rows: Sequence[VerdictRow]) -> str:
    typical = ", typical run's" if metric.name.startswith(_LATENCY_NAMES) else ""
    margins = {f"{percent(row.margin)}" for row in rows if row.margin is not None and row.ratio is not None}
    margin = f"; margin {' or '.join(sorted(margins))}" if margins else "; no margin"
    exploratory = "; exploratory" if rows[0].exploratory else ""
    return f"{metric.label}{typical}{margin}{exploratory}"


def _cells(row: VerdictRow, metric: Response, runs: int) -> list[str]:
    flag = " [bucket]" if is_coarse(row) else ""
    p = "" if row.twin else probability(row.p_holm)
    if row.ratio is None:
        change, interval = (
            (_signed(metric, row.difference), _between(metric, row)) if row.difference is not None else ("", "")
        )
    else:
        change, interval = change_of(row.ratio, row.ci_high), interval_of(row.ci_low, row.ci_high)
    if row.confidence is not None:
        interval += f" at {percent(row.confidence)}"
    name = row.treatment + (" (A/A twin)" if row.twin else "")
    return [name, str(runs), value(metric, row.treatment_value) + flag, change, interval, probability(row.p), p]


def _said(row: VerdictRow, metric: Response) -> str:
    parts = [row.sentence]
    if row.ratio is not None and metric.unit:
        parts.append(f"added {_signed(metric, row.difference)} ({_between(metric, row)})")
    if row.p_equivalence_holm is not None and row.verdict in ("equivalent", "inconclusive"):
        parts.append(f"equivalence p {probability(row.p_equivalence_holm)}")
    if row.mde is not None and row.ratio is not None:
        parts.append(f"detects {percent(row.mde)}")
    return "; ".join(parts)


def notes(outcome: Outcome) -> list[str]:
    """Every finding and warning once."""
    found = [str(finding) for finding in outcome.findings]
    for row in outcome.rows:
        for warning in row.warnings:
            # What holds for every row alike (the order is unknown) is said once.
            common = all(warning in other.warnings for other in outcome.rows)
            found.append(warning if common else f"{row.treatment}, {row.label}: {warning}")
    return list(dict.fromkeys(found))


def method_sentence(outcome: Outcome) -> str:
    """What was computed."""
    methods = list(dict.fromkeys(row.method for row in outcome.rows if row.method))
    pairing = f", {outcome.sample.pairing}" if outcome.sample.pairing else ", not paired"
    sizes = {row.p_holm is not None for row in outcome.rows}
    family = "Holm over the treatments of a metric" if any(sizes) else "not corrected"
    exact = "The interval is the inversion of the test beside it and says the confidence that it reaches. "
    model = "Below the smallest n the interval is model-based and only to be looked at. "
    provisional = [method for method in methods if "provisional" in method]
    interval = (exact if len(provisional) < len(methods) else "") + (model if provisional else "")
    return (
        f"Method: {'; '.join(methods) or 'none'}{pairing}; {family}; alpha {outcome.alpha:g}. {interval}Metrics and "
        "margins were chosen after the runs: what this shows is to be confirmed by a trial that declares them first."
    )


def probability(p: float | None) -> str:
    """A p-value."""
    if p is None:
        return "-"
    return "<0.0001" if p < 1e-4 else f"{p:.2g}"


def number(x: float, digits: int = 3) -> str:
    """Significant digits without an exponent."""
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(float(f"{x:.{digits}g}")))))
    return f"{x:.{min(decimals, 5)}f}"


def percent(share: float | None) -> str:
    """A share as a percentage."""
    return "-" if share is None else f"{100 * share:.3g} %"


def value(metric: Response, stored: float | None) -> str:
    """A stored value in its display unit."""
    return "-" if stored is None else f"{number(stored * metric.scale)} {metric.unit}".rstrip()


def change_of(ratio: float, high: float | None = None) -> str:
    """A ratio as a reader thinks of it: +38 %, or 2.4x where its interval reaches that far."""
    if max(ratio, ratio if high is None else high) >= FACTOR_FROM:
        return f"{number(ratio)}x"
    return f"{100 * (ratio - 1):+.1f} %"


def interval_of(low: float | None, high: float | None) -> str:
    """An interval of ratios in one notation."""
    if low is None or high is None:
        return ""
    if high >= FACTOR_FROM:
        return f"{number(low)} to {number(high)}x"
    return f"{100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %"


def _signed(metric: Response, stored: float | None) -> str:
    return "" if stored is None else ("+" if stored > 0 else "") + value(metric, stored)


def _between(metric: Response, row: VerdictRow) -> str:
    if row.difference_low is None or row.difference_high is None:
        return "-"
    low, high = (("+" if x > 0 else "") + number(x * metric.scale) for x in (row.difference_low, row.difference_high))
    return f"{low} to {high} {metric.unit}".rstrip()
