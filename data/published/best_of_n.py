"""The effect of keeping "the best of n" runs on simulated treatments with a known truth: used by ``best_of_n.ipynb``.

One published comparison measured eight times and left out the three runs with the largest maximum; another measured
five times and left out the worst two. This module repeats that many times on simulated pairs of treatments: identical
ones, one that is slower by a known share, and one that stalls in every fourth run. The noise is that of `mt.simulate`.
A run's maximum is its value times a random factor, and a stall raises the maximum most, as it does in recorded runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import polars as pl
import scipy.stats
import seaborn as sns
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray

import meshtrial as mt
from meshtrial import display

Numbers: TypeAlias = NDArray[np.float64]
Order: TypeAlias = Literal["sequential", "randomised"]

# Log factor between a run's value and its maximum: t noise of three degrees of freedom.
MAXIMUM_SD = 0.3
SLOWER = 0.10
STALL_SHARE, STALL_FACTOR = 0.25, 2.0
DIFFERING_BY = (0.05, 0.10)
ORDERS: dict[Order, str] = {"sequential": "one treatment after the other", "randomised": "in randomised blocks"}


@dataclass(frozen=True)
class Rule:
    """The number of runs, and how many of those with the largest maximum are left out."""

    runs: int
    dropped: int

    def __post_init__(self) -> None:
        if not 0 <= self.dropped <= self.runs - 2:
            raise mt.MeshtrialError(f"dropping {self.dropped} of {self.runs} runs: at least two must be kept")

    @property
    def label(self) -> str:
        """The rule in words."""
        return f"worst {self.dropped} of {self.runs} dropped" if self.dropped else f"all {self.runs} kept"


RULES = (Rule(8, 0), Rule(8, 3), Rule(5, 0), Rule(5, 2))


@dataclass(frozen=True)
class RuleEffect:
    """The effect of one rule with one order of the runs. Changes are medians of estimates."""

    rule: Rule
    order: Order
    identical: Numbers  # ratio of the two means of identical treatments, one per comparison
    called: float  # share of identical pairs that Welch's t test on the kept runs calls different at 0.05
    exact: float | None  # the same with the exact signed-rank test; None without blocks
    spread: float  # standard deviation of the kept runs over that of all, in the median
    slower: float  # of a treatment that is slower by `SLOWER`
    stalls: float  # of a treatment that stalls
    stalls_truth: float  # of its mean over many runs

    def winners(self, differing_by: float) -> float:
        """Return the share of identical pairs whose means differ by more than this in either direction."""
        return float(np.mean(np.abs(np.log(self.identical)) > math.log1p(differing_by)))

    def quantile(self, q: float) -> float:
        """Return a quantile of the ratios of identical treatments."""
        return float(np.quantile(self.identical, q))


def outcomes(
    rules: Sequence[Rule] = RULES,
    *,
    repetitions: int = 4000,
    seed: int = 1,
    orders: Sequence[Order] = tuple(ORDERS),
) -> tuple[RuleEffect, ...]:
    """Simulate every rule with every order of the runs, ``repetitions`` comparisons per combination.

    ``sequential``: all runs of one treatment, then all of the other, as in the published comparisons. ``randomised``:
    in randomised blocks.
    """
    if repetitions < 100:
        raise mt.MeshtrialError(f"repetitions = {repetitions}: must be 100 or more, because fewer give no usable share")
    root = np.random.SeedSequence(seed)
    cells = [(rule, order) for order in orders for rule in rules]
    return tuple(
        _outcome(rule, order, repetitions, np.random.default_rng(child))
        for (rule, order), child in zip(cells, root.spawn(len(cells)), strict=True)
    )


def _outcome(rule: Rule, order: Order, repetitions: int, rng: np.random.Generator) -> RuleEffect:
    values, maxima = _runs(rule, order, repetitions, rng, 0.0)
    kept = kept_best(values, maxima, rule)
    tested = scipy.stats.ttest_ind(kept[..., 0], kept[..., 1], axis=1, equal_var=False)
    exact = None
    if order == "randomised" and not rule.dropped:
        signed = scipy.stats.wilcoxon(np.log(values[..., 1] / values[..., 0]), axis=1, method="exact")
        exact = float(np.mean(signed.pvalue < 0.05))
    spread = kept[..., 0].std(axis=1, ddof=1) / values[..., 0].std(axis=1, ddof=1)
    slower = _change(kept_best(*_runs(rule, order, repetitions, rng, SLOWER), rule))
    stalled = _stalled(*_runs(rule, order, repetitions, rng, 0.0), rng)
    return RuleEffect(
        rule=rule,
        order=order,
        identical=_ratios(kept),
        called=float(np.mean(tested.pvalue < 0.05)),
        exact=exact,
        spread=float(np.median(spread)),
        slower=slower,
        stalls=_change(kept_best(*stalled, rule)),
        stalls_truth=STALL_SHARE * (STALL_FACTOR - 1),
    )


def _runs(
    rule: Rule, order: Order, repetitions: int, rng: np.random.Generator, effect: float
) -> tuple[Numbers, Numbers]:
    """Return values and maxima, each (repetitions, runs, 2)."""
    logs = mt.simulate([0.0, math.log1p(effect)], rule.runs, repetitions, rng, order=order)
    factor = rng.standard_t(3, logs.shape) * (MAXIMUM_SD / math.sqrt(3))
    return np.exp(logs), np.exp(logs + factor)


def _stalled(values: Numbers, maxima: Numbers, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Slow down every fourth run of the second treatment on average, and its maximum by the square of that factor."""
    hit = rng.random(values.shape[:2]) < STALL_SHARE
    factor = np.where(hit, STALL_FACTOR, 1.0)
    values, maxima = values.copy(), maxima.copy()
    values[..., 1] *= factor
    maxima[..., 1] *= factor**2
    return values, maxima


def kept_best(values: Numbers, maxima: Numbers, rule: Rule) -> Numbers:
    """Return the runs with the smallest maxima of each treatment: (repetitions, kept, 2)."""
    order = maxima.argsort(axis=1)[:, : rule.runs - rule.dropped]
    kept: Numbers = np.take_along_axis(values, order, axis=1)
    return kept


def _ratios(kept: Numbers) -> Numbers:
    means = kept.mean(axis=1)
    ratios: Numbers = means[:, 1] / means[:, 0]
    return ratios


def _change(kept: Numbers) -> float:
    return float(np.median(_ratios(kept))) - 1


def table(effects: Sequence[RuleEffect]) -> display.Fragment:
    """Return a table of false winners and of estimates with the truth, one row per rule."""
    differ = [
        display.Column[RuleEffect](
            f"identical, means differ by more than {display.declared_percent(by)}", partial(_winners, by), numeric=True
        )
        for by in DIFFERING_BY
    ]
    columns: list[display.Column[RuleEffect]] = [
        display.Column("rule", lambda one: one.rule.label),
        *differ,
        display.Column("identical, called by Welch's t", lambda one: _share(one.called), numeric=True),
        display.Column("identical, called by the exact test", lambda one: _share(one.exact), numeric=True),
        display.Column("remaining spread", lambda one: _share(one.spread), numeric=True),
        display.Column(f"estimate, truth +{100 * SLOWER:.0f} %", lambda one: _estimate(one.slower), numeric=True),
        display.Column("estimate where it stalls, truth +25 %", lambda one: _estimate(one.stalls), numeric=True),
    ]
    note = (
        "Welch's t test at 0.05 uses the runs that were kept. The exact signed-rank test uses whole blocks and needs "
        "six. The treatment that stalls does so in every fourth run, which then takes twice as long. Its mean over "
        "many runs is 25 % above the other's."
    )
    groups = [ORDERS[one.order] for one in effects]
    return display.Table.from_rows("Best of n", columns, effects, note, groups=groups).fragment()


def _winners(differing_by: float, one: RuleEffect) -> display.Cell | None:
    return _share(one.winners(differing_by))


def _share(value: float | None) -> display.Cell | None:
    return None if value is None else display.Cell(display.percent(value), value)


def _estimate(change: float) -> display.Cell:
    return display.Cell(display.change(1 + change), change)


def figure(effects: Sequence[RuleEffect]) -> display.Figure:
    """Return a figure of the ratios of the means of identical treatments, one row per rule."""
    caption = (
        "Ratio of the mean of one treatment to that of another that is identical to it, over many simulated "
        "comparisons, as a density with quartiles. The dotted line marks equal means. Dropping runs hardly makes the "
        "shapes narrower, and the order of the runs matters more than the rule."
    )
    quantiles = {f"{100 * q:g} %": partial(_quantile, q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
    columns: dict[str, Callable[[RuleEffect], object]] = {
        "order": lambda one: ORDERS[one.order],
        "rule": lambda one: one.rule.label,
        **quantiles,
    }
    seen = "Ratios of the means of two identical treatments"
    return display.Figure.from_rows(partial(_draw, effects), effects, columns, seen, _says, caption)


def _quantile(q: float, one: RuleEffect) -> float:
    return one.quantile(q)


def _says(one: RuleEffect) -> str:
    ratios = f"nine of ten ratios between {one.quantile(0.05):.2f} and {one.quantile(0.95):.2f}"
    return f"{one.rule.label}, {ORDERS[one.order]}: {ratios}"


def _draw(effects: Sequence[RuleEffect]) -> Canvas:
    orders = list(dict.fromkeys(one.order for one in effects))
    canvas, panels = display.panels([2.0] * len(orders), sharex=True)
    limits = [one.quantile(q) for one in effects for q in (0.02, 0.98)]
    for axes, order, colour in zip(panels, orders, display.HUES, strict=False):
        effects_of_order = [one for one in effects if one.order == order]
        values = pl.DataFrame(
            {
                "place": np.repeat(np.arange(len(effects_of_order)), [one.identical.size for one in effects_of_order]),
                "ratio": np.concatenate([one.identical for one in effects_of_order]),
            }
        )
        sns.violinplot(
            data=values.to_dict(as_series=False),  # seaborn 0.13.2 raises TypeError for a polars frame
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
        axes.axvline(1, color=display.INK, linewidth=0.8, linestyle=":")
        display.rows(axes, [one.rule.label for one in effects_of_order], [display.INK] * len(effects_of_order))
        axes.set_title(ORDERS[order], loc="left")
        axes.set_ylabel("")
        axes.set_xlabel("")
        display.factor_axis(axes, min(limits), max(limits), display.TICKS)
    panels[-1].set_xlabel("ratio of the means of two identical treatments")
    return canvas
