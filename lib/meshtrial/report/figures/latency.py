"""Latency of every request: its distribution, and the milliseconds that treatments add at each percentile.

The distribution has a CDF for the body and a CCDF on two logarithmic axes for the tail. Curves are step functions of
the exact requests of all included runs pooled, so they show shape. Inference is over runs: pooled values are named
as such and shown beside the typical run's. The band around a tail is over runs too: at each time, it is the sign test's
interval for the median run's share of slower requests.
"""

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from meshtrial.design.load import CapacitySearch
from meshtrial.design.responses import MARKED, PERCENTILES
from meshtrial.errors import RecordError
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Columns, Figure, alt_text, empty
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import INK
from meshtrial.stats.intervals import median_ranks

STEPS = 260
BAND_POINTS = 90
BAND_ALPHA = 0.05


@dataclass(frozen=True)
class Pool:
    """All requests of one treatment at one load, sorted, in milliseconds; `runs` holds each run's."""

    load: str
    treatment: str
    runs: tuple[NDArray[np.float64], ...]
    values: NDArray[np.float64]

    def quantile(self, q: float, floor: float) -> float | None:
        """Return the exact quantile of the pool, or None if fewer than `floor` requests lie beyond it."""
        if len(self.values) * (1 - q) < floor:
            return None
        return float(np.quantile(self.values, q))

    def band(self, times: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return the interval of the median run's CCDF at each time, or None with too few runs for the confidence."""
        enclosing = median_ranks(len(self.runs), BAND_ALPHA)
        if enclosing.confidence < 1 - BAND_ALPHA:
            return None
        shares = np.sort([1 - np.searchsorted(run, times, side="right") / len(run) for run in self.runs], axis=0)
        return shares[enclosing.rank - 1], shares[-enclosing.rank]

    def steps(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return some of the values, dense in both tails, and how many requests end at each; each step is exact."""
        n = len(self.values)
        upper = n - np.unique(np.geomspace(1, n, STEPS).astype(int))
        even = np.linspace(0, n - 1, STEPS).astype(int)
        ranks = np.unique(np.concatenate([upper, even]))
        return self.values[ranks], np.diff(ranks, prepend=-1)


def latency_ccdf(data: StudyData, *, corrected: bool = False) -> Figure:
    """Draw CDF and CCDF of the latency of every request, by treatment.

    Parameters
    ----------
    data : StudyData
    corrected : bool
        Measure from the scheduled send (corrected for coordinated omission) instead of the actual send.
    """
    pools, unreadable = _pools(data, "corrected_latency_s" if corrected else "latency_s")
    if not pools:
        why = f" {unreadable[0]}" if unreadable else ""
        return empty(f"No run used in the inference has its requests recorded.{why}")
    since = "scheduled" if corrected else "actual"
    total = sum(len(pool.values) for pool in pools)
    caption = (
        f"Latency of {wording.count(total)} requests from their {since} send, pooled over the included runs of each "
        "treatment. Above: share of requests answered within a time. Below: share that took longer, on a logarithmic "
        "axis that shows the tail. Curves show shape; verdicts compare runs. The last few requests of a curve are "
        "chance."
    )
    if any(median_ranks(len(pool.runs), BAND_ALPHA).confidence >= 1 - BAND_ALPHA for pool in pools):
        level = wording.declared_percent(1 - BAND_ALPHA)
        caption += (
            f" Bands: the median run's curve, at each time with at least {level} confidence over runs (sign test)."
        )
    if unreadable:
        caption += f" Excluded because they cannot be read: {'; '.join(unreadable)}."
    floor, infix = data.plan.study.gates.sample_floor, "corrected_" if corrected else ""
    columns: dict[str, list[object]] = {
        "treatment": [pool.treatment for pool in pools],
        "load": [pool.load for pool in pools],
        "runs": [len(pool.runs) for pool in pools],
        "requests": [len(pool.values) for pool in pools],
    }
    pooled = {marked.label: [pool.quantile(marked.q, floor) for pool in pools] for marked in MARKED}
    for marked in MARKED:
        columns[f"pooled {marked.label} / ms"] = [*pooled[marked.label]]
        typical = frames.runs_of(data, f"latency_{infix}{marked.key}_s").group_by("load", "treatment")
        middles = {(load, name): 1e3 * value for load, name, value in typical.agg(pl.col("value").median()).iter_rows()}
        columns[f"typical run's {marked.label} / ms"] = [middles.get((pool.load, pool.treatment)) for pool in pools]
    columns["largest / ms (depends on the number of requests)"] = [float(pool.values[-1]) for pool in pools]
    table = pl.DataFrame(columns)
    table = table.select([name for name in table.columns if table[name].null_count() < table.height])
    several, parts = len({pool.load for pool in pools}) > 1, []
    for place, pool in enumerate(pools):
        known = {label: values[place] for label, values in pooled.items()}
        texts = [f"{label} {wording.number(value)} ms" for label, value in known.items() if value is not None]
        at = f" at {pool.load}" if several else ""
        parts.append(f"{pool.treatment}{at}: {', '.join(texts) or 'too few requests for any percentile'}")
    alt = alt_text("Distribution of request latency, body and tail; pooled percentiles", parts)
    return Figure(lambda: _draw(data, pools, since), alt, caption, table)


def _pools(data: StudyData, column: str) -> tuple[list[Pool], list[str]]:
    values_of: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    unreadable = []
    # Each search ends at its own treatment's rate, so their distributions cannot be compared.
    searches = {load.label for load in data.plan.study.loads if isinstance(load, CapacitySearch)}
    for run in (run for run in data.included_runs() if run.load not in searches):
        try:
            requests = data.latency(run)
        except RecordError as error:
            unreadable.append(f"{run.run_id} ({error})")
            continue
        if column not in requests.columns:
            continue
        # Requests that the generator skipped have estimated latencies, for the corrected view only.
        if column == "latency_s" and "imputed" in requests.columns:
            requests = requests.filter(~pl.col("imputed"))
        if "ok" in requests.columns:
            requests = requests.filter(pl.col("ok"))
        values = requests[column].drop_nulls().to_numpy()
        if len(values):
            values_of.setdefault((run.load, run.treatment), []).append(values)
    pools = []
    for load in frames.loads(data):
        for treatment in frames.order(data, [name for at, name in values_of if at == load]):
            runs = values_of[load, treatment]
            every = np.sort(np.concatenate(runs)) * 1e3
            pools.append(Pool(load, treatment, tuple(np.sort(run) * 1e3 for run in runs), every))
    return pools, unreadable


def _draw(data: StudyData, pools: list[Pool], since: str) -> Canvas:
    looks, floor = palette.looks(data.plan.study), data.plan.study.gates.sample_floor
    present = list(dict.fromkeys(pool.load for pool in pools))
    names = frames.order(data, [pool.treatment for pool in pools])
    body_in, tail_in = 1.9, 2.7
    figure, axes = sheet.panels([body_in + sheet.key_in(names), *[tail_in, body_in] * (len(present) - 1), tail_in])
    for load, body, tail in zip(present, axes[::2], axes[1::2], strict=True):
        at_load = [pool for pool in pools if pool.load == load]
        # The fastest thousandth is left out, because it would only widen the axis.
        low = min(float(pool.values[len(pool.values) // 1000]) for pool in at_load) / 1.05
        high = max(float(pool.values[-1]) for pool in at_load) * 1.1
        for axis in (body, tail):
            sheet.log_axis(axis, "x", max(low, high / 1e6), high, sheet.TICKS)
        _share_axes(body, tail, 0.7 / max(len(pool.values) for pool in at_load))
        for pool in at_load:
            _curves(body, tail, pool, looks[pool.treatment], floor)
        body.set_title(frames.load_title(data, load))
        body.set(xlabel="", ylabel="requests answered / %")
        tail.set_ylabel("slower requests (log scale)")
        tail.set_xlabel(f"latency from the {since} send / ms (log scale)")
    sheet.key(axes[0], [looks[name] for name in names])
    return figure


def _share_axes(body: Axes, tail: Axes, smallest: float) -> None:
    body.set_ylim(0, 101)
    body.yaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
    tail.set_yscale("log")
    tail.set_ylim(smallest, 1.3)
    levels = {1: "100 %", 0.1: "10 %", 0.01: "1 %", 1e-3: "0.1 %", 1e-4: "0.01 %", 1e-5: "0.001 %"}
    ticks = [level for level in levels if level >= smallest]
    tail.yaxis.set_major_locator(FixedLocator(ticks))
    tail.yaxis.set_minor_locator(NullLocator())
    tail.yaxis.set_major_formatter(FuncFormatter(lambda value, _: levels.get(round(value, 9), "")))
    for level in ticks[1:]:
        label = f"p{100 * (1 - level):.10g}"
        tail.text(1.01, level, label, transform=tail.get_yaxis_transform(), va="center", size=sheet.SMALL)


def _curves(body: Axes, tail: Axes, pool: Pool, look: palette.TreatmentStyle, floor: float) -> None:
    # Imported late: it takes longer to load than matplotlib, and not every command draws.
    import seaborn

    values, requests = pool.steps()
    seaborn.ecdfplot(x=values, weights=requests, stat="percent", ax=body, **look.line(1.5))
    seaborn.ecdfplot(x=values, weights=requests, complementary=True, ax=tail, **look.line(1.5))
    grid = np.geomspace(*tail.get_xlim(), BAND_POINTS)
    if (band := pool.band(grid)) is not None:
        bottom = tail.get_ylim()[0]
        low, high = (np.maximum(edge, bottom) for edge in band)
        tail.fill_between(grid, low, high, where=high > bottom, color=look.colour, alpha=0.13, linewidth=0)
    # An open marker covers the line with the page's colour.
    style = look.marks(5.5) | {"markerfacecolor": look.colour if look.filled else palette.PAPER}
    for marked in MARKED:
        if (at := pool.quantile(marked.q, floor)) is not None:
            tail.plot([at], [1 - marked.q], **style)


def added_latency(data: StudyData) -> Figure:
    """Draw the milliseconds that each treatment adds at each percentile, with the intervals of the verdict rows."""
    found = frames.contrasts(data, between=False).where(
        lambda row: _percentile(row) in PERCENTILES and row.difference is not None
    )
    rows = sorted(found.rows, key=lambda row: list(PERCENTILES).index(_percentile(row)))
    if not rows:
        return empty("No latency contrast has been computed yet.")
    bases = wording.listing(found.baselines)
    caption = (
        f"Milliseconds added over {bases} at each percentile of a typical run, with the interval of the contrast. "
        "Filled: a primary response, corrected for the family. Open: exploratory. The line at 0 is the baseline."
    )
    missing = [about.label for name, about in PERCENTILES.items() if name not in map(_percentile, rows)]
    if missing:
        caption += (
            f" Not shown: {wording.listing(missing)}. Either fewer than {found.sample_floor:g} requests of a run lie "
            "beyond, or the study did not ask for it."
        )
    several = len({row.load for row in rows}) > 1

    def describe(row: VerdictRow) -> str:
        over = f" over {row.baseline}" if len(found.baselines) > 1 else ""
        return _added_text(row) + over + (f" at {row.load}" if several else "")

    summary = f"Latency added over {bases} by percentile"
    return Figure.from_rows(lambda: _draw_added(found), rows, _ADDED_COLUMNS, summary, describe, caption)


def _percentile(row: VerdictRow) -> str:
    return row.response.removeprefix("latency_").removesuffix("_s")


def _ms(row: VerdictRow) -> list[float]:
    return [math.nan if value is None else value for value in frames.differences(row, 1e3)]


def _draw_added(contrasts: Contrasts) -> Canvas:
    panels = contrasts.panels("load", "baseline")
    figure, axes = sheet.panels([2.9 + sheet.key_in(contrasts.treatments)] + [2.3] * (len(panels) - 1))
    for axis, panel in zip(axes, panels, strict=True):
        names = panel.treatments
        keys = [key for key in PERCENTILES if key in map(_percentile, panel.rows)]
        for row in panel.rows:
            shift = (names.index(row.treatment) - (len(names) - 1) / 2) * min(0.2, 0.7 / len(names))
            middle, *ends = _ms(row)
            place, look, tip = keys.index(_percentile(row)) + shift, panel.looks[row.treatment], _added_text(row)
            sheet.estimate(axis, place, ends, middle, look, upright=True, filled=not row.exploratory, tip=tip)
        axis.axhline(0, color=INK, linewidth=0.9)
        axis.set_xticks(range(len(keys)), [PERCENTILES[key].label for key in keys])
        axis.set_xlim(-0.5, len(keys) - 0.5)
        axis.grid(axis="x", visible=False)
        axis.set_ylabel("added / ms")
        axis.set_title(contrasts.title(panel.rows[0], to="over"))
    sheet.key(axes[0], [contrasts.looks[name] for name in contrasts.treatments], lines=False)
    axes[-1].set_xlabel("percentile of a typical run")
    return figure


def _added_text(row: VerdictRow) -> str:
    label = PERCENTILES[_percentile(row)].label
    return f"{row.treatment}, {label}: {wording.added(row)} ({wording.added_interval(row)})"


_ADDED_COLUMNS: Columns[VerdictRow] = {
    "percentile of a typical run": lambda row: PERCENTILES[_percentile(row)].label,
    "load": lambda row: row.load,
    "treatment": lambda row: row.treatment,
    "against": lambda row: row.baseline,
    "added / ms": lambda row: _ms(row)[0],
    "added low / ms": lambda row: _ms(row)[1],
    "added high / ms": lambda row: _ms(row)[2],
    "kind": lambda row: "exploratory" if row.exploratory else "primary",
    "verdict": wording.verdict_text,
}
