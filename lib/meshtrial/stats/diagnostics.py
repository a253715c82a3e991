"""What could be wrong with a study although its p-values look fine.

Diagnostics warn and never change a verdict, with one exception: if block differences depend on each other, no exact
test is valid, and the family itself asks for that (`dependent_blocks`, `all_dependent`).

Each looks at one response at one load. Values are positive and analysed as logs; a family may also ask with
``scale="difference"``. Randomised blocks protect the test from drift and position; those warnings say how to make the
next study sharper. Blocks do not protect from carry-over, from two kinds of runs, or from a treatment that reacts to
the machine more than its baseline. All p-values are large-sample approximations at a level of 1 %, which suffices for
warnings.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from meshtrial.stats.contrast import block_differences
from meshtrial.stats.intervals import hodges_lehmann
from meshtrial.stats.ranktests import RESOLUTION, FloatArray, as_sample, random_orders
from meshtrial.vocabulary import COARSE_QUANTILE, Scale, Warning

# There are a dozen diagnostics per response: at 5 %, most sound studies would carry a warning.
LEVEL = 0.01
# Fewest blocks whose neighbours are compared.
FEWEST_BLOCKS = 8
# Fewest values of a treatment that is examined.
FEWEST_VALUES = 3


def _warned(code: str, p: float, text: str) -> tuple[Warning, ...]:
    return (Warning(code, text),) if p <= LEVEL else ()


def log_table(values: Mapping[str, ArrayLike], scale: Scale = "ratio") -> FloatArray:
    """Return a (blocks, treatments) array on the scale of the analysis, with nan for missing runs."""
    table = np.stack([np.asarray(column, dtype=np.float64) for column in values.values()], axis=1)
    return np.log(np.where(table > 0, table, np.nan)) if scale == "ratio" else table


def _medians(table: FloatArray, axis: int) -> FloatArray:
    # numpy's function for gaps takes twenty times as long, and gaps are rare.
    median = np.nanmedian if np.isnan(table).any() else np.median
    medians: FloatArray = median(table, axis=axis, keepdims=True)
    return medians


def without_treatments(table: FloatArray) -> FloatArray:
    """Return residuals after each treatment's median."""
    return table - _medians(table, axis=0)


def without_blocks(table: FloatArray) -> FloatArray:
    """Return residuals after treatments and blocks: one step of median polish (Tukey 1977)."""
    rest = without_treatments(table)
    return rest - _medians(rest, axis=1)


def change_text(size: float, scale: Scale = "ratio") -> str:
    """Return a change on the scale of the analysis as text: in per cent, or in the response's unit."""
    if scale == "difference":
        return f"{size:+.3g}"
    share = math.expm1(size)
    return f"{share:+.1%}" if abs(share) >= 0.0005 or not share else f"{100 * share:+.1g}%"


def spearman(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Return the rank correlation and its two-sided p-value (t approximation); (0, 1) if either does not vary."""
    if len(x) < 5 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0, 1.0
    from scipy.stats import spearmanr  # takes a moment to load

    correlation = spearmanr(x, y)
    return float(correlation.statistic), float(correlation.pvalue)


def kruskal(groups: Sequence[FloatArray]) -> float:
    """Return the Kruskal-Wallis p-value (chi-square) over groups of three or more; 1.0 with fewer than two groups."""
    large = [g for g in groups if len(g) >= 3]
    if len(large) < 2 or np.ptp(np.concatenate(large)) == 0:
        return 1.0
    from scipy.stats import kruskal as test  # takes a moment to load

    return float(test(*large).pvalue)


def _smallest_p(sizes: Sequence[int]) -> float:
    """Return the smallest p-value of a permutation test over groups of these sizes: that of separate groups."""
    ways = math.factorial(sum(sizes)) / math.prod(map(math.factorial, sizes))
    # Groups of equal size may be exchanged, and the order of all groups may be reversed.
    alike = max(2, math.prod(math.factorial(sizes.count(size)) for size in set(sizes)))
    return alike / ways


def permuted_kruskal(groups: Sequence[FloatArray]) -> float:
    """Return the Kruskal-Wallis p-value by permutation: exact for few permutations, else from 9,999 random ones."""
    from scipy.stats import permutation_test, rankdata  # takes a moment to load

    ranks = rankdata(np.concatenate(groups))
    dealt = np.split(ranks, np.cumsum([len(group) for group in groups])[:-1])

    def statistic(*samples: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        # The part of H that a permutation changes.
        return np.asarray(sum(sample.sum(axis=axis) ** 2 / sample.shape[axis] for sample in samples))

    tested = permutation_test(dealt, statistic, vectorized=True, alternative="greater", rng=0)
    return float(tested.pvalue)


def lag_one(series: FloatArray) -> tuple[float, float]:
    """Return the lag-1 autocorrelation and its one-sided p-value (normal limit: Moran 1948); (0, 1) for few values."""
    n = len(series)
    centred = series - series.mean()
    spread = float((centred**2).sum())
    if n < FEWEST_BLOCKS or spread == 0:
        return 0.0, 1.0
    r = float((centred[1:] * centred[:-1]).sum()) / spread
    sd = (n - 2) / (n * math.sqrt(n - 1))
    return r, float(special.ndtr(-(r + 1 / n) / sd))


# A mode has at least a fifth of the runs; a few shocks are no second mode.
_SMALLEST_SHARE = 0.2
_FEWEST = 12


def separation(values: ArrayLike) -> tuple[float, float]:
    """Return Ashman's D of the best split into two groups (Ashman, Bird & Zepf 1994), and the splitting value.

    D is the distance of the two means in units of the groups' mean spread; 0 below 12 values.
    """
    x = np.sort(np.asarray(values, dtype=np.float64))
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


def _is_of_two_kinds(d: float, n: int) -> bool:
    # At most 1 % of unimodal samples exceed this (normal, t3, uniform and exponential, n = 12 to 200; simulated).
    return n > 0 and d > 3.7 + 52 / n


def modes(values: ArrayLike) -> tuple[Warning, ...]:
    """Warn of two kinds of runs, by residuals without treatments and blocks."""
    x = np.asarray(values, dtype=np.float64)
    d, split = separation(x)
    if not _is_of_two_kinds(d, len(x)):
        return ()
    upper = int((x > split).sum())
    text = (
        f"runs are of two kinds, {len(x) - upper} low and {upper} high (Ashman D = {d:.1f}): find what differs "
        "between them (placement, connection reuse, frequency), and fix it or make it a treatment"
    )
    return (Warning("modes", text),)


def baseline_modes(baseline: ArrayLike, twin: ArrayLike | None = None) -> tuple[Warning, ...]:
    """Warn of a machine in two states, by the raw values of the baseline and its twin together.

    A state that lasts a whole block is the same for all runs of that block, so residuals do not show it. Only the
    machine makes the raw baseline vary.
    """
    table = log_table({"baseline": baseline} | ({} if twin is None else {"twin": twin}))
    values = table[np.isfinite(table)]
    d, split = separation(values)
    if not _is_of_two_kinds(d, len(values)):
        return ()
    high = values > split
    upper, apart = int(high.sum()), float(values[high].mean() - values[~high].mean())
    text = (
        f"the machine has two states: {len(values) - upper} runs of the baseline and its twin are low and {upper} are "
        f"{change_text(apart)} higher (Ashman D = {d:.1f}); find the cause (programs, frequency, sleep "
        "states) before using absolute numbers"
    )
    return (Warning("baseline-modes", text),)


def autocorrelation(baseline: ArrayLike) -> tuple[Warning, ...]:
    """Warn if the baseline's neighbouring blocks are alike; never with fewer than 8 blocks."""
    table = log_table({"baseline": baseline})
    r, p = lag_one(table[np.isfinite(table)])
    text = (
        f"the baseline resembles its last block (lag-1 {r:.2f}, p = {p:.2g}): the machine changes slowly; pairing "
        "by block removes that, but unpaired comparisons of these runs would be wrong"
    )
    return _warned("autocorrelation", p, text)


def _known_differences(treatment: ArrayLike, baseline: ArrayLike, scale: Scale) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the block differences of two treatments, and the mask of the finite ones."""
    table = log_table({"treatment": treatment, "baseline": baseline}, scale)
    with np.errstate(invalid="ignore"):  # both runs of a block rank worst
        d: FloatArray = table[:, 0] - table[:, 1]
    return d, np.isfinite(d)


def dependent_blocks(treatment: ArrayLike, baseline: ArrayLike, *, scale: Scale = "ratio") -> tuple[Warning, ...]:
    """Warn if neighbouring block differences are alike, which invalidates the exact test; never below 8 blocks."""
    d, known = _known_differences(treatment, baseline, scale)
    return dependent_effects(d[known], "the treatment reacts to the machine more than its baseline")


def dependent_effects(blocks: FloatArray, cause: str) -> tuple[Warning, ...]:
    """Warn if neighbouring blocks' effects, one each, are alike; `cause` completes the message."""
    r, p = lag_one(blocks)
    text = (
        f"the effect resembles its last block (lag-1 {r:.2f}, p = {p:.2g}), so its p-value is too small: {cause}; "
        "pause longer between blocks"
    )
    return _warned("dependent-blocks", p, text)


def places_differ(
    treatment: ArrayLike, baseline: ArrayLike, places: Sequence[str], *, scale: Scale = "ratio"
) -> tuple[Warning, ...]:
    """Warn if an effect differs between the places or sessions over which a study was divided.

    Blocks remove a place's level, but not an effect of the place. If effects differ, the estimate of the contrast is a
    mixture that belongs to these places; "no effect anywhere" is still tested exactly. The test uses the Kruskal-Wallis
    statistic under permutations of the blocks over the places. If too few blocks cannot reach the level, that is
    reported, because silence would be read as sameness.
    """
    if len(set(places)) < 2:
        return ()
    d, known = _known_differences(treatment, baseline, scale)
    here = {name: known & (np.array(places) == name) for name in dict.fromkeys(places)}
    groups = {name: d[mask] for name, mask in here.items() if mask.any()}
    if len(groups) < 2:
        return ()
    if _smallest_p([len(values) for values in groups.values()]) > LEVEL:
        sizes = ", ".join(f"{len(values)} in {name}" for name, values in groups.items())
        text = (
            f"too few blocks ({sizes}) to test at {LEVEL:.0%} whether the effect is the same everywhere: look at "
            "each of these separately"
        )
        return (Warning("places-too-few", text),)
    p = permuted_kruskal(list(groups.values()))
    each = ", ".join(f"{change_text(float(np.median(values)), scale)} in {name}" for name, values in groups.items())
    text = (
        f"the effect is not the same everywhere (Kruskal-Wallis p = {p:.2g}): {each}; the estimate is a mixture of "
        "these, so look at each of them, and find what differs"
    )
    return _warned("places-differ", p, text)


# Number of random orders of the blocks in the pooled test; its smallest p-value is well below the level.
_ORDERS = 1999


@lru_cache(maxsize=32)
def _drawn_neighbours(blocks: int) -> NDArray[np.int64]:
    """Return the neighbours in random orders as places (blocks - 1, orders) in a flattened table of all pairs.

    They are the same for every study of this number of blocks, so that verdicts are reproducible.
    """
    orders = random_orders(blocks, _ORDERS)
    return np.ascontiguousarray((blocks * orders[:, :-1] + orders[:, 1:]).T)


def all_dependent(treatments: Sequence[ArrayLike], scale: Scale = "ratio") -> tuple[Warning, ...]:
    """Warn if neighbouring blocks are alike inside the treatments, all of them together.

    What all treatments of a block share (its median) is removed; the rest belongs to the treatment. Treatments with
    slow states of their own resemble their last block a little, which one contrast of ten blocks rarely shows and all
    together do. A permutation test over the order of the blocks, with a fixed seed; never below 8 blocks or 3
    treatments.
    """
    table = log_table({str(i): t for i, t in enumerate(treatments)}, scale) if treatments else np.empty((0, 0))
    if not np.isnan(table).any():  # drop blocks with a run that ranks worst
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
    # The products of neighbours, summed over treatments, are taken from one table of all pairs of blocks.
    pairs = rest @ rest.T
    observed = float(pairs[np.arange(blocks - 1), np.arange(1, blocks)].sum())
    drawn = pairs.take(_drawn_neighbours(blocks)).sum(axis=0)
    p = (1 + int((drawn >= observed - 1e-12).sum())) / (_ORDERS + 1)
    text = (
        f"treatments resemble their own last block (mean lag-1 {observed / rest.shape[1]:.2f}, p = {p:.2g}): they have "
        "slow states of their own, and p-values are too small; pause longer between blocks, or spread them over more "
        "time"
    )
    return _warned("dependent-blocks", p, text)


@dataclass(frozen=True, slots=True)
class Drift:
    """Change of the runs from the first to the last: a straight line through logs, and the test of their ranks."""

    size: float  # of logs
    correlation: float
    p: float


def drift_of(values: Mapping[str, ArrayLike], times: Mapping[str, ArrayLike]) -> Drift:
    """Compare the residuals of all runs with their times, in seconds since the study began."""
    rest = without_treatments(log_table(values)).ravel()
    when = np.stack([np.asarray(times[name], dtype=np.float64) for name in values], axis=1).ravel()
    known = np.isfinite(rest) & np.isfinite(when)
    r, p = spearman(when[known], rest[known])
    if p == 1:
        return Drift(0.0, r, p)
    slope = float(np.polyfit(when[known], rest[known], 1)[0])
    return Drift(slope * float(np.ptp(when[known])), r, p)


def drift(values: Mapping[str, ArrayLike], times: Mapping[str, ArrayLike]) -> tuple[Warning, ...]:
    """Warn of runs that changed over the study."""
    found = drift_of(values, times)
    text = (
        f"runs drift by {change_text(found.size)} over the study (Spearman {found.correlation:+.2f}, p = {found.p:.2g})"
        "; blocks remove that, but look for heat, growing logs or a leak, and keep blocks short"
    )
    return _warned("drift", found.p, text)


def position_effect(values: Mapping[str, ArrayLike], positions: Mapping[str, ArrayLike]) -> tuple[Warning, ...]:
    """Warn if residuals depend on the position of the run in its block."""
    advice = "random order keeps the contrasts fair, but lengthen the pause or the warm-up between runs"
    return _grouped(values, positions, "position", "at position {group:g} of a block", advice)


def carry_over(values: Mapping[str, ArrayLike], previous: Mapping[str, Sequence[str | None]]) -> tuple[Warning, ...]:
    """Warn if residuals depend on the treatment that ran before (`previous_treatments`)."""
    advice = "something outlives that treatment: look for remaining processes and sockets, or pause longer"
    return _grouped(values, previous, "carry-over", "after a run of {group}", advice)


def _grouped(
    values: Mapping[str, ArrayLike], labels: Mapping[str, Any], code: str, where: str, advice: str
) -> tuple[Warning, ...]:
    """Compare residuals, without treatments and blocks, between the runs of each label."""
    rest = without_blocks(log_table(values))
    marks = np.stack([np.array(labels[name], dtype=object) for name in values], axis=1)
    groups: dict[object, list[float]] = {}
    for value, label in zip(rest.ravel().tolist(), marks.ravel().tolist(), strict=True):
        if math.isfinite(value) and label is not None and label == label:
            groups.setdefault(label, []).append(value)
    p = kruskal([np.array(residuals) for residuals in groups.values()])
    if p > LEVEL:
        return ()
    typical = {label: float(np.median(residuals)) for label, residuals in groups.items() if len(residuals) >= 3}
    worst = max(typical, key=lambda label: abs(typical[label]))
    text = f"runs {where.format(group=worst)} differ by {change_text(typical[worst])}"
    return (Warning(code, f"{text} (Kruskal-Wallis p = {p:.2g}): {advice}"),)


def previous_treatments(positions: Mapping[str, ArrayLike]) -> dict[str, list[str | None]]:
    """Return the treatment that ran before each run, from the positions in consecutive blocks.

    A run without a position (nan) precedes no other.
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
    values: Mapping[str, ArrayLike],  # of the response; nan for a missing run
    baseline: str,  # the control treatment
    *,
    # Position in the block; seconds since the study began
    positions: Mapping[str, ArrayLike] | None = None,
    times: Mapping[str, ArrayLike] | None = None,
    twin: str | None = None,  # the baseline's A/A twin
) -> tuple[Warning, ...]:
    """Return the warnings of all diagnostics of one response at one load that the known order of runs allows."""
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


_SMALLEST_CHANGE = 0.02


def warm_up(first: ArrayLike, second: ArrayLike) -> tuple[Warning, ...]:
    """Compare the first half of the measured time with the second, by one positive value of each per run.

    Warn ``"warm-up"`` if they differ by at least 2 % at a level of 1 %.
    """
    a, b = as_sample(first, "first half"), as_sample(second, "second half")
    d, atol = block_differences(b, a, "ratio")
    interval = hodges_lehmann(d, LEVEL, atol=atol)
    change = math.expm1(interval.estimate)
    if interval.p > LEVEL or abs(change) < _SMALLEST_CHANGE:
        return ()
    text = (
        f"the second half of a run differs by {change:+.1%} from the first (p = {interval.p:.2g}): the system was "
        "still warming up; lengthen the warm-up"
    )
    return (Warning("warm-up", text),)


def coarse_quantile(
    resolution: float,
    value: float,
    relative_margin: float,
    what: str = "the quantile",
    finer: str = "use per-request data, or a finer histogram (fortio -r)",
) -> tuple[Warning, ...]:
    """Warn ``"coarse-quantile"`` if a quantile is known less exactly than the margin (0.05 for 5 %) requires.

    `resolution` is the width of the histogram's bucket that has the quantile, or the step of the clock, in the unit of
    `value`. For a response that is no quantile, `what` names it and `finer` says how to make it more exact.
    """
    if resolution <= relative_margin * value:
        return ()
    text = f"{what} is known only to {resolution / value:.1%}, the margin is {relative_margin:.1%}: {finer}"
    return (Warning(COARSE_QUANTILE, text),)


def repeated_values(values: ArrayLike) -> tuple[Warning, ...]:
    """Warn if fewer than half of the values differ, because the measurement is too coarse.

    Values that are all zero (a structural zero) cause no warning.
    """
    sample = np.sort(as_sample(values))
    tolerance = RESOLUTION * float(np.abs(sample).max())
    different = 1 + int((np.diff(sample) > tolerance).sum())
    if not sample.any() or 2 * different >= len(sample):
        return ()
    text = f"{len(sample)} runs show {different} different values: too coarse for ranks; use a finer measurement"
    return (Warning("repeated-values", text),)


def varying_factors(groups: Sequence[Hashable], factors: Mapping[str, Sequence[Hashable]]) -> tuple[Warning, ...]:
    """Warn of factors (image, node, version) that should be the same for all runs of a group and are not.

    `groups` has each run's treatment, or its treatment and load; every factor has one value per run.
    """
    warnings = []
    for factor, levels in factors.items():
        seen: dict[Hashable, Counter[Hashable]] = {}
        for group, level in zip(groups, levels, strict=True):
            seen.setdefault(group, Counter())[level] += 1
        for group, counts in seen.items():
            if len(counts) > 1:
                listed = ", ".join(f"{level} ({n})" for level, n in counts.items())
                text = (
                    f"{factor} varies inside {group}: {listed}; its effect is mixed with the noise; keep it the same, "
                    "or make it a treatment"
                )
                warnings.append(Warning("varying-factor", text))
    return tuple(warnings)
