"""Growth with the number of endpoints: values by size, exponents compared with 1, and the machine's own limits.

A study of one size is drawn by the unused services, connections or bytes that it varies instead. Lines are solid over
the measured sizes and dashed beyond them.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from meshtrial.design.responses import PERCENTILES, REGISTRY, Response
from meshtrial.inference.scaling import LEAST_IDLE, Growth, Limit, exponent_verdict, growths, limits, varied
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Columns, Figure, empty
from meshtrial.report.palette import INK
from meshtrial.report.sheet import estimate
from meshtrial.stats.growth import Slope

COST = (
    *("total_cpu_cores", "data_plane_cpu_cores", "app_cpu_cores", "control_plane_cpu_cores"),
    *("total_memory_bytes", "data_plane_memory_bytes", "app_memory_bytes", "control_plane_memory_bytes"),
    "data_plane_memory_after_bytes",
)
A_REQUEST = ("data_plane_cpu_s_per_request", "proxy_cpu_cores", "proxy_memory_bytes")
LATENCY = tuple(f"latency_net_{key}_s" for key, about in PERCENTILES.items() if about.net)
CONFIGURATION = ("config_time_s", "config_cpu_s", "config_bytes", "push_time_s", "push_bytes")
CURVE_POINTS = 25
BEYOND = 1.5  # lines end at this multiple of the largest size
# The machine's idle share, achieved rate and failures, which show at which sizes a result is not about the mesh.
_LIMITS: tuple[tuple[str, Callable[[Limit], float | None]], ...] = (
    ("machine idle / %", lambda one: None if one.idle is None else 100 * one.idle),
    ("achieved rate, worst run / % of requested", lambda one: None if one.achieved is None else 100 * one.achieved),
    ("failed requests / %", lambda one: 100 * sum(one.failed.values()) / one.requests if one.requests else None),
)


def cost_by_size(data: StudyData) -> Figure:
    """Draw CPU and memory by part of the system, by what the study varies: endpoints, unused services, connections."""
    return _by_size(data, COST, "CPU and memory by part of the system")


def shares_against_endpoints(data: StudyData) -> Figure:
    """Draw the cost of one request and of one proxy by number of endpoints."""
    return _by_size(data, A_REQUEST, "The share of one request and of one proxy")


def latency_against_endpoints(data: StudyData) -> Figure:
    """Draw latency percentiles, without the application's own delays, by number of endpoints."""
    return _by_size(data, LATENCY, "Latency without the application's own delays")


def configuration_against_endpoints(data: StudyData) -> Figure:
    """Draw the control plane's cost of the first configuration and of one more endpoint, by number of endpoints."""
    return _by_size(data, CONFIGURATION, "The cost of configuration")


def _by_size(data: StudyData, responses: Sequence[str], subject: str) -> Figure:
    axis = varied(data)
    curves = growths(data, responses, axis)
    subject = f"{subject} against {axis.plural}"
    if not curves:
        return empty(f"{subject}: no treatment was measured at two sizes.")
    alpha = data.plan.study.alpha
    caption = (
        f"{subject}. Dots are runs. Marks with bars are the estimate over blocks and its {100 * (1 - alpha):g} % "
        "interval at each size. The line is the straight line or the power law, whichever fits better (the table says "
        "which), and its band is the same interval. It is dashed beyond the largest measured size. The table has the "
        f"exponents and the cost of one more {axis.singular}."
    )

    def describe(one: Growth) -> str:
        response, ladder = REGISTRY[one.ladder.response], one.ladder
        first, last = (wording.number(float(np.median(ladder.y[:, at]) * response.scale)) for at in (0, -1))
        ends, sizes = f"{first} to {last} {response.unit}".strip(), f"{ladder.sizes[0]} to {ladder.sizes[-1]}"
        return f"{response.label}, {ladder.treatment}: {ends} from {sizes} {ladder.axis.plural}"

    return Figure.from_rows(lambda: _draw(data, curves), curves, SLOPES, subject, describe, caption)


def _draw(data: StudyData, curves: Sequence[Growth]) -> Canvas:
    groups: dict[str, list[Growth]] = {}
    for one in curves:
        groups.setdefault(one.ladder.response, []).append(one)
    figure, axes = sheet.panels([1.9] * len(groups), sharex=True)
    looks = palette.looks(data.plan.study)
    for axis, (name, members) in zip(axes, groups.items(), strict=True):
        response = REGISTRY[name]
        for one in members:
            _line(axis, one, response, looks[one.ladder.treatment], data.plan.study.alpha)
        axis.set_title(response.label)
        axis.set_ylabel(response.unit)
        axis.set_ylim(0, 1.05 * axis.get_ylim()[1])  # room for marks at the top
        axis.set_xlim(left=0)
    axes[-1].set_xlabel(curves[0].ladder.axis.plural)
    sheet.key(axes[0], _looks_of(data, curves))
    return figure


def _looks_of(data: StudyData, curves: Sequence[Growth]) -> list[palette.TreatmentStyle]:
    looks = palette.looks(data.plan.study)
    return [looks[name] for name in frames.order(data, {one.ladder.treatment for one in curves})]


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


# Exponent and its comparison with 1, cost of an endpoint, knee, and an extrapolation.
SLOPES: Columns[Growth] = {
    "response": lambda one: f"{REGISTRY[one.ladder.response].label} / {REGISTRY[one.ladder.response].unit}",
    "treatment": lambda one: one.ladder.treatment,
    "rps": lambda one: one.ladder.rps,
    "blocks": lambda one: len(one.ladder.blocks),
    "sizes": lambda one: " ".join(map(str, one.ladder.sizes)),
    "exponent": _exponent_of("estimate"),
    "exponent from": _exponent_of("low"),
    "exponent to": _exponent_of("high"),
    "against 1": exponent_verdict,
    "cost of one more": _cost_of("estimate"),
    "cost of one more, from": _cost_of("low"),
    "cost of one more, to": _cost_of("high"),
    "fitted line": lambda one: one.curve.form if one.curve else "",
    "knee": lambda one: one.knee.at if one.knee and one.knee.found else None,
    f"extrapolated to 2{wording.TIMES} the largest": lambda one: (
        at.estimate * REGISTRY[one.ladder.response].scale
        if (at := one.predict(2 * one.ladder.sizes[-1], 0.05))
        else None
    ),
    "method": lambda one: one.cost.method if one.cost else "",
    "notes": lambda one: "; ".join(
        [
            *one.why,
            *(each.message for each in (one.law.exponent.warnings if one.law else ()) if each.code != "below-floor"),
        ]
    ),
}


def exponents(data: StudyData, responses: Sequence[str] = (*COST, *LATENCY, *CONFIGURATION)) -> Figure:
    """Draw the exponent of growth of every response with its interval; 1 is a straight line through zero."""
    found = [(one, one.law.exponent) for one in growths(data, responses) if one.law is not None]
    if not found:
        return empty("No response has an exponent: that needs positive values at two sizes in two blocks.")
    caption = (
        "The exponent of growth: 1 is proportional to the endpoints, 0 is no growth. Bars are intervals over blocks "
        f"({found[0][1].method}). An interval that includes 1 does not show that growth is linear; see the verdicts in "
        "the table."
    )

    def describe(one: Growth) -> str:
        assert one.law is not None
        slope, named = one.law.exponent, f"{REGISTRY[one.ladder.response].label}, {one.ladder.treatment}"
        return f"{named}: {slope.estimate:.2f} ({slope.low:.2f} to {slope.high:.2f}), {exponent_verdict(one)}"

    curves, summary = [one for one, _ in found], "Exponents against endpoints"
    return Figure.from_rows(lambda: _forest(data, found), curves, SLOPES, summary, describe, caption)


def _forest(data: StudyData, found: Sequence[tuple[Growth, Slope]]) -> Canvas:
    figure, (axis,) = sheet.panels([0.8 + 0.85 * sheet.ROW_IN * len(found)])
    looks = palette.looks(data.plan.study)
    for place, (one, slope) in enumerate(found):
        look = looks[one.ladder.treatment]
        sheet.estimate(axis, place, (slope.low, slope.high), slope.estimate, look, filled=look.filled, size=5.5)
    for at, dash in ((0.0, (0, (2, 2))), (1.0, "-")):
        axis.axvline(at, color=INK, linewidth=0.8, linestyle=dash)
    wide = [end for _, slope in found for end in (slope.low, slope.high)]
    # An interval from two or three blocks may be extremely wide; the axis shows a readable range.
    axis.set_xlim(max(min(-0.3, *wide), -1.5), min(max(1.5, *wide), 3.0))
    sheet.rows(axis, [REGISTRY[one.ladder.response].label for one, _ in found], [INK] * len(found))
    axis.set_xlabel("exponent of growth with endpoints (1: proportional)")
    sheet.key(axis, _looks_of(data, [one for one, _ in found]), lines=False)
    return figure


def machine_limits(data: StudyData) -> Figure:
    """Draw idle share, achieved rate and failures by size; the caption says where the machine was the limit."""
    rows = limits(data)
    if not rows:
        return empty("No run was made.")
    sizes_of: dict[str, list[str]] = {}
    for one in rows:
        if one.by_machine:
            sizes_of.setdefault(one.treatment, []).append(str(one.endpoints))
    places = [f"{name} at {', '.join(dict.fromkeys(sizes))} endpoints" for name, sizes in sizes_of.items()]
    where = (
        f"The machine was the limit for {'; '.join(places)}." if places else "This happened at no size of this study."
    )
    caption = (
        f"Below {100 * LEAST_IDLE:g} % idle (dotted), the machine is the limit and not the mesh: rates and latencies "
        f"would differ on a larger machine. {where} The table has failures by kind."
    )

    def failed(kind: str, one: Limit) -> int:
        return one.failed.get(kind, 0)

    columns: Columns[Limit] = {
        "treatment": lambda one: one.treatment,
        "endpoints": lambda one: one.endpoints,
        "rps": lambda one: one.rps,
        "runs": lambda one: one.runs,
        "valid": lambda one: one.valid,
        "idle CPU / %": lambda one: None if one.idle is None else 100 * one.idle,
        "achieved rate, worst run / %": lambda one: None if one.achieved is None else 100 * one.achieved,
        "requests": lambda one: one.requests,
        **{
            f"failed: {kind}": partial(failed, kind)
            for kind in dict.fromkeys(kind for one in rows for kind in one.failed)
        },
        "throttled / s": lambda one: one.throttled_s,
        "failed checks": lambda one: ", ".join(one.gates) or "none",
        "conclusion": lambda one: one.sentence,
    }
    summary = "Idle share of the machine, achieved rate and failed requests against endpoints"
    return Figure.from_rows(
        lambda: _draw_limits(data, rows),
        rows,
        columns,
        summary,
        lambda one: f"{one.treatment}, {one.endpoints} endpoints: {one.sentence}",
        caption,
    )


def _draw_limits(data: StudyData, rows: Sequence[Limit]) -> Canvas:
    figure, axes = sheet.panels([1.7] * len(_LIMITS), sharex=True)
    looks = palette.looks(data.plan.study)
    for axis, (title, value) in zip(axes, _LIMITS, strict=True):
        for name, look in looks.items():
            points = [(one.endpoints, y) for one in rows if one.treatment == name and (y := value(one)) is not None]
            if points:
                axis.plot(*zip(*sorted(points), strict=True), **look.marks(5) | look.line(1.1))
        axis.set_title(title)
        axis.set_xlim(left=0)
        # Shares go to 100, with room for marks at both ends; failures are few, and zero must be visible.
        whole = "failed" not in title
        axis.set_ylim(-6 if whole else -0.06, 106 if whole else max(1.05 * axis.get_ylim()[1], 1.06))
    axes[0].axhline(100 * LEAST_IDLE, color=INK, linewidth=0.8, linestyle=":")
    axes[-1].set_xlabel("endpoints")
    sheet.key(axes[0], looks.values())
    return figure
