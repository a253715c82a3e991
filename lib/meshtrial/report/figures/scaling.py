"""What grows with the endpoints, and how: values against size, exponents against 1, and the machine's own limits.

A study of one size that has services that nobody calls is drawn against these.
Every line is solid where sizes were measured and dashed beyond: what nobody measured is always drawn as such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from meshtrial.design.responses import PERCENTILES, REGISTRY, Response
from meshtrial.inference.scaling import Growth, growths, judged, varied
from meshtrial.inference.scaling_limits import LEAST_IDLE, Limit, limits
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Columns, Figure
from meshtrial.report.figures.common import empty, estimate
from meshtrial.report.palette import INK

COST = (
    *("total_cpu_cores", "data_plane_cpu_cores", "app_cpu_cores", "control_plane_cpu_cores"),
    *("total_memory_bytes", "data_plane_memory_bytes", "app_memory_bytes", "control_plane_memory_bytes"),
)
A_REQUEST = ("data_plane_cpu_s_per_request", "proxy_cpu_cores", "proxy_memory_bytes")
LATENCY = tuple(f"latency_beyond_holds_{key}_s" for key, found in PERCENTILES.items() if found.beyond_holds)
CONFIGURATION = ("config_time_s", "config_cpu_s", "config_bytes", "push_time_s", "push_bytes")
CURVE_POINTS = 25
BEYOND = 1.5  # how far past the largest size a line is drawn, dashed
# What the machine had left at every size, and what failed: where a figure stops speaking of the mesh.
_LIMITS: tuple[tuple[str, Callable[[Limit], float | None]], ...] = (
    ("machine idle / %", lambda one: None if one.idle is None else 100 * one.idle),
    ("achieved rate, worst run / % of asked", lambda one: None if one.achieved is None else 100 * one.achieved),
    ("failed requests / %", lambda one: 100 * sum(one.failed.values()) / one.requests if one.requests else None),
)


def cost_against_endpoints(data: StudyData) -> Figure:
    """CPU and memory by part of the system against endpoints, or services that nobody calls."""
    return _against(data, COST, "CPU and memory by part of the system")


def shares_against_endpoints(data: StudyData) -> Figure:
    """What one request and one proxy cost, against endpoints."""
    return _against(data, A_REQUEST, "The share of one request and of one proxy")


def latency_against_endpoints(data: StudyData) -> Figure:
    """Latency percentiles beyond the application's holds against endpoints."""
    return _against(data, LATENCY, "Latency beyond the holds")


def configuration_against_endpoints(data: StudyData) -> Figure:
    """What the control plane's work costs against endpoints: the first configuration, and one endpoint more."""
    return _against(data, CONFIGURATION, "The cost of configuration")


def _against(data: StudyData, responses: Sequence[str], what: str) -> Figure:
    axis = varied(data)
    found = growths(data, responses, axis)
    what = f"{what} against {axis.many}"
    if not found:
        return empty(f"{what}: no treatment was measured at two sizes.")
    alpha = data.plan.study.alpha
    caption = (
        f"{what}. Dots are runs; marks with bars are the estimate over blocks and its {100 * (1 - alpha):g} % interval "
        "at each size; the line is the straight line or the power law, whichever lies closer (the table says which), "
        "its band the same interval: dashed beyond the largest size, where nothing was measured. Exponents and what "
        f"one more {axis.one} costs are in the table."
    )
    return Figure.of(lambda: _draw(data, found), found, SLOPES, what, _says, caption)


def _draw(data: StudyData, found: Sequence[Growth]) -> Canvas:
    groups: dict[str, list[Growth]] = {}
    for one in found:
        groups.setdefault(one.ladder.response, []).append(one)
    figure, axes = sheet.panels([1.9] * len(groups), sharex=True)
    looks = palette.looks(data.plan.study)
    for axis, (name, members) in zip(axes, groups.items(), strict=True):
        response = REGISTRY[name]
        for one in members:
            _line(axis, one, response, looks[one.ladder.treatment], data.plan.study.alpha)
        axis.set_title(response.label)
        axis.set_ylabel(response.unit)
        axis.set_ylim(0, 1.05 * axis.get_ylim()[1])  # room for the marks of what hardly changes
        axis.set_xlim(left=0)
    axes[-1].set_xlabel(found[0].ladder.axis.many)
    sheet.key(axes[0], _looks_of(data, found))
    return figure


def _looks_of(data: StudyData, found: Sequence[Growth]) -> list[palette.TreatmentStyle]:
    looks = palette.looks(data.plan.study)
    return [looks[name] for name in frames.order(data, {one.ladder.treatment for one in found})]


def _line(axis: Axes, one: Growth, response: Response, look: palette.TreatmentStyle, alpha: float) -> None:
    x, y = one.ladder.x, one.ladder.y * response.scale
    axis.plot(np.tile(x, len(y)), y.ravel(), "o", color=look.colour, markersize=2.6, markeredgewidth=0, alpha=0.5)
    for at, slope in zip(x, one.ladder.at_sizes(alpha), strict=True):
        if slope is not None:
            low, middle, high = (v * response.scale for v in (slope.low, slope.estimate, slope.high))
            estimate(axis, at, (max(low, 0.0), high), middle, look, upright=True, filled=look.filled, size=5)
    for low, high, dash in ((x[0], x[-1], "-"), (x[-1], x[-1] * BEYOND, (0, (2.2, 1.8)))):
        at = np.linspace(low, high, CURVE_POINTS)
        ends = [end for size in at if (end := one.predict(float(size), alpha)) is not None]
        if ends:
            band = response.scale * np.array([(end.low, end.estimate, end.high) for end in ends])
            axis.plot(at, band[:, 1], **look.line(1.2) | {"linestyle": dash})
            axis.fill_between(at, np.maximum(band[:, 0], 0.0), band[:, 2], color=look.colour, alpha=0.12, linewidth=0)


def _exponent_of(name: str) -> Callable[[Growth], object]:
    return lambda one: getattr(one.law.exponent, name) if one.law else None


def _cost_of(name: str) -> Callable[[Growth], object]:
    return lambda one: getattr(one.cost, name) * REGISTRY[one.ladder.response].scale if one.cost else None


def _ahead(one: Growth) -> float | None:
    found = one.predict(2 * one.ladder.sizes[-1], 0.05)
    return found.estimate * REGISTRY[one.ladder.response].scale if found else None


def _notes(one: Growth) -> str:
    told = one.law.exponent.warnings if one.law else ()
    return "; ".join([*one.why, *(warning.message for warning in told if warning.code != "below-floor")])


# Exponent, verdict against 1, cost of an endpoint, knee, and a prediction.
SLOPES: Columns[Growth] = {
    "response": lambda one: f"{REGISTRY[one.ladder.response].label} / {REGISTRY[one.ladder.response].unit}",
    "treatment": lambda one: one.ladder.treatment,
    "rps": lambda one: one.ladder.rps,
    "blocks": lambda one: len(one.ladder.blocks),
    "sizes": lambda one: " ".join(map(str, one.ladder.sizes)),
    "exponent": _exponent_of("estimate"),
    "exponent from": _exponent_of("low"),
    "exponent to": _exponent_of("high"),
    "against 1": judged,
    "one more": _cost_of("estimate"),
    "one more, from": _cost_of("low"),
    "one more, to": _cost_of("high"),
    "line drawn": lambda one: one.curve.form if one.curve else "",
    "knee": lambda one: one.knee.at if one.knee and one.knee.found else None,
    f"extrapolated to 2{wording.TIMES} the largest": _ahead,
    "method": lambda one: one.cost.method if one.cost else "",
    "notes": _notes,
}


def _says(one: Growth) -> str:
    response = REGISTRY[one.ladder.response]
    middles = np.median(one.ladder.y, axis=0) * response.scale
    ends = f"{wording.number(float(middles[0]))} to {wording.number(float(middles[-1]))} {response.unit}".strip()
    sizes = f"{one.ladder.sizes[0]} to {one.ladder.sizes[-1]} {one.ladder.axis.many}"
    return f"{response.label}, {one.ladder.treatment}: {ends} from {sizes}"


def exponents(data: StudyData, responses: Sequence[str] = (*COST, *LATENCY, *CONFIGURATION)) -> Figure:
    """Exponent of every response against endpoints, with its interval, beside 1: a straight line through zero."""
    found = [one for one in growths(data, responses) if one.law is not None]
    if not found:
        return empty("No response has an exponent: it needs positive values at two sizes and in two blocks.")
    caption = (
        "The exponent of growth: 1 is in proportion to the endpoints, 0 does not grow at all. Bars are intervals over "
        f"blocks ({found[0].law.exponent.method if found[0].law else ''}). An interval that holds 1 does not show that "
        "growth is linear; the table says what was shown."
    )
    seen = "Exponents against endpoints"
    return Figure.of(lambda: _forest(data, found), found, SLOPES, seen, _exponent, caption)


def _exponent(one: Growth) -> str:
    assert one.law is not None
    law, named = one.law.exponent, f"{REGISTRY[one.ladder.response].label}, {one.ladder.treatment}"
    return f"{named}: {law.estimate:.2f} ({law.low:.2f} to {law.high:.2f}), {judged(one)}"


def _forest(data: StudyData, found: Sequence[Growth]) -> Canvas:
    figure, (axis,) = sheet.panels([0.8 + 0.85 * sheet.ROW_IN * len(found)])
    looks = palette.looks(data.plan.study)
    slopes = [(one.ladder, one.law.exponent) for one in found if one.law is not None]
    for place, (ladder, slope) in enumerate(slopes):
        look = looks[ladder.treatment]
        estimate(axis, place, (slope.low, slope.high), slope.estimate, look, filled=look.filled, size=5.5)
    for at, dash in ((0.0, (0, (2, 2))), (1.0, "-")):
        axis.axvline(at, color=INK, linewidth=0.8, linestyle=dash)
    wide = [end for _, slope in slopes for end in (slope.low, slope.high)]
    # An interval from two or three blocks may be absurdly wide; the axis shows what can be read.
    axis.set_xlim(max(min(-0.3, *wide), -1.5), min(max(1.5, *wide), 3.0))
    sheet.rows(axis, [REGISTRY[ladder.response].label for ladder, _ in slopes], [INK] * len(slopes))
    axis.set_xlabel("exponent against endpoints (1: in proportion)")
    sheet.key(axis, _looks_of(data, found), lines=False)
    return figure


def machine_limits(data: StudyData) -> Figure:
    """Idle share, achieved rate and failures against endpoints; the caption says where the machine was the limit."""
    found = limits(data)
    if not found:
        return empty("No run was made.")
    caption = (
        f"Below {100 * LEAST_IDLE:g} % idle (dotted) the machine is the limit, not the mesh: rates and latencies there "
        f"would be others on a larger machine. {_limited_at(found)} Failures by kind are in the table."
    )
    seen = "Idle share of the machine, achieved rate and failed requests against endpoints"
    return Figure.of(
        lambda: _draw_limits(data, found),
        found,
        _limit_columns(found),
        seen,
        lambda one: f"{one.treatment}, {one.endpoints} endpoints: {one.sentence}",
        caption,
    )


def _limited_at(found: Sequence[Limit]) -> str:
    held: dict[str, list[str]] = {}
    for one in found:
        if one.by_machine:
            held.setdefault(one.treatment, []).append(str(one.endpoints))
    if not held:
        return "That was so at no size of this study."
    places = [f"{name} at {', '.join(dict.fromkeys(sizes))} endpoints" for name, sizes in held.items()]
    return f"The machine was the limit for {'; '.join(places)}."


def _draw_limits(data: StudyData, found: Sequence[Limit]) -> Canvas:
    figure, axes = sheet.panels([1.7] * len(_LIMITS), sharex=True)
    looks = palette.looks(data.plan.study)
    for axis, (title, value) in zip(axes, _LIMITS, strict=True):
        for name, look in looks.items():
            points = [
                (one.endpoints, shown) for one in found if one.treatment == name and (shown := value(one)) is not None
            ]
            if points:
                axis.plot(*zip(*sorted(points), strict=True), **look.marks(5) | look.line(1.1))
        axis.set_title(title)
        axis.set_xlim(left=0)
        # Shares of 100, with room for a mark at either end; failures are few, and zero must still be seen.
        whole = "failed" not in title
        axis.set_ylim(-6 if whole else -0.06, 106 if whole else max(1.05 * axis.get_ylim()[1], 1.06))
    axes[0].axhline(100 * LEAST_IDLE, color=INK, linewidth=0.8, linestyle=":")
    axes[-1].set_xlabel("endpoints")
    sheet.key(axes[0], looks.values())
    return figure


def _limit_columns(found: Sequence[Limit]) -> Columns[Limit]:
    kinds = list(dict.fromkeys(kind for one in found for kind in one.failed))

    def failed(kind: str) -> Callable[[Limit], object]:
        return lambda one: one.failed.get(kind, 0)

    return {
        "treatment": lambda one: one.treatment,
        "endpoints": lambda one: one.endpoints,
        "rps": lambda one: one.rps,
        "runs": lambda one: one.runs,
        "valid": lambda one: one.valid,
        "idle / %": lambda one: None if one.idle is None else 100 * one.idle,
        "achieved, worst run / %": lambda one: None if one.achieved is None else 100 * one.achieved,
        "requests": lambda one: one.requests,
        **{f"failed: {kind}": failed(kind) for kind in kinds},
        "throttled / s": lambda one: one.throttled_s,
        "checks failed": lambda one: ", ".join(one.gates) or "none",
        "what it means": lambda one: one.sentence,
    }
