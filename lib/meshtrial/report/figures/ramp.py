"""A rate that rises: what was achieved of what was asked, and the latency from the schedule, step by step."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure as Canvas

from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, wording
from meshtrial.report.figure import Figure, alt_text
from meshtrial.report.figures.common import empty, log_axis
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
    rates = rows.group_by("treatment", "asked_rps").agg(pl.col("achieved_rps", "p50_s", "p99_s").median())
    medians = rates.sort("treatment", "asked_rps")
    caption = (
        "Above: what was achieved of the rate that was asked for in each step; on the line it was kept. Below: "
        "latencies of each step's requests from the schedule, where at least ten lie beyond the quantile. A dot is a "
        "step of a run, the line their median; it describes and decides nothing."
    )
    return Figure(lambda sheet: _draw(data, rows, medians, sheet), _alt(data, medians), caption, medians)


def _rows(data: StudyData, load: str) -> pl.DataFrame:
    found = [
        {"treatment": run.treatment, **{name: step[name] for name in _COLUMNS}}
        for run in data.included_runs()
        if run.load == load
        for step in run.extra.get("ramp", ())
    ]
    return pl.DataFrame(found, schema={"treatment": pl.String, **dict.fromkeys(_COLUMNS, pl.Float64)})


def _draw(data: StudyData, rows: pl.DataFrame, medians: pl.DataFrame, sheet: Sheet) -> Canvas:
    shown = [(name, title) for name, title in _LATENCIES if rows[name].drop_nulls().len()]
    figure, axes = sheet.panels([2.6, *[1.9] * len(shown)], sharex=True)
    most = max(rows["asked_rps"])
    axes[0].plot([0, most], [0, most], color=INK, linewidth=0.8, zorder=0)
    panels = [("achieved_rps", "requests a second achieved", 1.0), *((name, title, 1e3) for name, title in shown)]
    for axis, (name, title, scale) in zip(axes, panels, strict=True):
        for look, mine in frames.by_treatment(data, rows):
            line = medians.filter(treatment=look.name)
            axis.plot(mine["asked_rps"], mine[name] * scale, **look.marks(3.5), alpha=0.45)
            axis.plot(line["asked_rps"], line[name] * scale, **look.line())
        axis.set_title(title, loc="left")
        if scale != 1:
            values = rows[name].drop_nulls() * scale
            log_axis(axis, "y", min(values) / 1.2, max(values) * 1.2)
    axes[0].set_ylim(bottom=0)
    axes[0].set_xlim(0, 1.04 * most)
    sheet.key(axes[0], [look for look, _ in frames.by_treatment(data, rows)])
    axes[-1].set_xlabel("requests a second asked")
    return figure


def _alt(data: StudyData, medians: pl.DataFrame) -> str:
    said = []
    for look, mine in frames.by_treatment(data, medians):
        last = mine.row(-1, named=True)
        asked, achieved = (wording.number(last[name]) for name in ("asked_rps", "achieved_rps"))
        said.append(f"{look.name} achieved {achieved} of {asked} in the last step")
    return alt_text("Achieved against asked rate, step by step, medians over the runs", said)
