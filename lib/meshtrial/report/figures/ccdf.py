"""The whole distribution of latency: the body as a CDF, the tail as a CCDF on two logarithmic axes.

Curves are step functions of the exact requests of all included runs put together. They show shape; the
inference is over runs, so pooled values are named so and stand beside the typical run's, and the band around a tail is
over runs too: at every time, the sign test's interval for the median run's share of slower requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from meshtrial.design.responses import MARKED
from meshtrial.errors import RecordError
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Figure, alt_text
from meshtrial.report.figures.common import empty, log_axis
from meshtrial.stats.intervals import median_ranks

STEPS = 260
BAND_POINTS = 90
BAND_ALPHA = 0.05


@dataclass(frozen=True)
class Pool:
    """All requests of one treatment at one load, sorted, in milliseconds."""

    load: str
    treatment: str
    runs: tuple[NDArray[np.float64], ...]
    values: NDArray[np.float64]

    def quantile(self, q: float, floor: float) -> float | None:
        """Exact quantile of the pool, where enough requests lie beyond it."""
        if len(self.values) * (1 - q) < floor:
            return None
        return float(np.quantile(self.values, q))

    def band(self, times: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Interval of the median run's CCDF at each time; None where there are too few runs for the confidence."""
        enclosing = median_ranks(len(self.runs), BAND_ALPHA)
        if enclosing.confidence < 1 - BAND_ALPHA:
            return None
        shares = np.sort([1 - np.searchsorted(run, times, side="right") / len(run) for run in self.runs], axis=0)
        return shares[enclosing.rank - 1], shares[-enclosing.rank]

    def steps(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Some of the values, dense in both tails, and how many requests end with each: every step drawn is exact."""
        n = len(self.values)
        upper = n - np.unique(np.geomspace(1, n, STEPS).astype(int))
        even = np.linspace(0, n - 1, STEPS).astype(int)
        ranks = np.unique(np.concatenate([upper, even]))
        return self.values[ranks], np.diff(ranks, prepend=-1)


def latency_ccdf(data: StudyData, *, corrected: bool = False) -> Figure:
    """CDF and CCDF of the latency of every request, by treatment.

    Parameters
    ----------
    data : StudyData
    corrected : bool
        Count from the scheduled send (corrected for coordinated omission) instead of the actual one.
    """
    column = "corrected_latency_s" if corrected else "latency_s"
    pools, unreadable = _pools(data, column)
    if not pools:
        why = f" {unreadable[0]}" if unreadable else ""
        return empty(f"No run that takes part in the inference has its requests recorded.{why}")
    since = "scheduled" if corrected else "actual"
    total = sum(len(pool.values) for pool in pools)
    caption = (
        f"Latency of {wording.count(total)} requests from their {since} send, pooled over the included runs of each "
        "treatment. Above: share of requests answered within a time. Below: share that took longer, on a logarithmic "
        "axis that spreads the tail out. Curves show shape; verdicts compare runs. The last few requests of a curve "
        "are chance."
        + _banded(pools)
        + (f" Excluded, because not readable: {'; '.join(unreadable)}." if unreadable else "")
    )
    return Figure(lambda: _draw(data, pools, since), _alt(data, pools), caption, _table(data, pools, corrected))


def _banded(pools: list[Pool]) -> str:
    ranks = [median_ranks(len(pool.runs), BAND_ALPHA) for pool in pools]
    if not any(one.confidence >= 1 - BAND_ALPHA for one in ranks):
        return ""
    return (
        " Bands: where the median run's curve lies, at each time with at least "
        f"{wording.declared_percent(1 - BAND_ALPHA)} confidence over runs (sign test)."
    )


def _pools(data: StudyData, column: str) -> tuple[list[Pool], list[str]]:
    found: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    unreadable = []
    # A search ends at a rate of each treatment's own: there is nothing to lay over one another.
    searches = {load.label for load in data.plan.study.loads if load.search}
    for run in (run for run in data.included_runs() if run.load not in searches):
        try:
            requests = data.latency(run)
        except RecordError as error:
            unreadable.append(f"{run.run_id} ({error})")
            continue
        if column not in requests.columns:
            continue
        # Requests that the generator skipped are estimates; they belong to the corrected view only.
        if column == "latency_s" and "imputed" in requests.columns:
            requests = requests.filter(~pl.col("imputed"))
        if "ok" in requests.columns:
            requests = requests.filter(pl.col("ok"))
        values = requests[column].drop_nulls().to_numpy()
        if len(values):
            found.setdefault((run.load, run.treatment), []).append(values)
    pools = [
        Pool(load, treatment, tuple(np.sort(one) * 1e3 for one in parts), np.sort(np.concatenate(parts)) * 1e3)
        for load in frames.loads(data)
        if load not in searches
        for treatment in frames.order(data, [t for one, t in found if one == load])
        for parts in [found[load, treatment]]
    ]
    return pools, unreadable


def _draw(data: StudyData, pools: list[Pool], since: str) -> Canvas:
    looks = palette.looks(data.plan.study)
    present = list(dict.fromkeys(pool.load for pool in pools))
    names = frames.order(data, [pool.treatment for pool in pools])
    body_in, tail_in = 1.9, 2.7
    figure, axes = sheet.panels([body_in + sheet.key_in(names), *[tail_in, body_in] * (len(present) - 1), tail_in])
    for index, load in enumerate(present):
        mine = [pool for pool in pools if pool.load == load]
        body, tail = axes[2 * index], axes[2 * index + 1]
        # Below the fastest in a thousand there is only the width of the axis to lose.
        low = min(float(pool.values[len(pool.values) // 1000]) for pool in mine) / 1.05
        high = max(float(pool.values[-1]) for pool in mine) * 1.1
        low = max(low, high / 1e6)
        for axis in (body, tail):
            log_axis(axis, "x", low, high, sheet.TICKS)
        _axes_of(body, tail, mine)
        for pool in mine:
            _curves(body, tail, pool, looks[pool.treatment], data.plan.study.gates.sample_floor)
        body.set_title(frames.load_title(data, load))
        body.set(xlabel="", ylabel="answered within / %")
        tail.set_ylabel("took longer (log scale)")
        tail.set_xlabel(f"latency from the {since} send / ms (log scale)")
    sheet.key(axes[0], [looks[name] for name in names])
    return figure


def _curves(body: Axes, tail: Axes, pool: Pool, look: palette.TreatmentStyle, floor: float) -> None:
    # It takes longer to load than matplotlib, and not every command draws.
    import seaborn

    values, requests = pool.steps()
    seaborn.ecdfplot(x=values, weights=requests, stat="percent", ax=body, **look.line(1.5))
    seaborn.ecdfplot(x=values, weights=requests, complementary=True, ax=tail, **look.line(1.5))
    grid = np.geomspace(*tail.get_xlim(), BAND_POINTS)
    band = pool.band(grid)
    if band is not None:
        bottom = tail.get_ylim()[0]
        low, high = (np.maximum(edge, bottom) for edge in band)
        tail.fill_between(grid, low, high, where=high > bottom, color=look.colour, alpha=0.13, linewidth=0)
    for marked in MARKED:
        at = pool.quantile(marked.q, floor)
        if at is not None:
            # Over the line an open marker has the page's colour inside.
            face = look.colour if look.filled else palette.PAPER
            tail.plot([at], [1 - marked.q], **look.marks(5.5) | {"markerfacecolor": face})


def _axes_of(body: Axes, tail: Axes, mine: list[Pool]) -> None:
    body.set_ylim(0, 101)
    body.yaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
    smallest = 0.7 / max(len(pool.values) for pool in mine)
    tail.set_yscale("log")
    tail.set_ylim(smallest, 1.3)
    levels = {1: "100 %", 0.1: "10 %", 0.01: "1 %", 1e-3: "0.1 %", 1e-4: "0.01 %", 1e-5: "0.001 %"}
    shown = [level for level in levels if level >= smallest]
    tail.yaxis.set_major_locator(FixedLocator(shown))
    tail.yaxis.set_minor_locator(NullLocator())
    tail.yaxis.set_major_formatter(FuncFormatter(lambda value, _: levels.get(round(value, 9), "")))
    for level in shown[1:]:
        label = f"p{100 * (1 - level):.10g}"
        tail.text(1.01, level, label, transform=tail.get_yaxis_transform(), va="center", size=sheet.SMALL)


def _alt(data: StudyData, pools: list[Pool]) -> str:
    floor = data.plan.study.gates.sample_floor
    parts = []
    for pool in pools:
        given = {marked.label: pool.quantile(marked.q, floor) for marked in MARKED}
        shown = [f"{label} {wording.number(at)} ms" for label, at in given.items() if at is not None]
        where = f" at {pool.load}" if len({one.load for one in pools}) > 1 else ""
        parts.append(f"{pool.treatment}{where}: " + (", ".join(shown) or "too few requests for any percentile"))
    return alt_text("Distribution of request latency, body and tail; pooled percentiles", parts)


def _table(data: StudyData, pools: list[Pool], corrected: bool) -> pl.DataFrame:
    floor = data.plan.study.gates.sample_floor
    infix = "corrected_" if corrected else ""
    columns: dict[str, list[object]] = {
        "treatment": [pool.treatment for pool in pools],
        "load": [pool.load for pool in pools],
        "runs": [len(pool.runs) for pool in pools],
        "requests": [len(pool.values) for pool in pools],
    }
    for marked in MARKED:
        columns[f"pooled {marked.label} / ms"] = [pool.quantile(marked.q, floor) for pool in pools]
        typical = frames.runs_of(data, f"latency_{infix}{marked.key}_s")
        middles = [typical.filter(load=pool.load, treatment=pool.treatment)["value"].median() for pool in pools]
        columns[f"typical run's {marked.label} / ms"] = [
            None if middle is None else 1e3 * float(middle)  # type: ignore[arg-type]
            for middle in middles
        ]
    columns["largest / ms (depends on the number of requests)"] = [float(pool.values[-1]) for pool in pools]
    frame = pl.DataFrame(columns)
    return frame.select([c for c in frame.columns if frame[c].null_count() < frame.height])
