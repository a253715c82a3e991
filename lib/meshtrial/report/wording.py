"""Numbers and verdicts in words, and nowhere else: stored values stay in SI base units until they come here.

Numbers get significant digits, thousands apart, a unit that stays on its line and a sign where it matters; for a
terminal, `to_ascii` writes them in plain ASCII. What was not shown is inconclusive, equivalence always names its
margin, and a percentile over runs is called the typical run's.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from meshtrial.design.responses import REGISTRY, Response, find_response
from meshtrial.design.study import Load
from meshtrial.margin import Margin
from meshtrial.records.schema import VerdictRow
from meshtrial.vocabulary import AFTER_THE_FACT, BELOW_MARGIN, NO_TWIN, VerdictLabel, Warning, sentence

MINUS = "−"
TIMES = "×"
UNKNOWN = "–"  # a number that is not there
NBSP = "\u00a0"  # a number keeps its unit on its line
_THIN = "\u202f"
_ASCII = str.maketrans(
    {MINUS: "-", TIMES: "x", NBSP: " ", _THIN: "", "–": "-", "∞": "inf", "µ": "u", "±": "+-", "→": "->"}
)


def to_ascii(text: str) -> str:
    """What this module writes, for a terminal: it can be piped and compared line by line."""
    return text.translate(_ASCII)


def number(value: float | None, digits: int = 3, most: int = 12) -> str:
    """Significant digits without an exponent, at most so many decimals; thousands set apart."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else MINUS + "∞"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(float(f"{value:.{digits}g}"))))
    decimals = min(most, max(0, digits - 1 - size))
    text = f"{abs(value):,.{decimals}f}".replace(",", _THIN)
    if not text.strip("0."):
        return "0"
    return (MINUS if value < 0 else "") + text


def count(value: float) -> str:
    """A whole number, thousands set apart."""
    return f"{value:,.0f}".replace(",", _THIN).replace("-", MINUS)


def signed(value: float | None, digits: int = 3, most: int = 12) -> str:
    """A difference: its sign is always written."""
    text = number(value, digits, most)
    return text if value is None or not value > 0 or text == "0" else "+" + text


def plain(value: float) -> str:
    """A declared number as it was declared: 5, 0.05, 2 000."""
    return f"{value:,.10g}".replace(",", _THIN).replace("-", MINUS)


def percent(share: float | None, digits: int = 3) -> str:
    """A measured share as a percentage."""
    return UNKNOWN if share is None else f"{number(100 * share, digits)}{NBSP}%"


def rounded_percent(share: float) -> str:
    """A margin in force: 5 %, 89.3 %; a floor can make it any number."""
    return f"{plain(float(f'{100 * share:.3g}'))}{NBSP}%"


def declared_percent(share: float) -> str:
    """A declared share as it was declared: 5 %, not 5.00 %."""
    return f"{plain(100 * share)}{NBSP}%"


def probability(p: float | None) -> str:
    """A p-value."""
    if p is None:
        return UNKNOWN
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def equation(symbol: str, p: float) -> str:
    """``p = 0.0039`` or ``p < 0.0001``, on one line."""
    text = probability(p)
    return f"{symbol} {text}".replace(" ", NBSP) if text.startswith("<") else f"{symbol}{NBSP}={NBSP}{text}"


def duration(seconds: float) -> str:
    """A span of time, e.g. ``5 min 12 s``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    if minutes:
        return f"{minutes} min {rest:02d} s"
    return f"{number(seconds, most=1).removesuffix('.0')} s"


def mebibytes(value: float | None) -> str:
    """Bytes as MiB, or GiB where that reads better."""
    if value is None:
        return UNKNOWN
    return f"{number(value / 2**30)} GiB" if value >= 4 * 2**30 else f"{number(value / 2**20)} MiB"


def listing(items: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]


# Above this a percentage is harder to read than a factor.
FACTOR_FROM = 2.0
_DECIMALS = {"ms": 3, "us/request": 1, "MiB": 1, "cores": 3, "%": 2, "rps": 1}


def qualifier(row: VerdictRow, *, brief: bool = False) -> str:
    """What stands behind the verdict's word; where the margin's absolute floor decided, what it is too."""
    if row.margin_floor is not None and (row.verdict is VerdictLabel.EQUIVALENT or row.qualifier == BELOW_MARGIN):
        return " ".join(filter(None, (row.qualifier, within_floor(row, brief=brief))))
    return row.qualifier


def margin(row: VerdictRow | None, sign: str = "") -> str:
    """The margin in force: ``5 %``, or ``0.1 ms (69 %)`` where the absolute floor decides; a dash for none."""
    if row is None or row.margin is None:
        return UNKNOWN
    share = margin_share(row)
    if row.margin_floor is None:
        return sign + (share or in_unit(row.response, row.margin))
    return sign + in_unit(row.response, row.margin_floor) + (f" ({share})" if share else "")


def margin_share(row: VerdictRow) -> str:
    """The margin in force as a share of the baseline; empty where that is zero."""
    if row.margin is None or (row.by_difference and not row.baseline_value):
        return ""
    return rounded_percent(row.margin / abs(row.baseline_value or 1) if row.by_difference else row.margin)


def within_floor(row: VerdictRow, *, brief: bool = False) -> str:
    """Where the margin's absolute floor decided: what it is; unless brief, what the relative part would have been."""
    assert row.margin_floor is not None
    said = f"within {in_unit(row.response, row.margin_floor)}"
    if brief or not row.margin_relative or not row.baseline_value:
        return said
    smaller = in_unit(row.response, row.margin_relative * abs(row.baseline_value))
    return f"{said}; {rounded_percent(row.margin_relative)} would be {smaller}"


def verdict_text(row: VerdictRow, *, brief: bool = False) -> str:
    """e.g. ``slower, material`` or ``inconclusive (a new study of about 16 blocks)``."""
    word, more = row.verdict, qualifier(row, brief=brief)
    said = f"{word}, {more}" if more and word.standing != "open" else sentence(word, more)
    # A verdict that rests on no check of the study's own noise says so itself.
    judged = word.conclusive or word.standing == "open"
    return f"{said}, no A/A check" if judged and warned(row, NO_TWIN) else said


def known(name: str) -> Response:
    """A response, or a plain stand-in for one that this version does not know."""
    found = find_response(name)[0]
    return found if found.name in REGISTRY else Response(name, name, "quality", "", 1.0)


def response_of(row: VerdictRow) -> Response:
    """The response of a row; one that is not registered is shown as it is stored."""
    return REGISTRY.get(row.response) or Response(row.response, row.label, "quality", row.unit, 1.0)


def _response(what: str | Response) -> Response:
    return what if isinstance(what, Response) else known(what)


def in_unit(what: str | Response, value: float | None, *, sign: bool = False) -> str:
    """A stored value in the unit that its response is read in, e.g. ``0.52 ms``."""
    if value is None:
        return UNKNOWN
    text = (signed if sign else number)(value * _response(what).scale, most=decimals(what))
    return f"{text}{NBSP}{unit(what)}".strip()


def decimals(what: str | Response) -> int:
    """Decimals beyond which a unit's digits mean nothing: the load generator's clock ticks in microseconds."""
    shown = _response(what)
    return _DECIMALS.get(shown.unit, 3 if shown.name in REGISTRY else 12)


def unit(what: str | Response) -> str:
    """Display unit: ``ms``, ``µs/request``, ``MiB``."""
    return _response(what).unit.replace("us/", "µs/")


def change(ratio: float | None, high: float | None = None) -> str:
    """A ratio as a reader thinks of it: +38 %, −12 %, 2.4×; a factor too where its interval reaches that far."""
    if ratio is None or math.isnan(ratio):
        return UNKNOWN
    if max(ratio, high if high is not None else ratio) >= FACTOR_FROM:
        return f"{number(ratio)}{TIMES}"
    return f"{signed(100 * (ratio - 1), most=1)}{NBSP}%"


def change_interval(low: float | None, high: float | None) -> str:
    """An interval of ratios, both ends in one notation; an end is None where runs that rank worst open it."""
    if low is None or high is None:
        return _open_interval(change(low), change(high))
    if high >= FACTOR_FROM:
        return f"{number(low)} to {number(high)}{TIMES}"
    return f"{change(low).removesuffix('%').strip()} to {change(high)}"


def interval_in_unit(what: str | Response, low: float | None, high: float | None) -> str:
    """An interval of differences in the response's display unit, the unit written once."""
    if low is None or high is None:
        return _open_interval(in_unit(what, low, sign=True), in_unit(what, high, sign=True))
    scale, most = _response(what).scale, decimals(what)
    return f"{signed(low * scale, most=most)} to {signed(high * scale, most=most)}{NBSP}{unit(what)}".strip()


def _open_interval(low: str, high: str) -> str:
    return f"at least {low}" if low != UNKNOWN else f"at most {high}" if high != UNKNOWN else UNKNOWN


def added(row: VerdictRow) -> str:
    """What a treatment adds, in the unit of its response; an end of its interval where so many runs rank worst."""
    if row.difference is None:
        return added_interval(row)
    return in_unit(response_of(row), row.difference, sign=True)


def added_interval(row: VerdictRow) -> str:
    """The interval of what it adds."""
    return interval_in_unit(response_of(row), row.difference_low, row.difference_high)


def effect(row: VerdictRow) -> str:
    """The effect that carries the verdict: what is added, or the change."""
    if row.by_difference:
        return added(row)
    return change_interval(row.ci_low, row.ci_high) if row.ratio is None else change(row.ratio, row.ci_high)


def effect_interval(row: VerdictRow) -> str:
    """Its interval."""
    return added_interval(row) if row.by_difference else change_interval(row.ci_low, row.ci_high)


def effect_in_full(row: VerdictRow) -> str:
    """The effect with its interval; alone where the interval has no end, or says the same."""
    shown, ends = effect(row), effect_interval(row)
    return shown if ends in (shown, UNKNOWN) else f"{shown} ({ends})"


def other_effect(row: VerdictRow) -> str:
    """The effect that stands beside it; empty where there is none."""
    if row.by_difference:
        return "" if row.ratio is None else change(row.ratio, row.ci_high)
    return "" if row.difference is None else added(row)


def treatment(row: VerdictRow) -> str:
    """Its name; the twin is called one."""
    return f"{row.treatment} (A/A twin)" if row.twin else row.treatment


def typical(row: VerdictRow) -> str:
    """The response's label, and for a percentile whose it is."""
    shown = response_of(row)
    return (row.label or shown.label) + (", typical run's" if shown.percentile else "")


def warned(row: VerdictRow, *codes: str) -> bool:
    """Whether a row has a warning of one of these codes."""
    return any(warning.code in codes for warning in row.warnings)


def warnings(rows: Sequence[VerdictRow], codes: Collection[str] | None = None) -> list[str]:
    """Warnings of verdict rows, or those of some codes, each once: what holds for all contrasts names none of them.

    That a row is of a later analysis stands over whatever shows it, and is not said again.
    """
    families: dict[tuple[str, str], dict[str, None]] = {}
    found: dict[tuple[str, str, Warning], dict[str, None]] = {}
    for row in rows:
        families.setdefault((row.load, row.response), {})[row.treatment] = None
        for warning in row.warnings:
            if warning.code != AFTER_THE_FACT and (codes is None or warning.code in codes):
                found.setdefault((row.load, row.response, warning), {})[row.treatment] = None
    several = len({load for load, _ in families}) > 1
    lines = []
    for (load, name, warning), treatments in found.items():
        whose = "" if len(treatments) == len(families[load, name]) else f", {listing(list(treatments))}"
        # The code is for machines.
        lines.append(f"{short_label(name)}{whose}{f', {load}' if several else ''}: {warning.message}")
    return lines


def margin_text(name: str, margin: Margin | None) -> str:
    """A declared margin with its floor."""
    if margin is None:
        return "none declared"
    text = f"±{plain(100 * margin.relative)}{NBSP}%"
    return f"{text}, at least {plain(margin.floor * known(name).scale)} {unit(name)}" if margin.floor else text


def mde_text(row: VerdictRow) -> str:
    """Minimum detectable effect, on the scale of the verdict."""
    if row.mde is None:
        return UNKNOWN
    return in_unit(response_of(row), row.mde) if row.by_difference else percent(row.mde, 2)


def load_text(load: Load) -> str:
    """A load in words."""
    rate = "closed loop (as fast as answers come)" if load.closed_loop else f"{plain(load.rps)} requests a second"
    if load.ramp:
        rate = f"a rate rising to {plain(load.rps)} requests a second in {load.ramp} steps"
    if load.search:
        kept = f" with {load.objective.replace('<', ' below ').replace('ms', f'{NBSP}ms')}" if load.objective else ""
        rate = f"the highest rate kept{kept}, searched"
    parts = [f"{rate} over {count(load.connections)} connection{'s' * (load.connections > 1)}"]
    if load.protocol != "http1":
        parts.append({"h2": "HTTP/2", "grpc": "gRPC", "mixed": "HTTP/1.1 and gRPC mixed", "tcp": "TCP"}[load.protocol])
    if load.payload_bytes:
        parts.append(f"{count(load.payload_bytes)} byte body")
    if load.response_bytes:
        parts.append(f"{count(load.response_bytes)} byte answer")
    if load.headers:
        parts.append(f"{load.headers} further headers")
    if not load.keepalive:
        parts.append("a new connection for every request")
    if load.arrivals == "jitter":
        parts.append("each send moved by up to a tenth of its wait")
    if load.replicas > 1:
        parts.append(f"{load.replicas} replicas")
    if load.unused_services:
        parts.append(f"{count(load.unused_services)} services that nobody calls")
    if load.generators_vary:
        parts.append(f"{load.generators} load generator{'s' * (load.generators > 1)}")
    return ", ".join(parts)


def short_label(name: str) -> str:
    """A response's label inside a sentence: ``CPU a request of app and data plane``."""
    return known(name).label.replace(", ", " of ")
