"""What a treatment adds in milliseconds, percentile by percentile: a ratio alone does not say whether it matters."""

from __future__ import annotations

import math

from matplotlib.figure import Figure as Canvas

from meshtrial.design.responses import PERCENTILES
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, sheet, wording
from meshtrial.report.figure import Columns, Figure
from meshtrial.report.figures.common import empty, estimate
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import INK


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
    loads = {row.load for row in rows}

    def says(row: VerdictRow) -> str:
        over = f" over {row.baseline}" if len(found.baselines) > 1 else ""
        return _effect(row) + over + (f" at {row.load}" if len(loads) > 1 else "")

    seen = f"Latency added over {bases} by percentile"
    return Figure.of(lambda: _draw(found), rows, _COLUMNS, seen, says, caption)


def _percentile(row: VerdictRow) -> str:
    return row.response.removeprefix("latency_").removesuffix("_s")


def _ms(row: VerdictRow) -> list[float]:
    """The estimate and the ends of its interval."""
    return [math.nan if value is None else value for value in frames.differences(row, 1e3)]


def _draw(contrasts: Contrasts) -> Canvas:
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


_COLUMNS: Columns[VerdictRow] = {
    "percentile of a typical run": lambda row: PERCENTILES[_percentile(row)].label,
    "load": lambda row: row.load,
    "treatment": lambda row: row.treatment,
    "over": lambda row: row.baseline,
    "added / ms": lambda row: _ms(row)[0],
    "low / ms": lambda row: _ms(row)[1],
    "high / ms": lambda row: _ms(row)[2],
    "kind": lambda row: "exploratory" if row.exploratory else "primary",
    "verdict": wording.verdict_text,
}
