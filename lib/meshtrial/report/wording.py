"""Numbers and verdicts in words. Stored values stay in SI base units; this module alone formats them for readers.

Numbers get significant digits, a separator of thousands, a unit on the same line and a sign where it matters;
`to_ascii` converts them for terminals. A percentile over runs is called the typical run's. An effect that is not shown
is inconclusive, and equivalence always names its margin.
"""

import math
from collections.abc import Collection, Sequence

from meshtrial.design.load import CapacitySearch, ClosedLoop, Load, Ramp
from meshtrial.design.responses import REGISTRY, Response, find_response
from meshtrial.margin import Margin
from meshtrial.records.schema import VerdictRow
from meshtrial.vocabulary import AFTER_THE_FACT, BELOW_MARGIN, NO_TWIN, VerdictLabel, Warning, sentence

MINUS = "−"
TIMES = "×"
UNKNOWN = "–"  # stands for a missing number
NBSP = "\u00a0"  # keeps a number and its unit on one line
_THIN = "\u202f"
_ASCII = str.maketrans(
    {MINUS: "-", TIMES: "x", NBSP: " ", _THIN: "", "–": "-", "∞": "inf", "µ": "u", "±": "+-", "→": "->"}
)


def to_ascii(text: str) -> str:
    """Replace this module's special characters by ASCII, so that terminals can pipe and compare lines."""
    return text.translate(_ASCII)


def number(value: float | None, digits: int = 3, most: int = 12) -> str:
    """Format with significant digits, no exponent, at most `most` decimals and separated thousands."""
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
    """Format a whole number with separated thousands."""
    return f"{value:,.0f}".replace(",", _THIN).replace("-", MINUS)


def signed(value: float | None, digits: int = 3, most: int = 12) -> str:
    """Format a difference: the sign is always written."""
    text = number(value, digits, most)
    return text if value is None or not value > 0 or text == "0" else "+" + text


def plain(value: float) -> str:
    """Format a declared number with the digits of its declaration: 5, 0.05, 2 000."""
    return f"{value:,.10g}".replace(",", _THIN).replace("-", MINUS)


def percent(share: float | None, digits: int = 3) -> str:
    """Format a measured share as a percentage."""
    return UNKNOWN if share is None else f"{number(100 * share, digits)}{NBSP}%"


def rounded_percent(share: float) -> str:
    """Format a margin in force: 5 %, 89.3 %. An absolute floor can make it any number."""
    return f"{plain(float(f'{100 * share:.3g}'))}{NBSP}%"


def declared_percent(share: float) -> str:
    """Format a declared share as a percentage with the digits of its declaration: 5 %, not 5.00 %."""
    return f"{plain(100 * share)}{NBSP}%"


def probability(p: float | None) -> str:
    """Format a p-value."""
    if p is None:
        return UNKNOWN
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def equation(symbol: str, p: float) -> str:
    """Return ``p = 0.0039`` or ``p < 0.0001``, kept on one line."""
    text = probability(p)
    return f"{symbol} {text}".replace(" ", NBSP) if text.startswith("<") else f"{symbol}{NBSP}={NBSP}{text}"


def duration(seconds: float) -> str:
    """Format a duration, such as ``5 min 12 s``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    if minutes:
        return f"{minutes} min {rest:02d} s"
    return f"{number(seconds, most=1).removesuffix('.0')} s"


def mebibytes(value: float | None) -> str:
    """Format bytes as MiB, or as GiB from 4 GiB on."""
    if value is None:
        return UNKNOWN
    return f"{number(value / 2**30)} GiB" if value >= 4 * 2**30 else f"{number(value / 2**20)} MiB"


def listing(items: list[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]


# From this ratio on, a factor is easier to read than a percentage.
FACTOR_FROM = 2.0
_DECIMALS = {"ms": 3, "us/request": 1, "MiB": 1, "cores": 3, "%": 2, "rps": 1}


def qualifier(row: VerdictRow, *, brief: bool = False) -> str:
    """Return the verdict's qualifier, with the margin's absolute floor if that decided."""
    floor_decided = row.verdict is VerdictLabel.EQUIVALENT or row.qualifier == BELOW_MARGIN
    within = within_floor(row, brief=brief) if row.margin_floor is not None and floor_decided else ""
    return " ".join(filter(None, (row.qualifier, within)))


def margin(row: VerdictRow | None, sign: str = "") -> str:
    """Return the margin in force: ``5 %``, or ``0.1 ms (69 %)`` if the absolute floor decides; a dash for none."""
    if row is None or row.margin is None:
        return UNKNOWN
    share = margin_share(row)
    if row.margin_floor is None:
        return sign + (share or in_unit(row.response, row.margin))
    return sign + in_unit(row.response, row.margin_floor) + (f" ({share})" if share else "")


def margin_share(row: VerdictRow) -> str:
    """Return the margin in force as a share of the baseline, or nothing if the baseline is zero."""
    if row.margin is None or (row.by_difference and not row.baseline_value):
        return ""
    return rounded_percent(row.margin / abs(row.baseline_value or 1) if row.by_difference else row.margin)


def within_floor(row: VerdictRow, *, brief: bool = False) -> str:
    """Return the absolute floor that decided and, unless brief, what the relative margin would have been."""
    assert row.margin_floor is not None
    text = f"within {in_unit(row.response, row.margin_floor)}"
    if brief or not row.margin_relative or not row.baseline_value:
        return text
    smaller = in_unit(row.response, row.margin_relative * abs(row.baseline_value))
    return f"{text}; {rounded_percent(row.margin_relative)} would be {smaller}"


def verdict_text(row: VerdictRow, *, brief: bool = False) -> str:
    """Return the verdict, such as ``slower, material`` or ``inconclusive (a new study of about 16 blocks)``."""
    word, more = row.verdict, qualifier(row, brief=brief)
    text = f"{word}, {more}" if more and word.standing != "open" else sentence(word, more)
    # A verdict without a check of the study's own noise must carry that with it.
    judged = word.conclusive or word.standing == "open"
    unchecked = "no A/A check" if judged and warned(row, NO_TWIN) else ""
    return ", ".join(filter(None, (text, "" if brief else uncorrected(row), unchecked)))


def uncorrected(row: VerdictRow) -> str:
    """Return a note if the interval, which is not widened for the family, excludes zero and the verdict calls nothing.

    Intervals that are compatible with step-down max-T have no closed form, so the row says why the two differ.
    """
    null = 0.0 if row.by_difference else 1.0
    low, high = (row.difference_low, row.difference_high) if row.by_difference else (row.ci_low, row.ci_high)
    excludes_zero = (low is not None and low > null) or (high is not None and high < null)
    is_open = row.verdict in (VerdictLabel.INCONCLUSIVE, VerdictLabel.EQUIVALENT)
    exact = row.adjustment != "none" and "provisional" not in row.method
    return "excludes zero by itself, not after correction" if excludes_zero and is_open and exact else ""


def known(name: str) -> Response:
    """Return a response by name, or a plain stand-in if this version does not know it."""
    response = find_response(name)[0]
    return response if response.name in REGISTRY else Response(name, name, "quality", "", 1.0)


def response_of(row: VerdictRow) -> Response:
    """Return the response of a row, or a stand-in with the row's own label and unit."""
    return REGISTRY.get(row.response) or Response(row.response, row.label, "quality", row.unit, 1.0)


def _response(response: str | Response) -> Response:
    return response if isinstance(response, Response) else known(response)


def in_unit(response: str | Response, value: float | None, *, sign: bool = False) -> str:
    """Format a stored value in the response's display unit, such as ``0.52 ms``."""
    if value is None:
        return UNKNOWN
    text = (signed if sign else number)(value * _response(response).scale, most=decimals(response))
    return f"{text}{NBSP}{unit(response)}".strip()


def decimals(response: str | Response) -> int:
    """Return the number of meaningful decimals: the load generator's clock ticks in microseconds."""
    about = _response(response)
    return _DECIMALS.get(about.unit, 3 if about.name in REGISTRY else 12)


def unit(response: str | Response) -> str:
    """Return the display unit: ``ms``, ``µs/request``, ``MiB``."""
    return _response(response).unit.replace("us/", "µs/")


def change(ratio: float | None, high: float | None = None) -> str:
    """Format a ratio: +38 %, −12 %, 2.4×. It is a factor too if the interval's end `high` is written as one."""
    if ratio is None or math.isnan(ratio):
        return UNKNOWN
    if max(ratio, high if high is not None else ratio) >= FACTOR_FROM:
        return f"{number(ratio)}{TIMES}"
    percentage = 100 * (ratio - 1)
    # Changes that one decimal rounds to nothing have one digit, so that an interval keeps its width.
    digits, most = (3, 1) if abs(percentage) >= 0.05 else (1, 4)
    return f"{signed(percentage, digits, most)}{NBSP}%"


def change_interval(low: float | None, high: float | None) -> str:
    """Format an interval of ratios, both ends in one notation. An end is None if it depends on runs ranked last."""
    if low is None or high is None:
        return _open_interval(change(low), change(high))
    if high >= FACTOR_FROM:
        return f"{number(low)} to {number(high)}{TIMES}"
    return f"{change(low).removesuffix('%').strip()} to {change(high)}"


def interval_in_unit(response: str | Response, low: float | None, high: float | None) -> str:
    """Format an interval of differences in the response's display unit, which is written once."""
    if low is None or high is None:
        return _open_interval(in_unit(response, low, sign=True), in_unit(response, high, sign=True))
    scale, most = _response(response).scale, decimals(response)
    return f"{signed(low * scale, most=most)} to {signed(high * scale, most=most)}{NBSP}{unit(response)}".strip()


def _open_interval(low: str, high: str) -> str:
    return f"at least {low}" if low != UNKNOWN else f"at most {high}" if high != UNKNOWN else UNKNOWN


def added(row: VerdictRow) -> str:
    """Format the amount that a treatment adds; if too many runs are ranked last for an estimate, its interval."""
    if row.difference is None:
        return added_interval(row)
    return in_unit(response_of(row), row.difference, sign=True)


def added_interval(row: VerdictRow) -> str:
    """Format the interval of the added amount."""
    return interval_in_unit(response_of(row), row.difference_low, row.difference_high)


def effect(row: VerdictRow) -> str:
    """Format the effect that decides the verdict: an added amount or a change."""
    if row.by_difference:
        return added(row)
    return change_interval(row.ci_low, row.ci_high) if row.ratio is None else change(row.ratio, row.ci_high)


def effect_interval(row: VerdictRow) -> str:
    """Format the interval of the effect that decides the verdict."""
    return added_interval(row) if row.by_difference else change_interval(row.ci_low, row.ci_high)


def effect_in_full(row: VerdictRow) -> str:
    """Format the effect with its interval, without it if the interval has no end or is the same text."""
    text, ends = effect(row), effect_interval(row)
    return text if ends in (text, UNKNOWN) else f"{text} ({ends}{interval_mark(row)})"


def interval_mark(row: VerdictRow) -> str:
    """Return a note if an interval is too narrow although its verdict holds: the effect is large, and blocks depend."""
    if not row.verdict.different or not warned(row, "dependent-blocks"):
        return ""
    return f", too narrow because {row.counted} depend"


def range_of_effect(row: VerdictRow, low: float | None, high: float | None) -> str:
    """Format a range of effects on the scale of a row's verdict."""
    return interval_in_unit(row.response, low, high) if row.by_difference else change_interval(low, high)


def within(row: VerdictRow) -> str:
    """Return the sessions for which an interval of blocks holds, or nothing: `` in this session``."""
    if row.counted != "blocks" or not row.sessions:
        return ""
    return " in this session" if row.sessions == 1 else " in these sessions"


def other_effect(row: VerdictRow) -> str:
    """Format the effect that does not decide the verdict, or return nothing if there is none."""
    if row.by_difference:
        return "" if row.ratio is None else change(row.ratio, row.ci_high)
    return "" if row.difference is None else added(row)


def treatment(row: VerdictRow) -> str:
    """Return the name of a row's treatment, marked if it is the A/A twin."""
    return f"{row.treatment} (A/A twin)" if row.twin else row.treatment


def typical(row: VerdictRow) -> str:
    """Return the response's label; a percentile's says that it is a typical run's."""
    response = response_of(row)
    return (row.label or response.label) + (", typical run's" if response.percentile else "")


def warned(row: VerdictRow, *codes: str) -> bool:
    """Whether a row has a warning with one of these codes."""
    return any(warning.code in codes for warning in row.warnings)


def warnings(rows: Sequence[VerdictRow], codes: Collection[str] | None = None) -> list[str]:
    """Return the distinct warnings of verdict rows; a warning of all contrasts of a response names no treatment.

    `codes` selects warnings. The warning of a later analysis is left out, because `marking` shows it.
    """
    families: dict[tuple[str, str], dict[str, None]] = {}
    treatments_of: dict[tuple[str, str, Warning], dict[str, None]] = {}
    for row in rows:
        families.setdefault((row.load, row.response), {})[row.treatment] = None
        for warning in row.warnings:
            if warning.code != AFTER_THE_FACT and (codes is None or warning.code in codes):
                treatments_of.setdefault((row.load, row.response, warning), {})[row.treatment] = None
    several = len({load for load, _ in families}) > 1
    lines = []
    for (load, name, warning), treatments in treatments_of.items():
        whose = "" if len(treatments) == len(families[load, name]) else f", {listing(list(treatments))}"
        lines.append(f"{short_label(name)}{whose}{f', {load}' if several else ''}: {warning.message}")
    return lines


def margin_text(name: str, margin: Margin | None) -> str:
    """Format a declared margin: its relative part, its floor, or both."""
    if margin is None:
        return "none declared"
    share, floor = f"{plain(100 * margin.relative)}{NBSP}%", f"{plain(margin.floor * known(name).scale)} {unit(name)}"
    if not margin.relative:
        return f"±{floor}"
    return f"±{share}, at least {floor}" if margin.floor else f"±{share}"


def mde_text(row: VerdictRow) -> str:
    """Format the minimum detectable effect on the scale of the verdict."""
    if row.mde is None:
        return UNKNOWN
    return in_unit(response_of(row), row.mde) if row.by_difference else percent(row.mde, 2)


def load_text(load: Load) -> str:
    """Describe a load in words."""
    match load:
        case ClosedLoop():
            rate = "closed loop (as fast as responses arrive)"
        case CapacitySearch():
            objective = load.objective.replace("<", " below ").replace("ms", f"{NBSP}ms")
            rate = f"the highest sustained rate{f' with {objective}' if objective else ''}, found by a search"
        case Ramp():
            rate = f"a rate rising to {plain(load.rps)} requests per second in {load.steps} steps"
        case _:
            rate = f"{plain(load.asked_rps)} requests per second"
    connections = f"{rate} over {count(load.connections)} connection{'s' * (load.connections > 1)}"
    return ", ".join([connections, *load.details(count)])


def short_label(name: str) -> str:
    """Return a response's label for use inside a sentence: ``CPU per request of app and data plane``."""
    return known(name).label.replace(", ", " of ")
