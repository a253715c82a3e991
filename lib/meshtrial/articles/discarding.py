"""What "the best of n" does: dropping the worst runs by their maximum, on simulated treatments of known truth.

Published comparisons measured eight times and left out the three runs with the largest maximum, or five times less the
worst two. Here the same is done many times to two treatments of which everything is known: identical ones, one that is
slower by a known share, and one that stalls in every fourth run. The noise is that of `meshtrial.stats.simulate`;
a run's maximum is its value times a factor of its own, and a stall lifts it most, as it does in records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import scipy.stats
import seaborn as sns
from matplotlib.figure import Figure as Canvas

from meshtrial.errors import UsageError
from meshtrial.report import Figure, Fragment, frames, wording
from meshtrial.report.figures.common import factor_axis
from meshtrial.report.markup import Cell, Column, Table
from meshtrial.report.palette import HUES, INK
from meshtrial.report.sheet import Sheet
from meshtrial.stats.ranktests import FloatArray, signed_rank_p
from meshtrial.stats.simulate import Order, simulate

# Log factor between a run's value and its maximum: t noise of three degrees of freedom.
MAXIMUM_SD = 0.3
SLOWER = 0.10
STALL_SHARE, STALL_FACTOR = 0.25, 2.0
PRINTED = (0.05, 0.10)
ORDERS: tuple[Order, ...] = ("sequential", "randomised")


@dataclass(frozen=True)
class Rule:
    """How many runs there are, and how many of them are left out for their maximum."""

    runs: int
    dropped: int

    def __post_init__(self) -> None:
        if not 0 <= self.dropped <= self.runs - 2:
            raise UsageError(f"dropping {self.dropped} of {self.runs} runs: at least two must be kept")

    @property
    def label(self) -> str:
        """In words."""
        return f"worst {self.dropped} of {self.runs} dropped" if self.dropped else f"all {self.runs} kept"


RULES = (Rule(8, 0), Rule(8, 3), Rule(5, 0), Rule(5, 2))


@dataclass(frozen=True)
class Outcome:
    """What one rule does under one order.

    Attributes
    ----------
    identical : (repetitions,) array
        Ratio of the two means where the treatments are identical.
    called : float
        Share of identical pairs that Welch's t test on the kept runs calls different at 0.05.
    exact : float or None
        The same by the exact signed-rank test on blocks; None where there are no blocks to test.
    spread : float
        Standard deviation of the kept runs over that of all, in the median.
    slower : float
        Estimated change, in the median, of a treatment that is slower by :data:`SLOWER`.
    stalls, stalls_truth : float
        Estimated change, in the median, of a treatment that stalls, and the change of its mean over many runs.
    """

    rule: Rule
    order: Order
    identical: FloatArray
    called: float
    exact: float | None
    spread: float
    slower: float
    stalls: float
    stalls_truth: float

    def winners(self, printed: float) -> float:
        """Share of identical pairs whose means differ by more than this, either way."""
        return float(np.mean(np.abs(np.log(self.identical)) > math.log1p(printed)))


def outcomes(
    rules: Sequence[Rule] = RULES, *, repetitions: int = 4000, seed: int = 1, orders: Sequence[Order] = ORDERS
) -> tuple[Outcome, ...]:
    """Simulate every rule under every order.

    Parameters
    ----------
    rules : sequence of Rule
    repetitions : int
        Comparisons a cell.
    seed : int
    orders : sequence of {"sequential", "randomised"}
        All runs of one treatment and then the other's, as published comparisons were run; or in blocks.
    """
    if repetitions < 100:
        raise UsageError(f"repetitions = {repetitions}: allowed is 100 or more, or a share says nothing")
    root = np.random.SeedSequence(seed)
    cells = [(rule, order) for order in orders for rule in rules]
    return tuple(
        _outcome(rule, order, repetitions, np.random.default_rng(child))
        for (rule, order), child in zip(cells, root.spawn(len(cells)), strict=True)
    )


def _outcome(rule: Rule, order: Order, repetitions: int, rng: np.random.Generator) -> Outcome:
    values, maxima = _runs(rule, order, repetitions, rng, 0.0)
    kept = _kept(values, maxima, rule)
    tested = scipy.stats.ttest_ind(kept[..., 0], kept[..., 1], axis=1, equal_var=False)
    blocks = order == "randomised" and not rule.dropped
    logs = np.log(values[..., 1] / values[..., 0])
    spread = kept[..., 0].std(axis=1, ddof=1) / values[..., 0].std(axis=1, ddof=1)
    slower = _change(_kept(*_runs(rule, order, repetitions, rng, SLOWER), rule))
    stalled = _stalled(*_runs(rule, order, repetitions, rng, 0.0), rng)
    return Outcome(
        rule=rule,
        order=order,
        identical=_ratios(kept),
        called=float(np.mean(tested.pvalue < 0.05)),
        exact=float(np.mean([signed_rank_p(row) < 0.05 for row in logs])) if blocks else None,
        spread=float(np.median(spread)),
        slower=slower,
        stalls=_change(_kept(*stalled, rule)),
        stalls_truth=STALL_SHARE * (STALL_FACTOR - 1),
    )


def _runs(
    rule: Rule, order: Order, repetitions: int, rng: np.random.Generator, effect: float
) -> tuple[FloatArray, FloatArray]:
    """Values and maxima, each (repetitions, runs, 2)."""
    logs = simulate([0.0, math.log1p(effect)], rule.runs, repetitions, rng, order=order)
    factor = rng.standard_t(3, logs.shape) * (MAXIMUM_SD / math.sqrt(3))
    return np.exp(logs), np.exp(logs + factor)


def _stalled(values: FloatArray, maxima: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """The second treatment's every fourth run is hit, its maximum twice as much."""
    hit = rng.random(values.shape[:2]) < STALL_SHARE
    factor = np.where(hit, STALL_FACTOR, 1.0)
    values, maxima = values.copy(), maxima.copy()
    values[..., 1] *= factor
    maxima[..., 1] *= factor**2
    return values, maxima


def _kept(values: FloatArray, maxima: FloatArray, rule: Rule) -> FloatArray:
    """The runs with the smallest maxima of each treatment: (repetitions, kept, 2)."""
    order = maxima.argsort(axis=1)[:, : rule.runs - rule.dropped]
    kept: FloatArray = np.take_along_axis(values, order, axis=1)
    return kept


def _ratios(kept: FloatArray) -> FloatArray:
    means = kept.mean(axis=1)
    ratios: FloatArray = means[:, 1] / means[:, 0]
    return ratios


def _change(kept: FloatArray) -> float:
    return float(np.median(_ratios(kept))) - 1


_NAMES = {"sequential": "one treatment after the other", "randomised": "in randomised blocks"}
_NOTE = (
    "Welch's t test is asked of the runs that were kept, at 0.05; the exact signed-rank test of whole blocks, of which "
    "it needs six. The treatment that stalls does so in every fourth run, which then takes twice as long: its mean "
    "over many runs is 25 % above the other's."
)


def outcome_table(found: Sequence[Outcome]) -> Fragment:
    """What each rule does: winners where there is none, and estimates beside the truth."""
    columns = [
        Column("rule"),
        *(Column(f"identical, means differ by more than {wording.declared_percent(p)}", numeric=True) for p in PRINTED),
        Column("identical, called by Welch's t", numeric=True),
        Column("identical, called by the exact test", numeric=True),
        Column("spread that is left", numeric=True),
        Column(f"estimate, truth +{100 * SLOWER:.0f} %", numeric=True),
        Column("estimate where it stalls, truth +25 %", numeric=True),
    ]
    rows = [
        [
            Cell(one.rule.label),
            *(_share(one.winners(p)) for p in PRINTED),
            _share(one.called),
            Cell("–") if one.exact is None else _share(one.exact),
            _share(one.spread),
            Cell(wording.change(1 + one.slower), one.slower),
            Cell(wording.change(1 + one.stalls), one.stalls),
        ]
        for one in found
    ]
    return Table("Best of n", columns, rows, _NOTE, groups=[_NAMES[one.order] for one in found]).fragment()


def outcome_figure(found: Sequence[Outcome]) -> Figure:
    """Ratios of the means of identical treatments, a row a rule."""
    orders = list(dict.fromkeys(one.order for one in found))
    rows = [
        {"order": _NAMES[one.order], "rule": one.rule.label}
        | {f"{100 * q:g} %": float(np.quantile(one.identical, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
        for one in found
    ]
    alt = "; ".join(
        f"{row['rule']}, {row['order']}: nine of ten ratios between {row['5 %']:.2f} and {row['95 %']:.2f}"
        for row in rows
    )
    caption = (
        "Ratio of the mean of one treatment to that of another that is identical to it, over many simulated "
        "comparisons, as a density with its quarters. The dotted line is where they are the same. Dropping "
        "runs makes the shapes hardly narrower, and the order of the runs matters more than the rule."
    )
    return Figure(lambda sheet: _draw(found, orders, sheet), alt, caption, pl.DataFrame(rows))


def _draw(found: Sequence[Outcome], orders: Sequence[Order], sheet: Sheet) -> Canvas:
    figure, panels = sheet.panels([2.0] * len(orders), sharex=True)
    limits = [float(np.quantile(one.identical, q)) for one in found for q in (0.02, 0.98)]
    for axes, order, colour in zip(panels, orders, HUES, strict=False):
        mine = [one for one in found if one.order == order]
        values = pl.DataFrame(
            {
                "place": np.repeat(np.arange(len(mine)), [one.identical.size for one in mine]),
                "ratio": np.concatenate([one.identical for one in mine]),
            }
        )
        sns.violinplot(
            data=frames.for_seaborn(values),
            x="ratio",
            y="place",
            orient="h",
            inner="quart",
            cut=0,
            width=0.7,
            color=colour,
            fill=False,
            linewidth=1.2,
            ax=axes,
        )
        axes.axvline(1, color=INK, linewidth=0.8, linestyle=":")
        sheet.rows(axes, [one.rule.label for one in mine], [INK] * len(mine))
        axes.set_title(_NAMES[order], loc="left")
        axes.set_ylabel("")
        axes.set_xlabel("")
        factor_axis(axes, min(limits), max(limits), sheet.ticks)
    panels[-1].set_xlabel("ratio of the means of two identical treatments")
    return figure


def _share(value: float) -> Cell:
    return Cell(wording.percent(value), value)
