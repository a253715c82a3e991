"""Every run as a strip over its seconds, coloured by latency: where within a run, and in which runs, it was slow.

What a median over runs hides stands out here: one run that stalled, one second in which all did, a start that was not
warm. A second is held against the middle second of its own treatment: what treatments differ in is shown elsewhere, and
would drown what happens within them. The colour is one hue of growing strength, so that it reads the same on a light
page, a dark one and in print.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, palette, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty
from meshtrial.report.figures.course import whole_seconds
from meshtrial.report.sheet import Sheet

HEAT = "#cf5a17"  # at least 3:1 against both pages at full strength
FAINTEST, LEVELS = 0.06, 4
# A quantile of the tail where seconds have enough requests for one, else the median.
_MEASURES = (("p99_s", "p99"), ("p50_s", "p50"))
_RUN_IN, _TALLEST_IN = 0.07, 7.0  # height of a run, and of all


def strip(data: StudyData, load: str = "") -> Figure:
    """Latency of every second of every included run, a strip a run.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        Label of a load; without it the last of the study that searches nothing.
    """
    load = load or frames.last_asked(data)
    runs = [run for run in data.included_runs() if run.load == load]
    found = ((label, _rows(data, runs, measure)) for measure, label in _MEASURES)
    label, rows = next(((label, rows) for label, rows in found if not rows.is_empty()), ("", pl.DataFrame()))
    if rows.is_empty():
        return empty("The runs' course over time was not recorded, and their requests are not here to make it from.")
    if rows["second"].max() == 0:
        return empty("No run kept its course over more than a second.")
    low, high = (float(rows["times"].quantile(q, "nearest") or 0.0) for q in (0.01, 0.99))
    high = max(high, low * 1.05)
    caption = (
        f"The {label} of each second of every included run{_at(data, load)}, a strip a run, the first block on top, "
        "against the middle second of its treatment. The stronger the colour, the slower: "
        f"{wording.number(low, 2)} to {wording.number(high, 2)} times the middle, on a logarithmic scale; one second "
        "in a hundred lies beyond either end. A row that stands out is a run of its own kind, a column a time at which "
        "all runs were slow."
    )
    return Figure(
        lambda sheet: _draw(data, rows, (low, high), label, sheet),
        _alt(data, rows, label),
        caption,
        _table(rows, label),
    )


def _at(data: StudyData, load: str) -> str:
    return f" at {load}" if len(data.plan.study.loads) > 1 else ""


def _rows(data: StudyData, runs: list[RunRecord], measure: str) -> pl.DataFrame:
    """A row a run and second; slices of a run follow one another."""
    found = []
    for run in runs:
        every = data.series(run)
        if every.is_empty():
            continue
        own = every.filter(pl.col("measure") == measure, pl.col("component") == "", pl.col("value") > 0)
        seconds = own.filter(pl.col("second") < whole_seconds(every)).sort("slice", "second").with_row_index("at")
        found.append(
            seconds.select(
                pl.lit(run.run_id).alias("run"),
                pl.lit(run.treatment).alias("treatment"),
                pl.lit(run.repetition).alias("block"),
                pl.col("at").cast(pl.Int64).alias("second"),
                (1e3 * pl.col("value")).alias("ms"),
            )
        )
    if not found:
        return pl.DataFrame()
    middle = pl.col("ms").median().over("treatment")
    return pl.concat(found, how="vertical_relaxed").with_columns((pl.col("ms") / middle).alias("times"))


def _draw(data: StudyData, rows: pl.DataFrame, ends: tuple[float, float], label: str, sheet: Sheet) -> Canvas:
    names = frames.order(data, rows["treatment"].to_list())
    counts = [rows.filter(pl.col("treatment") == name)["run"].n_unique() for name in names]
    shrink = min(1.0, _TALLEST_IN / (_RUN_IN * sum(counts)))
    figure, axes = sheet.panels([0.34 + max(0.3, shrink * _RUN_IN * count) for count in counts], sharex=True)
    looks = palette.looks(data.plan.study)
    longest = int(rows["second"].max()) + 1  # type: ignore[arg-type]
    for axis, name in zip(axes, names, strict=True):
        look = palette.look_of(looks, name)
        _strips(axis, rows.filter(pl.col("treatment") == name), longest, ends)
        axis.set_title(name, color=look.colour)
    levels = np.linspace(0, 1, LEVELS)
    handles = [
        Patch(
            facecolor=(*to_rgb(HEAT), _strength(level)),
            label=f"{wording.number(_value(level, ends), 2)}{wording.TIMES}",
        )
        for level in levels
    ]
    sheet.legend(axes[0], handles, loc="lower right", bbox_to_anchor=(1, 1.0), handlelength=1.2, title=label)
    axes[-1].set_xlabel("measured seconds of the run")
    axes[-1].xaxis.set_major_locator(MaxNLocator(sheet.ticks, integer=True))
    return figure


def _strength(level: float) -> float:
    return FAINTEST + (1 - FAINTEST) * level


def _value(level: float, ends: tuple[float, float]) -> float:
    return math.exp(math.log(ends[0]) + level * (math.log(ends[1]) - math.log(ends[0])))


def _strips(axis: Axes, mine: pl.DataFrame, longest: int, ends: tuple[float, float]) -> None:
    order = mine.select("run", "block").unique().sort("block", "run")["run"].to_list()
    image: NDArray[np.float64] = np.zeros((len(order), longest, 4))
    image[..., :3] = to_rgb(HEAT)
    low, high = (math.log(end) for end in ends)
    place = {run: index for index, run in enumerate(order)}
    for run, second, times in mine.select("run", "second", "times").iter_rows():
        level = min(1.0, max(0.0, (math.log(times) - low) / (high - low)))
        image[place[run], second, 3] = _strength(level)
    axis.imshow(image, aspect="auto", interpolation="none", extent=(0, longest, len(order), 0))
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.spines["left"].set_visible(False)


def _alt(data: StudyData, rows: pl.DataFrame, label: str) -> str:
    parts = []
    for name in frames.order(data, rows["treatment"].to_list()):
        mine = rows.filter(pl.col("treatment") == name)
        worst = mine.sort("ms", descending=True).row(0, named=True)
        parts.append(
            f"{name}: {mine['run'].n_unique()} runs, median second {wording.number(float(mine['ms'].median()))} ms, "  # type: ignore[arg-type]
            f"slowest {wording.number(worst['ms'])} ms in second {worst['second']} of run {worst['run']}"
        )
    return f"The {label} of every second of every run as strips of colour. " + "; ".join(parts) + "."


def _table(rows: pl.DataFrame, label: str) -> pl.DataFrame:
    """A row a run: its own seconds' range, and which was the slowest."""
    return (
        rows.sort("ms", descending=True)
        .group_by("run", "treatment", "block", maintain_order=True)
        .agg(
            pl.len().alias("seconds"),
            pl.col("ms").median().alias(f"median second's {label} / ms"),
            pl.col("ms").max().alias(f"slowest second's {label} / ms"),
            pl.col("second").first().alias("slowest second"),
        )
        .sort("block", "treatment")
    )
