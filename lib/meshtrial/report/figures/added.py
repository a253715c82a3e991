"""What a treatment adds in milliseconds, percentile by percentile: a ratio alone does not say whether it matters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure as Canvas

from meshtrial.design.responses import PERCENTILES
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.figure import Figure, alt_text
from meshtrial.report.figures.common import empty, estimate
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import INK
from meshtrial.report.sheet import Sheet


def added_latency(data: StudyData) -> Figure:
    """Added milliseconds over the baseline by percentile, with intervals from a study's verdict rows."""
    found = frames.contrasts(data, family="").where(
        lambda row: _percentile(row) in PERCENTILES and row.difference is not None
    )
    rows = sorted(found.rows, key=lambda row: list(PERCENTILES).index(_percentile(row)))
    if not rows:
        return empty("No latency contrast has been computed yet.")
    bases = wording.listing(list(dict.fromkeys(row.baseline for row in rows)))
    caption = (
        f"Milliseconds added over {bases} at each percentile of a typical run, with the "
        "interval of the contrast. Filled: a primary response, corrected for the family. Open: exploratory. "
        "The line at 0 is the baseline."
    )
    missing = [about.label for name, about in PERCENTILES.items() if name not in map(_percentile, rows)]
    if missing:
        caption += (
            f" Not shown: {wording.listing(missing)}, because fewer than {found.sample_floor:g} requests of a run "
            "lie beyond or because it was not asked for."
        )
    parts = [
        f"{_effect(row)}{f' over {row.baseline}' if len(found.baselines) > 1 else ''}"
        f"{f' at {row.load}' if len({one.load for one in rows}) > 1 else ''}"
        for row in rows
    ]
    alt = alt_text(f"Latency added over {bases} by percentile", parts)
    return Figure(lambda sheet: _draw(found, sheet), alt, caption, _table(rows))


def _percentile(row: VerdictRow) -> str:
    return row.response.removeprefix("latency_").removesuffix("_s")


def _ms(row: VerdictRow) -> tuple[float, float, float]:
    """The estimate and the ends of its interval."""
    values = (row.difference, row.difference_low, row.difference_high)
    middle, low, high = (math.nan if value is None else 1e3 * value for value in values)
    return middle, low, high


def _draw(contrasts: Contrasts, sheet: Sheet) -> Canvas:
    panels = contrasts.panels("load", "baseline")
    figure, axes = sheet.panels([2.9 + sheet.key_in(contrasts.treatments)] + [2.3] * (len(panels) - 1))
    for axis, panel in zip(axes, panels, strict=True):
        names = panel.treatments
        shown = [name for name in PERCENTILES if name in map(_percentile, panel.rows)]
        for row in panel.rows:
            shift = (names.index(row.treatment) - (len(names) - 1) / 2) * min(0.2, 0.7 / len(names))
            middle, *ends = _ms(row)
            place, look = shown.index(_percentile(row)) + shift, panel.looks[row.treatment]
            estimate(axis, place, ends, middle, look, upright=True, filled=not row.exploratory, said=_effect(row))
        axis.axhline(0, color=INK, linewidth=0.9)
        axis.set_xticks(range(len(shown)), [PERCENTILES[name].label for name in shown])
        axis.set_xlim(-0.5, len(shown) - 0.5)
        axis.grid(axis="x", visible=False)
        axis.set_ylabel("added / ms")
        axis.set_title(contrasts.title(panel.rows[0], to="over"))
    sheet.key(axes[0], [contrasts.looks[name] for name in contrasts.treatments], lines=False)
    axes[-1].set_xlabel("percentile of a typical run")
    return figure


def _effect(row: VerdictRow) -> str:
    label = PERCENTILES[_percentile(row)].label
    return f"{row.treatment}, {label}: {wording.added(row)} ({wording.added_interval(row)})"


def _table(rows: Sequence[VerdictRow]) -> pl.DataFrame:
    middle, low, high = zip(*map(_ms, rows), strict=True)
    return pl.DataFrame(
        {
            "percentile of a typical run": [PERCENTILES[_percentile(row)].label for row in rows],
            "load": [row.load for row in rows],
            "treatment": [row.treatment for row in rows],
            "over": [row.baseline for row in rows],
            "added / ms": middle,
            "low / ms": low,
            "high / ms": high,
            "kind": ["exploratory" if row.exploratory else "primary" for row in rows],
            "verdict": [wording.verdict_text(row) for row in rows],
        }
    )
