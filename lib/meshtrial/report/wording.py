"""Numbers and verdicts in words, and nowhere else: stored values stay in SI base units until they come here.

The words follow METHOD: what was not shown is inconclusive, equivalence always names its margin, and a
percentile over runs is called the typical run's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshtrial.errors import UsageError
from meshtrial.records.schema import VerdictRow
from meshtrial.report.numerals import (
    MINUS,
    NBSP,
    TIMES,
    count,
    declared_percent,
    duration,
    equation,
    listing,
    mebibytes,
    number,
    percent,
    plain,
    probability,
    rounded_percent,
    signed,
)
from meshtrial.responses import Response, response
from meshtrial.study import Load, Margin

# Numerals are offered here too: a table needs one module for everything it writes.
__all__ = [
    "DIFFERENT",
    "FACTOR_FROM",
    "LOOKS",
    "MINUS",
    "NBSP",
    "TIMES",
    "VerdictLook",
    "change",
    "change_interval",
    "count",
    "decimals",
    "declared_percent",
    "duration",
    "equation",
    "in_unit",
    "interval_in_unit",
    "kind",
    "known",
    "listing",
    "load_text",
    "look",
    "margin_text",
    "mde_text",
    "mebibytes",
    "number",
    "percent",
    "plain",
    "probability",
    "qualifier",
    "rounded_percent",
    "short_label",
    "signed",
    "unit",
    "verdict_text",
    "warnings",
]

# Above this a percentage is harder to read than a factor.
FACTOR_FROM = 2.0
_DECIMALS = {"ms": 3, "us/request": 1, "MiB": 1, "cores": 3, "%": 2, "rps": 1}


@dataclass(frozen=True)
class VerdictLook:
    """How a class of verdict is shown: a glyph for text, a marker for figures, a tone for colour."""

    word: str
    glyph: str
    marker: str
    filled: bool
    tone: str
    meaning: str


LOOKS: dict[str, VerdictLook] = {
    look.word: look
    for look in (
        VerdictLook("slower", "▲", ">", True, "worse", "the interval and the corrected test show more latency"),
        VerdictLook("faster", "▼", "<", True, "better", "the interval and the corrected test show less latency"),
        VerdictLook("more", "▲", ">", True, "worse", "the interval and the corrected test show a higher cost"),
        VerdictLook("less", "▼", "<", True, "better", "the interval and the corrected test show a lower cost"),
        VerdictLook("higher", "▲", ">", True, "neutral", "the interval and the corrected test show a higher value"),
        VerdictLook("lower", "▼", "<", True, "neutral", "the interval and the corrected test show a lower value"),
        VerdictLook("equivalent", "●", "o", True, "same", "shown to lie within the margin of the plan"),
        VerdictLook("inconclusive", "◇", "D", False, "open", "neither shown; more blocks would tell"),
        VerdictLook("unstable", "□", "s", False, "open", "the A/A noise floor is larger than the margin"),
        VerdictLook("saturated", "■", "s", True, "stopped", "the asked rate was not held: a result, not a latency"),
        VerdictLook("invalid", "✕", "X", True, "stopped", "gates or proofs failed, or blocks are missing"),
    )
}
DIFFERENT = ("slower", "faster", "more", "less", "higher", "lower")


def kind(row: VerdictRow) -> str:
    """The class of a verdict: its first word."""
    found = re.match(r"[a-z]+", row.verdict.strip().lower())
    word = found.group() if found else "invalid"
    return word if word in LOOKS else "invalid"


def look(row: VerdictRow) -> VerdictLook:
    """How this row's verdict is shown."""
    return LOOKS[kind(row)]


_OPEN = ("inconclusive", "unstable")


def qualifier(row: VerdictRow) -> str:
    """What stands behind the verdict's word: material, below margin, how many more blocks."""
    if row.qualifier:
        return row.qualifier
    inside = re.search(r"\((.+)\)\s*$", row.verdict) or re.search(r":\s*(.+)$", row.verdict)
    if inside:
        return inside.group(1)
    if kind(row) in _OPEN and row.blocks_needed:
        return f"about {row.blocks_needed} more block{'s' * (row.blocks_needed != 1)}"
    return ""


def verdict_text(row: VerdictRow) -> str:
    """e.g. ``slower, material`` or ``inconclusive (about 6 more blocks)``."""
    word, more = kind(row), qualifier(row)
    if not more:
        return word
    return f"{word} ({more})" if word in _OPEN else f"{word}, {more}"


def known(name: str) -> Response:
    """A response, or a plain stand-in for one that this version does not know."""
    try:
        return response(name)
    except UsageError:
        return Response(name, name, "quality", "", 1.0)


def in_unit(name: str, value: float | None, *, sign: bool = False) -> str:
    """A stored value in the unit that its response is read in, e.g. ``0.52 ms``."""
    if value is None:
        return "–"
    shown = known(name)
    text = (signed if sign else number)(value * shown.scale, most=decimals(name))
    return f"{text}{NBSP}{unit(name)}".strip()


def decimals(name: str) -> int:
    """Decimals beyond which a unit's digits mean nothing: the load generator's clock ticks in microseconds."""
    return _DECIMALS.get(known(name).unit, 3)


def unit(name: str) -> str:
    """Display unit: ``ms``, ``µs/request``, ``MiB``."""
    return known(name).unit.replace("us/", "µs/")


def change(ratio: float | None, high: float | None = None) -> str:
    """A ratio as a reader thinks of it: +38 %, −12 %, 2.4×; a factor too where its interval reaches that far."""
    if ratio is None or math.isnan(ratio):
        return "–"
    if max(ratio, high if high is not None else ratio) >= FACTOR_FROM:
        return f"{number(ratio)}{TIMES}"
    return f"{signed(100 * (ratio - 1), most=1)}{NBSP}%"


def change_interval(low: float | None, high: float | None) -> str:
    """An interval of ratios, both ends in one notation."""
    if low is None or high is None:
        return "–"
    if high >= FACTOR_FROM:
        return f"{number(low)} to {number(high)}{TIMES}"
    return f"{change(low).removesuffix('%').strip()} to {change(high)}"


def interval_in_unit(name: str, low: float | None, high: float | None) -> str:
    """An interval of differences in the response's display unit, the unit written once."""
    if low is None or high is None:
        return "–"
    scale, most = known(name).scale, decimals(name)
    return f"{signed(low * scale, most=most)} to {signed(high * scale, most=most)}{NBSP}{unit(name)}".strip()


def warnings(rows: Sequence[VerdictRow], wanted: Callable[[str], bool] = bool) -> list[str]:
    """Warnings of verdict rows, each once: what holds for all contrasts of a response names none of them."""
    families: dict[tuple[str, str], dict[str, None]] = {}
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for row in rows:
        families.setdefault((row.load, row.response), {})[row.treatment] = None
        for warning in filter(wanted, row.warnings):
            found.setdefault((row.load, row.response, warning), {})[row.treatment] = None
    several = len({load for load, _ in families}) > 1
    lines = []
    for (load, name, warning), treatments in found.items():
        whose = "" if len(treatments) == len(families[load, name]) else f", {listing(list(treatments))}"
        # The machine-readable code in front is for machines.
        said = re.sub(r"^[a-z0-9-]+: ", "", warning)
        lines.append(f"{short_label(name)}{whose}{f', {load}' if several else ''}: {said}")
    return lines


def margin_text(name: str, margin: Margin | None) -> str:
    """A declared margin with its floor."""
    if margin is None:
        return "none declared"
    text = f"±{plain(100 * margin.relative)}{NBSP}%"
    return f"{text}, at least {plain(margin.floor * known(name).scale)} {unit(name)}" if margin.floor else text


def mde_text(row: VerdictRow) -> str:
    """Minimum detectable effect: a ratio where there is one, else in the response's unit."""
    if row.mde is None:
        return "–"
    return in_unit(row.response, row.mde) if row.ratio is None else percent(row.mde, 2)


def load_text(load: Load) -> str:
    """A load in words."""
    rate = "closed loop (as fast as answers come)" if load.closed_loop else f"{plain(load.rps)} requests a second"
    if load.search:
        rate = "the highest rate kept, searched"
    parts = [f"{rate} over {count(load.connections)} connection{'s' * (load.connections > 1)}"]
    if load.protocol != "http1":
        parts.append({"h2": "HTTP/2", "grpc": "gRPC", "mixed": "HTTP/1.1 and gRPC mixed"}[load.protocol])
    if load.payload_bytes:
        parts.append(f"{count(load.payload_bytes)} byte body")
    if not load.keepalive:
        parts.append("a new connection for every request")
    if load.replicas > 1:
        parts.append(f"{load.replicas} endpoints a role")
    return ", ".join(parts)


def short_label(name: str) -> str:
    """A response's label inside a sentence: ``CPU a request of app and data plane``."""
    return known(name).label.replace(", ", " of ")
