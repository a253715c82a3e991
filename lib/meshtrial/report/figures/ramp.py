"""A rate that rises: what was achieved of what was asked, and the latency from the schedule, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure as Canvas

from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty, log_value_axis
from meshtrial.report.palette import INK
from meshtrial.report.sheet import Sheet

_COLUMNS = ("asked_rps", "achieved_rps", "p50_s", "p99_s")
_LATENCIES = (("p50_s", "p50 of the step from the schedule / ms"), ("p99_s", "p99 of the step from the schedule / ms"))


def ramp(data: StudyData, load: str = "") -> Figure:
    """Every included run of a rising rate, a dot a step, and the median over the runs.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        Label of a load; the last that rises without it.
    """
    rising = [one.label for one in data.plan.study.loads if one.ramp]
    load = load or next(iter(reversed(rising)), "")
    rows = _rows(data, load)
    if rows.is_empty():
        return empty("No run that takes part in the inference had a rising rate.")
    treatments = frames.order(data, rows["treatment"].unique().to_list())
    medians = (
        rows.group_by("treatment", "asked_rps")
        .agg(pl.col("achieved_rps", "p50_s", "p99_s").median())
        .sort("treatment", "asked_rps")
    )
    caption = (
        "Above: what was achieved of the rate that was asked for in each step; on the line it was kept. Below: "
        "latencies of each step's requests from the schedule, where at least ten lie beyond the quantile. A dot is a "
        "step of a run, the line their median; it describes and decides nothing."
    )
    return Figure(
        lambda sheet: _draw(data, rows, medians, treatments, sheet), _alt(medians, treatments), caption, medians
    )


def _rows(data: StudyData, load: str) -> pl.DataFrame:
    found = [
        {"treatment": run.treatment, **{name: step[name] for name in _COLUMNS}}
        for run in data.included_runs()
        if run.load == load
        for step in run.extra.get("ramp", ())
    ]
    return pl.DataFrame(found, schema={"treatment": pl.String, **dict.fromkeys(_COLUMNS, pl.Float64)})


def _draw(
    data: StudyData, rows: pl.DataFrame, medians: pl.DataFrame, treatments: Sequence[str], sheet: Sheet
) -> Canvas:
    shown = [(name, title) for name, title in _LATENCIES if rows[name].drop_nulls().len()]
    figure, (first, *others) = sheet.panels([2.6, *[1.9] * len(shown)], sharex=True)
    looks = palette.looks(data.plan.study)
    found = [palette.look_of(looks, treatment) for treatment in treatments]
    most = float(rows["asked_rps"].max())  # type: ignore[arg-type]
    first.plot([0, most], [0, most], color=INK, linewidth=0.8, zorder=0)
    panels = [(first, "achieved_rps", "requests a second achieved", 1.0)]
    panels += [(axes, name, title, 1e3) for axes, (name, title) in zip(others, shown, strict=True)]
    for axes, name, title, scale in panels:
        for look in found:
            mine = rows.filter(pl.col("treatment") == look.name)
            line = medians.filter(pl.col("treatment") == look.name)
            axes.plot(
                mine["asked_rps"],
                mine[name] * scale,
                linestyle="none",
                marker=look.marker,
                markersize=3.5,
                alpha=0.45,
                color=look.colour,
                markerfacecolor=look.face,
            )
            axes.plot(line["asked_rps"], line[name] * scale, color=look.colour, linestyle=look.dash, linewidth=1.4)
        axes.set_title(title, loc="left")
    for axes, (name, _) in zip(others, shown, strict=True):
        values = rows[name].drop_nulls() * 1e3
        low, high = float(values.min()) / 1.2, float(values.max()) * 1.2  # type: ignore[arg-type]
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        log_value_axis(axes.yaxis, low, high)
    first.set_ylim(bottom=0)
    first.set_xlim(0, 1.04 * most)
    sheet.key(first, found)
    (others[-1] if others else first).set_xlabel("requests a second asked")
    return figure


def _alt(medians: pl.DataFrame, treatments: Sequence[str]) -> str:
    said = []
    for treatment in treatments:
        last = medians.filter(pl.col("treatment") == treatment).row(-1, named=True)
        asked, achieved = (wording.number(last[name]) for name in ("asked_rps", "achieved_rps"))
        said.append(f"{treatment} achieved {achieved} of {asked} in the last step")
    return "Achieved against asked rate, step by step. Medians: " + "; ".join(said) + "."
