"""What a treatment adds in milliseconds, percentile by percentile: a ratio alone does not say whether it matters."""

from __future__ import annotations

import math

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from meshtrial.design.responses import PERCENTILES
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, svg, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty, panel_title
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import INK
from meshtrial.report.sheet import Sheet


def added_latency(data: StudyData) -> Figure:
    """Added milliseconds over the baseline by percentile, with intervals from a study's verdict rows."""
    return added_latency_of(frames.contrasts(data))


def added_latency_of(contrasts: Contrasts) -> Figure:
    """The same of any verdict rows."""
    rows = [
        row
        for name in PERCENTILES
        for row in contrasts.rows
        if row.response == f"latency_{name}_s" and row.difference is not None
    ]
    if not rows:
        return empty("No latency contrast has been computed yet.")
    missing = [found.label for name, found in PERCENTILES.items() if not any(_percentile(row) == name for row in rows)]
    caption = (
        f"Milliseconds added over {_bases(rows)} at each percentile of a typical run, with the "
        "interval of the contrast. Filled: a primary response, corrected for the family. Open: exploratory. "
        "The line at 0 is the baseline."
    )
    if missing:
        caption += (
            f" Not shown: {wording.listing(missing)}, because fewer than {contrasts.sample_floor:g} requests of a run "
            "lie beyond or because it was not asked for."
        )
    return Figure(lambda sheet: _draw(contrasts, rows, sheet), _alt(rows), caption, _table(rows))


def _bases(rows: list[VerdictRow]) -> str:
    return wording.listing(list(dict.fromkeys(row.baseline for row in rows)))


def _percentile(row: VerdictRow) -> str:
    return row.response.removeprefix("latency_").removesuffix("_s")


def _ms(value: float | None) -> float:
    return math.nan if value is None else 1e3 * value


def _draw(contrasts: Contrasts, rows: list[VerdictRow], sheet: Sheet) -> Canvas:
    groups: dict[tuple[str, str], list[VerdictRow]] = {}
    for load in contrasts.loads:
        for row in (row for row in rows if row.load == load):
            groups.setdefault((load, row.baseline), []).append(row)
    every = contrasts.order([row.treatment for row in rows])
    figure, axes = sheet.panels([2.9 + sheet.key_in(every)] + [2.3] * (len(groups) - 1))
    for axis, ((load, base), mine) in zip(axes, groups.items(), strict=True):
        names = contrasts.order([row.treatment for row in mine])
        shown = [name for name in PERCENTILES if any(_percentile(row) == name for row in mine)]
        for index, treatment in enumerate(names):
            shift = (index - (len(names) - 1) / 2) * min(0.2, 0.7 / len(names))
            for row in (row for row in mine if row.treatment == treatment):
                _point(axis, shown.index(_percentile(row)) + shift, row, palette.look_of(contrasts.looks, treatment))
        axis.axhline(0, color=INK, linewidth=0.9)
        axis.set_xticks(range(len(shown)), [PERCENTILES[name].label for name in shown])
        axis.set_xlim(-0.5, len(shown) - 0.5)
        axis.grid(axis="x", visible=False)
        axis.set_ylabel("added / ms")
        over = f"over {base}" if len(contrasts.baselines) > 1 else ""
        axis.set_title(panel_title(contrasts.load_title(load), over))
    sheet.key(axes[0], [palette.look_of(contrasts.looks, treatment) for treatment in every], lines=False)
    axes[-1].set_xlabel("percentile of a typical run")
    return figure


def _point(axis: Axes, x: float, row: VerdictRow, look: palette.Look) -> None:
    middle, low, high = _ms(row.difference), _ms(row.difference_low), _ms(row.difference_high)
    axis.plot([x, x], [low, high], color=look.colour, linewidth=1.8, solid_capstyle="butt")
    (dot,) = axis.plot(
        [x],
        [middle],
        marker=look.marker,
        markersize=6.5,
        color=look.colour,
        markerfacecolor=palette.PAPER if row.exploratory else look.colour,
        markeredgewidth=1.4,
        linestyle="none",
    )
    svg.tip(dot, _said(row))


def _said(row: VerdictRow) -> str:
    added = wording.in_unit(row.response, row.difference, sign=True)
    interval = wording.interval_in_unit(row.response, row.difference_low, row.difference_high)
    return f"{row.treatment}, {PERCENTILES[_percentile(row)].label}: {added} ({interval})"


def _alt(rows: list[VerdictRow]) -> str:
    several = len({row.load for row in rows}) > 1
    parts = []
    for row in rows:
        where = f" at {row.load}" if several else ""
        over = f" over {row.baseline}" if len({one.baseline for one in rows}) > 1 else ""
        parts.append(f"{_said(row)}{over}{where}")
    return f"Latency added over {_bases(rows)} by percentile: " + "; ".join(parts) + "."


def _table(rows: list[VerdictRow]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "percentile of a typical run": [PERCENTILES[_percentile(row)].label for row in rows],
            "load": [row.load for row in rows],
            "treatment": [row.treatment for row in rows],
            "over": [row.baseline for row in rows],
            "added / ms": [_ms(row.difference) for row in rows],
            "low / ms": [_ms(row.difference_low) for row in rows],
            "high / ms": [_ms(row.difference_high) for row in rows],
            "kind": ["exploratory" if row.exploratory else "primary" for row in rows],
            "verdict": [wording.verdict_text(row) for row in rows],
        }
    )
