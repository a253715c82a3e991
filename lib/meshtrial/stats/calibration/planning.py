"""Rules of stopping, promised numbers of blocks, and gates."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from meshtrial.stats.calibration.cells import (
    ALPHA,
    BLOCKS,
    SCALAR_SHARE,
    CheckResult,
    adjusted_p,
    any_of,
    check_row,
    differences,
    other_noises,
)
from meshtrial.stats.intervals import IntervalRows, hodges_lehmann_rows, signed_rank_p_rows
from meshtrial.stats.multiplicity import smallest_n
from meshtrial.stats.power import Nights, blocks_for_difference, blocks_for_equivalence, detectable_effect, upper_sd
from meshtrial.stats.ranktests import FloatArray
from meshtrial.stats.simulate import Noise, simulate
from meshtrial.stats.stopping import Precision, TwoLooks


def stopping_rules(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Stopping rules keep their error rates; the precision rule costs at most one point of coverage, in every noise."""
    looks = TwoLooks()
    d = differences(0.0, rng, repetitions, blocks=looks.second)
    spending = signed_rank_p_rows(d[:, : looks.first]) <= looks.alpha_first
    spending |= signed_rank_p_rows(d) <= looks.alpha_second
    yield check_row(
        "stopping: false positives", "two looks: n = 10 at alpha 0.01, n = 16 at alpha 0.04", "at most", ALPHA, spending
    )
    # Targets that are reached at the first look, soon after it, and late: shares of the usual half-width at 12 blocks.
    most = Precision(1.0).n_max
    independent = ("independent noise", rng.normal(0.0, 0.05, (repetitions, most, 2)))
    for name, values in (independent, *other_noises(most, repetitions, rng, arms=2)):
        d = values[:, :, 1] - values[:, :, 0]
        usual = float(np.median(_half_widths(hodges_lehmann_rows(d[:, :12], ALPHA))))
        rules = {share: Precision(share * usual) for share in (0.55, 0.75, 0.95)}
        for (share, rule), held in zip(rules.items(), _held_where_they_stop([*rules.values()], d), strict=True):
            cell = f"target {share:g} of the usual half-width, n from {rule.n_min} to {rule.n_max}, {name}"
            yield check_row("stopping: coverage", cell, "at least", 1 - ALPHA - 0.01, held)
            if name == "ARMA(1,1)" and share == 0.75:
                (early,) = _held_where_they_stop([replace(rule, n_min=8, alpha=ALPHA)], d)
                cell = f"precision from block 8 on at alpha {ALPHA:g}, {name}: intervals that miss"
                yield check_row("5 negative control", cell, "more than", ALPHA, ~early)
    runs = np.exp(values)
    (held,) = _held_where_they_stop([Precision(0.06)], runs[:, :, 1] - runs[:, :, 0], runs[:, :, 0])
    yield check_row("stopping: coverage", f"half-width 6%, differences, {name}", "at least", 1 - ALPHA - 0.01, held)


def _half_widths(intervals: IntervalRows) -> FloatArray:
    return (intervals.high - intervals.low) / 2


def _held_where_they_stop(
    rules: Sequence[Precision], d: FloatArray, baseline: FloatArray | None = None
) -> NDArray[np.bool_]:
    """Whether the interval includes zero (rules, studies) when rules that differ in their target stop.

    `d` are log ratios, or differences with a baseline.
    """
    going, holds = np.ones((len(rules), len(d)), dtype=bool), np.zeros((len(rules), len(d)), dtype=bool)
    for n in range(rules[0].n_min, rules[0].n_max + 1):
        at = np.flatnonzero(going.any(axis=0))
        intervals = hodges_lehmann_rows(d[at, :n], rules[0].alpha)
        half, inside = _half_widths(intervals), intervals.holds(0.0)
        if baseline is None:
            widths = np.expm1(half)
        else:
            widths = half / (np.median(baseline[at, :n], axis=1) + np.maximum(0, intervals.estimate))
        for rule, still, held in zip(rules, going, holds, strict=True):
            stops = still[at] & ((widths <= rule.target) | (n == rule.n_max))
            held[at[stops]] = inside[stops]
            still[at[stops]] = False
    return holds


def _contrasts(count: int) -> str:
    return f"{count} contrast{'s' * (count > 1)}"


def planned_power(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Plans carried out with their own numbers: the requested power was 0.8, with normal noise of known size.

    The minimum detectable effect is computed from the estimated noise, by its upper limit. With the estimate itself its
    power is 0.72 to 0.76.
    """
    for share, m in ((0.5, 1), (1.0, 1), (1.5, 1), (1.0, 5)):
        n = blocks_for_difference(1.0, share, m=m)
        is_called = signed_rank_p_rows(rng.normal(share, 1.0, (repetitions, n))) <= ALPHA / m
        yield check_row(
            "power of a plan", f"difference, margin/sd {share:g}, {_contrasts(m)}, n = {n}", "at least", 0.78, is_called
        )
        n = blocks_for_equivalence(1.0, share, m=m)
        d = rng.normal(0.0, 1.0, (repetitions, n))
        p = np.maximum(signed_rank_p_rows(d + share, "greater"), signed_rank_p_rows(d - share, "less"))
        cell = f"equivalence, margin/sd {share:g}, {_contrasts(m)}, n = {n}"
        yield check_row("power of a plan", cell, "at least", 0.78, p <= ALPHA / m)
    effect = detectable_effect(BLOCKS) or math.inf
    sd = rng.normal(0.0, 1.0, (repetitions, BLOCKS)).std(axis=1, ddof=1)
    promised = effect * sd * upper_sd(1.0, BLOCKS)
    is_called = signed_rank_p_rows(promised[:, None] + rng.normal(0.0, 1.0, (repetitions, BLOCKS))) <= ALPHA
    yield check_row("power of a plan", f"detectable effect reported at {BLOCKS} blocks", "at least", 0.8, is_called)


def _worse(values: FloatArray) -> NDArray[np.bool_]:
    """Return contrasts called slower or more (repetitions, contrasts), from logs (repetitions, blocks, treatments)."""
    contrasts = [(k, 0) for k in range(1, values.shape[2])]
    up = np.stack([hodges_lehmann_rows(values[:, :, k] - values[:, :, 0], ALPHA).estimate > 0 for k, _ in contrasts])
    return np.asarray((adjusted_p(values, contrasts) <= ALPHA) & up.T, dtype=np.bool_)


def gate(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """A CI gate on differences for the worse: its false alarms, and the power that a plan promised.

    A family errs in one direction half as often as in both. Every primary response is a family, so their errors add up;
    independent responses are the worst case.
    """
    for contrasts in (1, 5):
        equal = np.zeros(contrasts + 1)
        apart = [_worse(simulate(equal, BLOCKS, repetitions, rng)).any(axis=1) for _ in range(3)]
        for families, name in enumerate(
            ("one primary response", "two primary responses", "three primary responses"), start=1
        ):
            cell = f"{name}, {_contrasts(contrasts)} each"
            fired = np.any(apart[:families], axis=0)
            yield check_row("gate: false alarms", cell, "at most", families * ALPHA / 2, fired)
    for share, m in ((0.5, 1), (1.0, 1), (1.0, 5)):
        n = blocks_for_difference(1.0, share, m=m)
        # The baseline has no noise, so that every contrast's block differences have the standard deviation 1.
        size = repetitions if m == 1 else max(20, repetitions // SCALAR_SHARE)
        values = rng.normal(0.0, 1.0, (size, n, m + 1)) * (np.arange(m + 1) > 0)
        values[:, :, 1] += share
        cell = f"regression as large as the margin, margin/sd {share:g}, {_contrasts(m)}, n = {n}"
        yield check_row("gate: power of a plan", cell, "at least", 0.78, _worse(values)[:, 0])
    margin = math.log(1.05)
    stopped = [signed_rank_p_rows(differences(margin, rng, repetitions) - margin, "greater") <= ALPHA for _ in range(3)]
    for families in (1, 2, 3):
        cell = f"cost exactly at the margin in {families} primary response{'s' * (families > 1)}, slower:material"
        yield check_row("gate: at the margin", cell, "at most", families * ALPHA, np.any(stopped[:families], axis=0))


NIGHTS = 30


def months(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """False alarms of a month of nightly gates where nothing differs, at the usual level and at one for 5 %."""
    size = max(20, repetitions // SCALAR_SHARE)
    for families in (1, 2, 3):
        nights = Nights(NIGHTS, families, ALPHA)
        small = nights.alpha_for(0.05)
        for alpha, bound in ((ALPHA, nights.any_night), (small, 0.05)):
            blocks = max(BLOCKS, smallest_n(1, alpha))
            fired = np.zeros((size, NIGHTS), dtype=bool)
            for _ in range(families):
                d = differences(0.0, rng, size * NIGHTS, blocks=blocks)
                worse = (signed_rank_p_rows(d) <= alpha) & (d.mean(axis=1) > 0)
                fired |= worse.reshape(fired.shape)
            cell = f"primary responses: {families}, alpha {alpha:.2g}, n = {blocks}"
            yield check_row("gate: a month of nights", cell, "at most", bound, any_of(fired))
            if alpha == ALPHA:
                twice = any_of(fired[:, 1:] & fired[:, :-1])
                bound = nights.twice_running
                yield check_row("gate: a month of nights", f"{cell}, two nights running", "at most", bound, twice)
    d = differences(0.0, rng, size * NIGHTS)
    for share in (0.5, 0.25):
        beyond = (signed_rank_p_rows(d - share * d.std(), "greater") <= ALPHA).reshape(size, NIGHTS)
        cell = f"one primary response, slower:material, margin {share:g} sd of a block difference"
        yield check_row("gate: a month of nights", cell, "at most", 0.05 if share == 0.5 else 0.25, any_of(beyond))


def budgets(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """A cost equal to a fixed budget called `equivalent`: by a margin that follows the baseline, or a declared one.

    The budget is a share of the baseline's usual level, and a floor of the same size. A study that meets a fast
    baseline is judged by the floor, and one that meets a slow baseline by the share: each time the larger one.
    """
    budget, n = 0.25, 12
    for name, rho in (("machine wanders by 16 %", 0.8), ("sessions differ by 16 %", 0.99)):
        values = simulate(np.zeros(2), n, repetitions, rng, noise=Noise(rho=rho, ar_sd=0.16, tail_sd=0.02))
        baseline, treatment = np.exp(values[:, :, 0]), np.exp(values[:, :, 1]) + budget
        by_amount, by_share = (
            np.maximum(signed_rank_p_rows(d + half, "greater"), signed_rank_p_rows(d - half, "less"))
            for d, half in ((treatment - baseline, budget), (np.log(treatment / baseline), math.log1p(budget)))
        )
        followed = np.where(np.median(baseline, axis=1) > 1, by_share, by_amount) <= ALPHA
        cell = f"cost equal to a fixed budget, n = {n}, {name}, margin"
        yield check_row("limit", f"{cell} follows the baseline", "more than", ALPHA, followed)
        yield check_row("3 false equivalent", f"{cell} of a declared level", "at most", ALPHA, by_amount <= ALPHA)
