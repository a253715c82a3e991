"""What grows with the endpoints, and how: values against size, exponents against 1, and the machine's own limits.

Every line is solid where sizes were measured and dashed beyond: what nobody measured is always drawn as such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from meshtrial.design.responses import PERCENTILES, REGISTRY, Response
from meshtrial.inference.scaling import Growth, growths, judged
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty
from meshtrial.report.palette import INK
from meshtrial.report.sheet import Sheet

COST = (
    *("total_cpu_cores", "data_plane_cpu_cores", "app_cpu_cores", "control_plane_cpu_cores"),
    *("total_memory_bytes", "data_plane_memory_bytes", "app_memory_bytes", "control_plane_memory_bytes"),
)
A_REQUEST = ("data_plane_cpu_s_per_request", "proxy_cpu_cores", "proxy_memory_bytes")
LATENCY = tuple(f"latency_beyond_holds_{key}_s" for key, found in PERCENTILES.items() if found.beyond_holds)
CONFIGURATION = ("config_time_s", "config_cpu_s", "config_bytes", "push_time_s", "push_bytes")
CURVE_POINTS = 25
BEYOND = 1.5  # how far past the largest size a line is drawn, dashed


def cost_against_endpoints(data: StudyData) -> Figure:
    """CPU and memory by part of the system against endpoints."""
    return _against(data, COST, "CPU and memory by part of the system against endpoints")


def shares_against_endpoints(data: StudyData) -> Figure:
    """What one request and one proxy cost, against endpoints."""
    return _against(data, A_REQUEST, "The share of one request and of one proxy against endpoints")


def latency_against_endpoints(data: StudyData) -> Figure:
    """Latency percentiles beyond the application's holds against endpoints."""
    return _against(data, LATENCY, "Latency beyond the holds against endpoints")


def configuration_against_endpoints(data: StudyData) -> Figure:
    """What the control plane's work costs against endpoints: the first configuration, and one endpoint more."""
    return _against(data, CONFIGURATION, "The cost of configuration against endpoints")


def _against(data: StudyData, responses: Sequence[str], what: str) -> Figure:
    found = growths(data, responses)
    if not found:
        return empty(f"{what}: no treatment was measured at two sizes.")
    alpha = data.plan.study.alpha
    caption = (
        f"{what}. Dots are runs; marks with bars are the estimate over blocks and its {100 * (1 - alpha):g} % interval "
        "at each size; the line is the straight line or the power law, whichever lies closer (the table says which), "
        "its band the same interval: dashed beyond the largest size, where nothing was measured. Exponents and what "
        "one more endpoint costs are in the table."
    )
    return Figure(lambda sheet: _draw(data, found, sheet), _alt(what, found), caption, slopes_table(found))


def _groups(found: Sequence[Growth]) -> dict[str, list[Growth]]:
    groups: dict[str, list[Growth]] = {}
    for one in found:
        groups.setdefault(one.ladder.response, []).append(one)
    return groups


def _draw(data: StudyData, found: Sequence[Growth], sheet: Sheet) -> Canvas:
    groups = _groups(found)
    figure, axes = sheet.panels([1.9] * len(groups), sharex=True)
    looks = palette.looks(data.plan.study)
    for axis, (name, members) in zip(axes, groups.items(), strict=True):
        response = REGISTRY[name]
        for one in members:
            _line(axis, one, response, palette.look_of(looks, one.ladder.treatment), data.plan.study.alpha)
        axis.set_title(response.label)
        axis.set_ylabel(response.unit)
        axis.set_ylim(0, 1.05 * axis.get_ylim()[1])  # room for the marks of what hardly changes
        axis.set_xlim(left=0)
    axes[-1].set_xlabel("endpoints")
    treatments = list(dict.fromkeys(one.ladder.treatment for one in found))
    sheet.key(axes[0], [palette.look_of(looks, treatment) for treatment in frames.order(data, treatments)])
    return figure


def _line(axis: Axes, one: Growth, response: Response, look: palette.Look, alpha: float) -> None:
    x, y = one.ladder.x, one.ladder.y * response.scale
    sns.scatterplot(
        x=np.tile(x, len(y)), y=y.ravel(), ax=axis, s=7, linewidth=0, color=look.colour, alpha=0.5, legend=False
    )
    for at, slope in zip(x, one.ladder.at_sizes(alpha), strict=True):
        if slope is not None:
            low, middle, high = (v * response.scale for v in (slope.low, slope.estimate, slope.high))
            axis.plot([at, at], [max(low, 0.0), high], color=look.colour, linewidth=1.1)
            axis.plot(at, middle, marker=look.marker, markersize=5, markerfacecolor=look.face, color=look.colour)
    for low, high, dash in ((x[0], x[-1], "-"), (x[-1], x[-1] * BEYOND, (0, (2.2, 1.8)))):
        at = np.linspace(low, high, CURVE_POINTS)
        ends = [end for size in at if (end := one.predict(float(size), alpha)) is not None]
        if ends:
            band = response.scale * np.array([(end.low, end.estimate, end.high) for end in ends])
            axis.plot(at, band[:, 1], color=look.colour, linestyle=dash, linewidth=1.2)
            axis.fill_between(at, np.maximum(band[:, 0], 0.0), band[:, 2], color=look.colour, alpha=0.12, linewidth=0)


def slopes_table(found: Sequence[Growth]) -> pl.DataFrame:
    """A row a treatment and response: exponent, verdict against 1, cost of an endpoint, knee, and a prediction."""
    return pl.DataFrame([_row(one) for one in found], infer_schema_length=None)


def _row(one: Growth) -> dict[str, object]:
    response = REGISTRY[one.ladder.response]
    law, cost, knee = one.law, one.cost, one.knee
    largest = one.ladder.endpoints[-1]
    ahead = one.predict(2 * largest, 0.05)
    shown: Callable[[float | None], float | None] = lambda v: None if v is None else v * response.scale  # noqa: E731
    return {
        "response": f"{response.label} / {response.unit}",
        "treatment": one.ladder.treatment,
        "rps": one.ladder.rps,
        "blocks": len(one.ladder.blocks),
        "sizes": " ".join(map(str, one.ladder.endpoints)),
        "exponent": law.exponent.estimate if law else None,
        "exponent from": law.exponent.low if law else None,
        "exponent to": law.exponent.high if law else None,
        "against 1": judged(one),
        "one endpoint more": shown(cost.estimate if cost else None),
        "one more, from": shown(cost.low if cost else None),
        "one more, to": shown(cost.high if cost else None),
        "line drawn": one.curve.form if one.curve else "",
        "knee": knee.at if knee and knee.found else None,
        f"extrapolated to 2{wording.TIMES} the largest": shown(ahead.estimate if ahead else None),
        "method": cost.method if cost else "",
        "notes": "; ".join(
            [*one.why, *(w.message for w in (law.exponent.warnings if law else ()) if w.code != "below-floor")]
        ),
    }


def _alt(what: str, found: Sequence[Growth]) -> str:
    parts = []
    for one in found:
        response = REGISTRY[one.ladder.response]
        middles = np.median(one.ladder.y, axis=0) * response.scale
        ends = f"{wording.number(float(middles[0]))} to {wording.number(float(middles[-1]))} {response.unit}".strip()
        sizes = f"{one.ladder.endpoints[0]} to {one.ladder.endpoints[-1]} endpoints"
        parts.append(f"{response.label}, {one.ladder.treatment}: {ends} from {sizes}")
    return f"{what}. " + "; ".join(parts) + "."


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
    alt = "Exponents against endpoints. " + "; ".join(
        f"{REGISTRY[one.ladder.response].label}, {one.ladder.treatment}: {one.law.exponent.estimate:.2f} "
        f"({one.law.exponent.low:.2f} to {one.law.exponent.high:.2f}), {judged(one)}"
        for one in found
        if one.law is not None
    )
    return Figure(lambda sheet: _forest(data, found, sheet), alt + ".", caption, slopes_table(found))


def _forest(data: StudyData, found: Sequence[Growth], sheet: Sheet) -> Canvas:
    figure, (axis,) = sheet.panels([0.8 + 0.85 * sheet.row_in * len(found)])
    looks = palette.looks(data.plan.study)
    names = []
    for place, one in enumerate(found):
        if one.law is None:
            continue
        look, slope = palette.look_of(looks, one.ladder.treatment), one.law.exponent
        axis.plot([slope.low, slope.high], [place, place], color=look.colour, linewidth=1.6)
        axis.plot(
            slope.estimate, place, marker=look.marker, markersize=5.5, color=look.colour, markerfacecolor=look.face
        )
        names.append(REGISTRY[one.ladder.response].label)
    for at, dash in ((0.0, (0, (2, 2))), (1.0, "-")):
        axis.axvline(at, color=INK, linewidth=0.8, linestyle=dash)
    wide = [v for one in found if one.law for v in (one.law.exponent.low, one.law.exponent.high)]
    # An interval from two or three blocks may be absurdly wide; the axis shows what can be read.
    axis.set_xlim(max(min(-0.3, *wide), -1.5), min(max(1.5, *wide), 3.0))
    sheet.rows(axis, names, [INK] * len(names))
    axis.set_xlabel("exponent against endpoints (1: in proportion)")
    treatments = list(dict.fromkeys(one.ladder.treatment for one in found))
    sheet.key(axis, [palette.look_of(looks, treatment) for treatment in frames.order(data, treatments)], lines=False)
    return figure
