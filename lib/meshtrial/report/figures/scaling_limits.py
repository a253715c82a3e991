"""What the machine had left at every size, and what failed: where a figure stops speaking of the mesh."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl
from matplotlib.figure import Figure as Canvas

from meshtrial.inference.scaling_limits import LEAST_IDLE, Limit, limits
from meshtrial.records.dataset import StudyData
from meshtrial.report import palette
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty
from meshtrial.report.palette import INK
from meshtrial.report.sheet import Sheet

_PANELS: tuple[tuple[str, Callable[[Limit], float | None]], ...] = (
    ("machine idle / %", lambda one: None if one.idle is None else 100 * one.idle),
    ("achieved rate, worst run / % of asked", lambda one: None if one.achieved is None else 100 * one.achieved),
    ("failed requests / %", lambda one: 100 * sum(one.failed.values()) / one.requests if one.requests else None),
)


def machine_limits(data: StudyData) -> Figure:
    """Idle share, achieved rate and failures against endpoints; the caption says where the machine was the limit."""
    found = limits(data)
    if not found:
        return empty("No run was made.")
    caption = (
        f"Below {100 * LEAST_IDLE:g} % idle (dotted) the machine is the limit, not the mesh: rates and latencies there "
        f"would be others on a larger machine. {_where(found)} Failures by kind are in the table."
    )
    alt = "Idle share of the machine, achieved rate and failed requests against endpoints. " + "; ".join(
        f"{one.treatment}, {one.endpoints} endpoints: {one.sentence}" for one in found
    )
    return Figure(lambda sheet: _draw(data, found, sheet), alt + ".", caption, _table(found))


def _where(found: Sequence[Limit]) -> str:
    held: dict[str, list[str]] = {}
    for one in found:
        if one.by_machine:
            held.setdefault(one.treatment, []).append(str(one.endpoints))
    if not held:
        return "That was so at no size of this study."
    places = [f"{name} at {', '.join(dict.fromkeys(sizes))} endpoints" for name, sizes in held.items()]
    return f"The machine was the limit for {'; '.join(places)}."


def _draw(data: StudyData, found: Sequence[Limit], sheet: Sheet) -> Canvas:
    figure, axes = sheet.panels([1.7] * len(_PANELS), sharex=True)
    looks = palette.looks(data.plan.study)
    for axis, (title, value) in zip(axes, _PANELS, strict=True):
        for name, look in looks.items():
            points = [
                (one.endpoints, shown) for one in found if one.treatment == name and (shown := value(one)) is not None
            ]
            if points:
                axis.plot(
                    *zip(*sorted(points), strict=True), color=look.colour, linestyle=look.dash, linewidth=1.1,
                    marker=look.marker, markersize=5, markerfacecolor=look.face,
                )  # fmt: skip
        axis.set_title(title)
        axis.set_xlim(left=0)
        # Shares of 100, with room for a mark at either end; failures are few, and zero must still be seen.
        whole = "failed" not in title
        axis.set_ylim(-6 if whole else -0.06, 106 if whole else max(1.05 * axis.get_ylim()[1], 1.06))
    axes[0].axhline(100 * LEAST_IDLE, color=INK, linewidth=0.8, linestyle=":")
    axes[-1].set_xlabel("endpoints")
    sheet.key(axes[0], looks.values())
    return figure


def _table(found: Sequence[Limit]) -> pl.DataFrame:
    kinds = list(dict.fromkeys(kind for one in found for kind in one.failed))
    rows = [
        {
            "treatment": one.treatment,
            "endpoints": one.endpoints,
            "rps": one.rps,
            "runs": one.runs,
            "valid": one.valid,
            "idle / %": None if one.idle is None else 100 * one.idle,
            "achieved, worst run / %": None if one.achieved is None else 100 * one.achieved,
            "requests": one.requests,
            **{f"failed: {kind}": one.failed.get(kind, 0) for kind in kinds},
            "throttled / s": one.throttled_s,
            "gates failed": ", ".join(one.gates) or "none",
            "what it means": one.sentence,
        }
        for one in found
    ]
    return pl.DataFrame(rows, infer_schema_length=None)
