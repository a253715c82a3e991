"""Runs over their time: what a second's requests saw, and what the components used in it."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from meshtrial.design.study import Load
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty
from meshtrial.report.sheet import Sheet

# What is drawn, in this order, where a study has it: measure, title of its panel, factor to the unit of its axis.
_PANELS = (
    ("p50_s", "p50 latency of the second / ms", 1e3),
    ("p99_s", "p99 latency of the second / ms", 1e3),
    ("sent", "requests sent in the second", 1.0),
    ("failed", "requests failed in the second", 1.0),
    ("cpu_cores", "CPU of the data plane / cores", 1.0),
)
_LONGEST = 2000  # points of a panel and treatment; above that neighbouring seconds are thinned out


def course(data: StudyData, load: str = "") -> Figure:
    """Every included run second by second, and the median over the runs.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        Label of a load; without it the last of the study that searches nothing, which has the highest rate.
    """
    load = load or frames.last_asked(data)
    rows = _rows(data, load)
    if rows.is_empty():
        return empty("The runs' course over time was not recorded, and their requests are not here to make it from.")
    if rows["second"].max() == 0:
        return empty("No run kept its course over more than a second.")
    panels = [panel for panel in _PANELS if _worth(rows, panel[0])]
    treatments = frames.order(data, rows["treatment"].unique().to_list())
    drawn = [
        rows.filter(pl.col("measure") == measure)
        .with_columns(pl.lit(title).alias("what"), pl.col("value") * scale)
        .group_by("what", "treatment", "second")
        .agg(
            pl.col("value").median().alias("median"),
            pl.col("value").min().alias("least"),
            pl.col("value").max().alias("most"),
        )
        .sort("treatment", "second")
        for measure, title, scale in panels
    ]
    table = pl.concat(drawn)
    caption = (
        "Thin: every included run, second by second. Thick: the median of the runs in that second; it describes the "
        "course and decides nothing. A quantile of a second is that of its own requests, drawn where at least five lie "
        "beyond it. What rises or falls over the runs alike was not warm, or was heated up."
    )
    asked = data.plan.study.load(load)
    if asked.around_s:
        caption += " Shaded: what counts as around the restart."
    return Figure(
        lambda sheet: _draw(data, rows, panels, treatments, asked, sheet), _alt(table, panels), caption, table
    )


def _rows(data: StudyData, load: str) -> pl.DataFrame:
    """Course of every included run; of components those of the data plane together."""
    found = []
    for run in data.included_runs():
        if run.load != load:
            continue
        own = data.series(run)
        if own.is_empty():
            continue
        whole = own.filter(pl.col("second") < whole_seconds(own))
        proxies = [u.component for u in run.usage if u.role == "data plane"]
        requests = whole.filter(pl.col("component") == "", ~pl.col("measure").str.starts_with("failed "))
        cpu = whole.filter(pl.col("measure") == "cpu_cores", pl.col("component").is_in(proxies))
        keys = ["slice", "second", "measure"]
        parts = [requests.select(*keys, "value"), cpu.group_by(keys).agg(pl.col("value").sum()).select(*keys, "value")]
        found.append(
            pl.concat(parts).with_columns(
                pl.lit(run.treatment).alias("treatment"), pl.format("{}/{}", pl.lit(run.run_id), "slice").alias("run")
            )
        )
    schema = {"slice": pl.Int32, "second": pl.Int32, "measure": pl.String, "value": pl.Float64}
    return pl.concat(found) if found else pl.DataFrame(schema=schema | {"treatment": pl.String, "run": pl.String})


def whole_seconds(own: pl.DataFrame) -> int:
    """Seconds that were sent in to their end: the last one seldom is."""
    sent = own.filter(pl.col("measure") == "sent").sort("second")
    if sent.height < 2:
        return sent.height
    last, usual = float(sent["value"][-1]), float(sent["value"].median() or 0)  # type: ignore[arg-type]
    return int(sent["second"].max()) + (last > 0.8 * usual)  # type: ignore[arg-type]


def _worth(rows: pl.DataFrame, measure: str) -> bool:
    values = rows.filter(pl.col("measure") == measure)["value"]
    if values.is_empty():
        return False
    low, high = float(values.min()), float(values.max())  # type: ignore[arg-type]
    # Rates that were kept all along say nothing in a picture.
    return {"failed": high > 0, "sent": low < 0.9 * high}.get(measure, True)


def _draw(
    data: StudyData,
    rows: pl.DataFrame,
    panels: Sequence[tuple[str, str, float]],
    treatments: Sequence[str],
    load: Load,
    sheet: Sheet,
) -> Canvas:
    figure, axes = sheet.panels([1.7 + sheet.key_in(treatments), *[1.7] * (len(panels) - 1)], sharex=True)
    looks = palette.looks(data.plan.study)
    found = [palette.look_of(looks, treatment) for treatment in treatments]
    for place, (one, (measure, title, scale)) in enumerate(zip(axes, panels, strict=True)):
        for look in found:
            mine = rows.filter(pl.col("measure") == measure, pl.col("treatment") == look.name)
            step = max(1, mine.height // _LONGEST)
            for (_,), run in mine.gather_every(step).sort("second").group_by("run", maintain_order=True):
                one.plot(run["second"], run["value"] * scale, color=look.colour, linewidth=0.5, alpha=0.25)
            middle = mine.group_by("second").agg(pl.col("value").median()).sort("second")
            one.plot(
                middle["second"],
                middle["value"] * scale,
                color=look.colour,
                linestyle=look.dash,
                linewidth=1.5,
                marker=look.marker if middle.height <= 30 else None,
                markersize=3.5,
                markerfacecolor=look.face,
            )
        one.set_ylim(bottom=0)
        one.set_title(title, loc="left")
        if load.around_s:
            end_s = load.restart_at_s + load.around_s
            one.axvspan(load.restart_at_s, end_s, color=palette.GREY, alpha=0.12, linewidth=0)
        if place == 0:
            sheet.key(one, found)
    axes[-1].set_xlabel("seconds since the run's start")
    axes[-1].xaxis.set_major_locator(MaxNLocator(sheet.ticks, integer=True))
    return figure


def _alt(table: pl.DataFrame, panels: Sequence[tuple[str, str, float]]) -> str:
    said = []
    for _, title, _ in panels:
        for (treatment,), mine in table.filter(pl.col("what") == title).group_by("treatment", maintain_order=True):
            values = mine["median"]
            low, high = (wording.number(float(v)) for v in (values.min(), values.max()))  # type: ignore[arg-type]
            said.append(f"{title}, {treatment}: medians from {low} to {high}")
    return "Course of the runs over their seconds. " + "; ".join(said)
