"""What could be wrong with a study although its p-values look fine.

Diagnostics warn and never change a verdict, but for one: where block differences depend on each other no exact test
holds, and the family asks for that itself (`dependent_blocks`, `all_dependent`).

All of them look at one response at one load. Values are positive and analysed as logs; what a family asks also takes
them as they are, with ``scale="difference"``. Randomised blocks protect the test from drift and position; the warnings
say what to mend so that the next study is sharper, and name the few things that blocks do not protect from: carry-over,
a treatment that feels the machine more than its baseline, and runs of two kinds. p-values are the usual large-sample
ones: diagnostics only warn, at a level of 1 %, so an approximation is good enough here and nowhere else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from meshtrial.errors import UsageError
from meshtrial.stats.comparison import Scale, Warning
from meshtrial.stats.contrast import block_differences
from meshtrial.stats.intervals import hodges_lehmann
from meshtrial.stats.ranktests import RESOLUTION, FloatArray, as_sample
from meshtrial.vocabulary import COARSE_QUANTILE

# a dozen diagnostics on every response: at 5 % a sound study would carry a warning more often than not
LEVEL = 0.01
# below so many blocks nothing is said of whether neighbours resemble each other
FEWEST_BLOCKS = 8
# values of a treatment that is looked at
FEWEST_VALUES = 3


def log_table(values: Mapping[str, ArrayLike], scale: Scale = "ratio") -> FloatArray:
    """A (blocks, treatments) array on the scale of the analysis; nan where a run is missing."""
    if not values:
        raise UsageError("diagnostics need at least one treatment")
    columns = [np.asarray(column, dtype=np.float64) for column in values.values()]
    if len({c.shape for c in columns}) != 1 or columns[0].ndim != 1:
        raise UsageError("every treatment needs one value a block (nan where it has none)")
    table = np.stack(columns, axis=1)
    return np.log(np.where(table > 0, table, np.nan)) if scale == "ratio" else table


def _medians(table: FloatArray, axis: int) -> FloatArray:
    """Medians of what is there; numpy's function for gaps takes twenty times as long, and gaps are rare."""
    median = np.nanmedian if np.isnan(table).any() else np.median
    medians: FloatArray = median(table, axis=axis, keepdims=True)
    return medians


def without_treatments(table: FloatArray) -> FloatArray:
    """Residuals after each treatment's median."""
    return table - _medians(table, axis=0)


def without_blocks(table: FloatArray) -> FloatArray:
    """Residuals after treatments and blocks: one step of median polish (Tukey 1977)."""
    rest = without_treatments(table)
    return rest - _medians(rest, axis=1)


def change_text(size: float, scale: Scale = "ratio") -> str:
    """A change on the scale of the analysis, as a reader wants it: per cent, or the response's unit."""
    if scale == "difference":
        return f"{size:+.3g}"
    share = math.expm1(size)
    return f"{share:+.1%}" if abs(share) >= 0.0005 or not share else f"{100 * share:+.1g}%"


def spearman(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Rank correlation and its two-sided p-value (t approximation); (0, 1) where either does not vary."""
    if len(x) < 5 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0, 1.0
    from scipy.stats import spearmanr  # takes a moment to load

    correlation = spearmanr(x, y)
    return float(correlation.statistic), float(correlation.pvalue)


def kruskal(groups: Sequence[FloatArray]) -> float:
    """Kruskal-Wallis p-value (chi-square approximation) over groups of three or more; 1.0 with fewer than two."""
    large = [g for g in groups if len(g) >= 3]
    if len(large) < 2 or np.ptp(np.concatenate(large)) == 0:
        return 1.0
    from scipy.stats import kruskal as test  # takes a moment to load

    return float(test(*large).pvalue)


def _smallest_p(sizes: Sequence[int]) -> float:
    """The smallest p-value of a permutation test over groups of these sizes: groups that lie wholly apart."""
    ways = math.factorial(sum(sizes)) / math.prod(map(math.factorial, sizes))
    # Groups of one size may change places, and the whole may lie the other way round.
    alike = max(2, math.prod(math.factorial(sizes.count(size)) for size in set(sizes)))
    return alike / ways


def permuted_kruskal(groups: Sequence[FloatArray]) -> float:
    """Kruskal-Wallis p-value by permutation: exact where the ways to deal the values are few, else of 9,999 drawn."""
    from scipy.stats import permutation_test, rankdata  # takes a moment to load

    ranks = rankdata(np.concatenate(groups))
    dealt = np.split(ranks, np.cumsum([len(group) for group in groups])[:-1])

    def statistic(*samples: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        # Only the part of H that the dealing changes.
        return np.asarray(sum(sample.sum(axis=axis) ** 2 / sample.shape[axis] for sample in samples))

    tested = permutation_test(dealt, statistic, vectorized=True, alternative="greater", rng=0)
    return float(tested.pvalue)


def lag_one(series: FloatArray) -> tuple[float, float]:
    """Autocorrelation of neighbours and its one-sided p-value (normal, mean -1/n: Moran 1948); (0, 1) for few."""
    n = len(series)
    centred = series - series.mean()
    spread = float((centred**2).sum())
    if n < FEWEST_BLOCKS or spread == 0:
        return 0.0, 1.0
    r = float((centred[1:] * centred[:-1]).sum()) / spread
    sd = (n - 2) / (n * math.sqrt(n - 1))
    return r, float(special.ndtr(-(r + 1 / n) / sd))


# a mode holds at least a fifth of the runs: a few shocks are no second mode
_SMALLEST_SHARE = 0.2
_FEWEST = 12


def separation(values: ArrayLike) -> tuple[float, float]:
    """Ashman's D of the best split into two groups (Ashman, Bird & Zepf 1994), and the value that splits.

    D is the distance of the two means in units of the groups' mean spread; 0 below 12 values.
    """
    x = np.sort(as_sample(values))
    n = len(x)
    least = max(3, math.ceil(_SMALLEST_SHARE * n))
    if n < _FEWEST or x[0] == x[-1]:
        return 0.0, math.nan
    x0 = x - x.mean()
    size = np.arange(least, n - least + 1)
    total, squares = np.cumsum(x0), np.cumsum(x0**2)
    low, high = total[size - 1] / size, (total[-1] - total[size - 1]) / (n - size)
    spread_low = np.maximum(squares[size - 1] / size - low**2, 0.0)
    spread_high = np.maximum((squares[-1] - squares[size - 1]) / (n - size) - high**2, 0.0)
    best = int(np.argmin(spread_low * size + spread_high * (n - size)))
    both = math.sqrt(float(spread_low[best] + spread_high[best]))
    split = float(x[size[best] - 1] + x[size[best]]) / 2
    distance = math.sqrt(2) * float(high[best] - low[best])
    return (distance / both if both > 0 else math.inf), split


def _two_kinds(values: FloatArray) -> tuple[float, float] | None:
    """Ashman's D and the split where runs are of two kinds.

    The threshold, 3.7 + 52/n, is passed by at most 1 % of unimodal samples (normal, t3, uniform and exponential, n = 12
    to 200; simulated).
    """
    d, split = separation(values)
    return (d, split) if d > 3.7 + 52 / len(values) else None


def modes(values: ArrayLike) -> tuple[Warning, ...]:
    """Warn of two kinds of runs, by their residuals: treatments and blocks are taken out."""
    x = as_sample(values)
    kinds = _two_kinds(x)
    if kinds is None:
        return ()
    upper = int((x > kinds[1]).sum())
    text = (
        f"runs are of two kinds, {len(x) - upper} low and {upper} high (Ashman D = {kinds[0]:.1f}): find what differs "
        "between them (placement, connection reuse, frequency) and fix it or make it a treatment"
    )
    return (Warning("modes", text),)


def baseline_modes(baseline: ArrayLike, twin: ArrayLike | None = None) -> tuple[Warning, ...]:
    """Warn of a machine in two states: of the raw values of the baseline and its twin together.

    A state that lasts a whole block is the same for all of its runs: taking blocks out takes it out too, and with it
    what the study should know of its machine. The raw baseline shows it, for nothing but the machine makes it vary.
    """
    table = log_table({"baseline": baseline} | ({} if twin is None else {"twin": twin}))
    values = table[np.isfinite(table)]
    kinds = _two_kinds(values) if len(values) else None
    if kinds is None:
        return ()
    high = values > kinds[1]
    upper, apart = int(high.sum()), float(values[high].mean() - values[~high].mean())
    text = (
        f"the machine has two states: {len(values) - upper} runs of the baseline and its twin lie low and {upper} lie "
        f"{change_text(apart)} higher (Ashman D = {kinds[0]:.1f}); blocks take out what a whole block shares, but find "
        "what changes (other programs, frequency, sleep states) before reading the absolute numbers"
    )
    return (Warning("baseline-modes", text),)


def autocorrelation(baseline: ArrayLike) -> tuple[Warning, ...]:
    """Likeness of the baseline in neighbouring blocks; nothing below 8 blocks."""
    table = log_table({"baseline": baseline})
    r, p = lag_one(table[np.isfinite(table)])
    if p > LEVEL:
        return ()
    text = (
        f"the baseline resembles its last block (lag-1 {r:.2f}, p = {p:.2g}): the machine wanders slowly; pairing "
        "by block takes it out, unpaired comparisons of these runs would not hold"
    )
    return (Warning("autocorrelation", text),)


def _known_differences(treatment: ArrayLike, baseline: ArrayLike, scale: Scale) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Block differences of two treatments, and which of them are known."""
    table = log_table({"treatment": treatment, "baseline": baseline}, scale)
    with np.errstate(invalid="ignore"):  # two runs of a block that both rank worst
        d: FloatArray = table[:, 0] - table[:, 1]
    return d, np.isfinite(d)


def dependent_blocks(treatment: ArrayLike, baseline: ArrayLike, *, scale: Scale = "ratio") -> tuple[Warning, ...]:
    """Likeness of neighbouring block differences: the one dependence that the exact test does not survive.

    Nothing below 8 blocks.
    """
    d, known = _known_differences(treatment, baseline, scale)
    r, p = lag_one(d[known])
    if p > LEVEL:
        return ()
    text = (
        f"the effect resembles its last block (lag-1 {r:.2f}, p = {p:.2g}): this treatment feels the machine more than "
        "its baseline, and its p-value is too small; pause longer between blocks, or spread them over more time"
    )
    return (Warning("dependent-blocks", text),)


def places_differ(
    treatment: ArrayLike, baseline: ArrayLike, places: Sequence[str], *, scale: Scale = "ratio"
) -> tuple[Warning, ...]:
    """An effect that is not the same in all places that a study was divided over.

    Blocks take a place's level out, not a place's own effect. Where it differs, the one number of the contrast is a
    mixture of them: no effect anywhere is still tested exactly, its size then belongs to these places and this mixture.
    Kruskal and Wallis's statistic under the permutations of the blocks over the places. Where so few blocks reach no
    p-value at the level whatever they hold, that is said: silence would be read as sameness.
    """
    if len(set(places)) < 2:
        return ()
    d, known = _known_differences(treatment, baseline, scale)
    groups = {name: d[known & (np.array(places) == name)] for name in dict.fromkeys(places)}
    held = [values for values in groups.values() if len(values)]
    if len(held) < 2:
        return ()
    if _smallest_p([len(values) for values in held]) > LEVEL:
        sizes = ", ".join(f"{len(values)} in {name}" for name, values in groups.items() if len(values))
        text = (
            f"too few blocks ({sizes}) to see at {LEVEL:.0%} whether the effect is the same everywhere: read each "
            "place for itself"
        )
        return (Warning("places-too-few", text),)
    p = permuted_kruskal(held)
    if p > LEVEL:
        return ()
    each = ", ".join(
        f"{change_text(float(np.median(values)), scale)} in {name}" for name, values in groups.items() if len(values)
    )
    text = (
        f"the effect is not the same everywhere (Kruskal-Wallis p = {p:.2g}): {each}; the estimate is a mixture of "
        "these places, so read each of them, and ask what differs between them"
    )
    return (Warning("places-differ", text),)


# orders of the blocks that the pooled test draws: its smallest p is well below the level
_ORDERS = 1999


@lru_cache(maxsize=32)
def _drawn_orders(blocks: int) -> NDArray[np.int64]:
    """The same for every study of so many blocks, so that a study's verdicts come out again the same."""
    return np.random.default_rng(0).permuted(np.tile(np.arange(blocks), (_ORDERS, 1)), axis=1)


def all_dependent(treatments: Sequence[ArrayLike], scale: Scale = "ratio") -> tuple[Warning, ...]:
    """Likeness of neighbouring blocks inside the treatments, all of them together.

    What a block shares is taken out (its median over the treatments); what is left of a treatment is its own. Where
    treatments have slow states of their own, each of them resembles its last block a little, which one contrast of ten
    blocks hardly shows and all together do. A permutation test over the order of the blocks, with a fixed seed. Nothing
    below 8 blocks or 3 treatments.
    """
    table = log_table({str(i): t for i, t in enumerate(treatments)}, scale) if treatments else np.empty((0, 0))
    if not np.isnan(table).any():  # a run that ranks worst has no size
        table = table[np.isfinite(table).all(axis=1)]
    blocks, columns = table.shape
    if blocks < FEWEST_BLOCKS or columns < 3 or np.isnan(table).any():
        return ()
    rest = without_blocks(table)
    rest = rest - rest.mean(axis=0)
    spread = np.sqrt((rest**2).sum(axis=0))
    rest = rest[:, spread > 0] / spread[spread > 0]
    if rest.shape[1] < 3:
        return ()
    orders = _drawn_orders(blocks)
    # neighbours' products summed over treatments come from one table of all pairs of blocks
    pairs = rest @ rest.T
    observed = float(pairs[np.arange(blocks - 1), np.arange(1, blocks)].sum())
    drawn = pairs[orders[:, :-1], orders[:, 1:]].sum(axis=1)
    p = (1 + int((drawn >= observed - 1e-12).sum())) / (_ORDERS + 1)
    if p > LEVEL:
        return ()
    text = (
        f"treatments resemble their own last block (mean lag-1 {observed / rest.shape[1]:.2f}, p = {p:.2g}): they have "
        "slow states of their own, and p-values are too small; pause longer between blocks, or spread them over more "
        "time"
    )
    return (Warning("dependent-blocks", text),)


@dataclass(frozen=True, slots=True)
class Drift:
    """How far runs moved from the first to the last: a straight line through logs, and the test of their ranks."""

    size: float  # of logs
    correlation: float
    p: float


def drift_of(values: Mapping[str, ArrayLike], times: Mapping[str, ArrayLike]) -> Drift:
    """Residuals of all runs against the time they were measured, in seconds since the study began."""
    rest = without_treatments(log_table(values)).ravel()
    when = np.stack([np.asarray(times[name], dtype=np.float64) for name in values], axis=1).ravel()
    known = np.isfinite(rest) & np.isfinite(when)
    r, p = spearman(when[known], rest[known])
    if p == 1:
        return Drift(0.0, r, p)
    slope = float(np.polyfit(when[known], rest[known], 1)[0])
    return Drift(slope * float(np.ptp(when[known])), r, p)


def drift(values: Mapping[str, ArrayLike], times: Mapping[str, ArrayLike]) -> tuple[Warning, ...]:
    """Warn of runs that moved over the study."""
    found = drift_of(values, times)
    if found.p > LEVEL:
        return ()
    text = (
        f"runs drift by {change_text(found.size)} over the study (Spearman {found.correlation:+.2f}, p = {found.p:.2g})"
        "; blocks absorb it, but look for heat, growing logs or a leak, and keep blocks short"
    )
    return (Warning("drift", text),)


def position_effect(values: Mapping[str, ArrayLike], positions: Mapping[str, ArrayLike]) -> tuple[Warning, ...]:
    """Residuals against the place of the run in its block, from 1 (or 0)."""
    advice = "random order keeps the contrasts fair, but lengthen the pause or the warm-up between runs"
    return _grouped(values, positions, "position", "at position {group:g} of a block", advice)


def carry_over(values: Mapping[str, ArrayLike], previous: Mapping[str, Sequence[str | None]]) -> tuple[Warning, ...]:
    """Residuals against the treatment that ran before (`previous_treatments`)."""
    advice = "something of that treatment outlives its teardown: check for processes and sockets left, or pause longer"
    return _grouped(values, previous, "carry-over", "after a run of {group}", advice)


def _grouped(
    values: Mapping[str, ArrayLike], labels: Mapping[str, Any], code: str, where: str, advice: str
) -> tuple[Warning, ...]:
    """Residuals, treatments and blocks taken out, of runs that have a label in common."""
    rest = without_blocks(log_table(values))
    marks = np.stack([np.array(labels[name], dtype=object) for name in values], axis=1)
    if marks.shape != rest.shape:
        raise UsageError(f"{code}: labels of shape {marks.shape} for values of shape {rest.shape}")
    groups: dict[object, list[float]] = {}
    for value, label in zip(rest.ravel().tolist(), marks.ravel().tolist(), strict=True):
        if math.isfinite(value) and label is not None and label == label:
            groups.setdefault(label, []).append(value)
    arrays = {label: np.array(residuals) for label, residuals in groups.items() if len(residuals) >= 3}
    p = kruskal(list(arrays.values()))
    if p > LEVEL:
        return ()
    worst = max(arrays, key=lambda label: abs(float(np.median(arrays[label]))))
    size = change_text(float(np.median(arrays[worst])))
    return (Warning(code, f"runs {where.format(group=worst)} read {size} (Kruskal-Wallis p = {p:.2g}): {advice}"),)


def previous_treatments(positions: Mapping[str, ArrayLike]) -> dict[str, list[str | None]]:
    """The treatment that ran before each run, from the places in the blocks; blocks follow each other.

    A run without a place (nan) is nobody's predecessor.
    """
    names = list(positions)
    place = np.stack([np.asarray(positions[name], dtype=np.float64) for name in names], axis=1)
    before: dict[str, list[str | None]] = {name: [None] * len(place) for name in names}
    last: str | None = None
    for block, row in enumerate(place):
        for treatment in np.argsort(row, kind="stable"):
            if math.isfinite(row[treatment]):
                before[names[treatment]][block] = last
                last = names[treatment]
    return before


def diagnose(
    values: Mapping[str, ArrayLike],  # the response; nan where a run is missing
    baseline: str,  # the control treatment
    *,
    # Place in the block; seconds since the study began
    positions: Mapping[str, ArrayLike] | None = None,
    times: Mapping[str, ArrayLike] | None = None,
    twin: str | None = None,  # the baseline's A/A twin
) -> tuple[Warning, ...]:
    """All diagnostics that only warn, of one response at one load, as far as its order of runs allows."""
    if baseline not in values:
        raise UsageError(f"no treatment {baseline!r}; there are {', '.join(sorted(values))}")
    counts = np.isfinite(log_table(values)).sum(axis=0)
    kept = {
        name: column for (name, column), count in zip(values.items(), counts, strict=True) if count >= FEWEST_VALUES
    }
    if baseline not in kept:
        return ()
    warnings = autocorrelation(values[baseline])
    warnings += baseline_modes(values[baseline], kept.get(twin) if twin else None)
    if times is not None:
        warnings += drift(kept, times)
    if positions is not None:
        warnings += position_effect(kept, positions)
        warnings += carry_over(kept, previous_treatments(positions))
    rest = without_blocks(log_table(kept))
    return warnings + modes(rest[np.isfinite(rest)])


_LEVEL = 0.01
_SMALLEST_CHANGE = 0.02


def warm_up(first: ArrayLike, second: ArrayLike) -> tuple[Warning, ...]:
    """First half of the measured time against the second, of the response in each run; positive.

    ``"warm-up"`` where they differ by at least 2 % at a level of 1 %.
    """
    a, b = as_sample(first, "first half"), as_sample(second, "second half")
    if len(a) != len(b):
        raise UsageError(f"every run has two halves, got {len(a)} first and {len(b)} second ones")
    d, atol = block_differences(b, a, "ratio")
    interval = hodges_lehmann(d, _LEVEL, atol=atol)
    change = math.expm1(interval.estimate)
    if interval.p > _LEVEL or abs(change) < _SMALLEST_CHANGE:
        return ()
    text = (
        f"the second half of a run reads {change:+.1%} against the first (p = {interval.p:.2g}): the system was still "
        "warming up; lengthen the warm-up"
    )
    return (Warning("warm-up", text),)


def coarse_quantile(
    resolution: float,
    value: float,
    relative_margin: float,
    what: str = "the quantile",
    finer: str = "use per-request data, or a finer histogram (fortio -r)",
) -> tuple[Warning, ...]:
    """A quantile that is known to a bucket only, against the margin that it is to be judged by, 0.05 for 5 %.

    The resolution is the width of the histogram's bucket that holds the quantile, or the step of the clock, in its
    unit; ``"coarse-quantile"`` where that is wider. Of another response than a quantile, ``what`` it is and what makes
    it ``finer``.
    """
    if not (resolution >= 0 and value > 0 and relative_margin > 0):
        raise UsageError(
            f"need resolution >= 0, value > 0 and margin > 0, got {resolution}, {value}, {relative_margin}"
        )
    if resolution <= relative_margin * value:
        return ()
    text = f"{what} is known to {resolution / value:.1%} only, the margin is {relative_margin:.1%}: {finer}"
    return (Warning(COARSE_QUANTILE, text),)


def repeated_values(values: ArrayLike, *, share: float = 0.5) -> tuple[Warning, ...]:
    """Values of different runs that repeat because the meter cannot tell them apart: fewer than a share are different.

    Nothing where all values are zero (a structural zero).
    """
    sample = np.sort(as_sample(values))
    tolerance = RESOLUTION * float(np.abs(sample).max())
    different = 1 + int((np.diff(sample) > tolerance).sum())
    if not sample.any() or different >= share * len(sample):
        return ()
    text = f"{len(sample)} runs show {different} different values: the meter is too coarse for ranks; use a finer one"
    return (Warning("repeated-values", text),)


def varying_factors(groups: Sequence[Hashable], factors: Mapping[str, Sequence[Hashable]]) -> tuple[Warning, ...]:
    """Factors that should be the same for all runs of a group, and are not (image, node, version).

    The group of each run is its treatment, or its treatment and load; a factor has a value of each run.
    """
    warnings = []
    for factor, levels in factors.items():
        if len(levels) != len(groups):
            raise UsageError(f"factor {factor!r} has {len(levels)} values for {len(groups)} runs")
        seen: dict[Hashable, Counter[Hashable]] = {}
        for group, level in zip(groups, levels, strict=True):
            seen.setdefault(group, Counter())[level] += 1
        for group, counts in seen.items():
            if len(counts) > 1:
                listed = ", ".join(f"{level} ({n})" for level, n in counts.items())
                text = (
                    f"{factor} varies inside {group}: {listed}; its effect is mixed with the noise: fix it, or "
                    "make it a treatment"
                )
                warnings.append(Warning("varying-factor", text))
    return tuple(warnings)
