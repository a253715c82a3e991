"""Errors, coverage and power of contrasts and their families."""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshtrial.stats.calibration.cells import (
    ALPHA,
    ARMS,
    BLOCKS,
    PAIRS,
    SCALAR_SHARE,
    TREATMENTS,
    CheckResult,
    adjusted_p,
    any_called,
    check_row,
    differences,
    other_noises,
    own_p,
)
from meshtrial.stats.contrast import Effect, compare_paired
from meshtrial.stats.intervals import hodges_lehmann_rows, signed_rank_p_rows
from meshtrial.stats.multiplicity import holm
from meshtrial.stats.ranktests import FloatArray, signed_rank_p
from meshtrial.stats.simulate import Noise, bootstrap, simulate


def false_positives(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Check 1: A/A contrasts called different, under all sixteen kinds of noise."""
    for rho, drift, shocks, noisier in product((0.0, 0.8), (0.0, 0.6), (0.0, 0.05), (1.0, 4.0)):
        d = differences(0.0, rng, repetitions, noise=Noise(rho=rho, drift=drift, shock_rate=shocks), noisier=noisier)
        cell = f"rho {rho:g}, drift {drift:g}, shocks {shocks:.0%}, treatment noise x{noisier:g}"
        yield check_row("1 false positives", cell, "at most", ALPHA, signed_rank_p_rows(d) <= ALPHA)


def scales(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Effects judged by differences: false positives, coverage, and width when the baseline moves between blocks.

    A proxy adds .4 of the baseline's median, while the baseline moves from block to block (sd 20 %).
    """
    for name, logs in other_noises(BLOCKS, repetitions, rng):
        d = np.exp(logs[:, :, 1]) - np.exp(logs[:, :, 0])
        yield check_row("1 false positives", f"by difference, {name}", "at most", ALPHA, signed_rank_p_rows(d) <= ALPHA)
    shape, added = (repetitions, BLOCKS), 0.4
    baseline = np.exp(rng.normal(0, 0.2, shape))
    own = baseline + added + rng.normal(0, 0.02, shape)
    exact, ratios = hodges_lehmann_rows(own - baseline, ALPHA), hodges_lehmann_rows(np.log(own / baseline), ALPHA)
    yield check_row("2 coverage", "additive effect, by difference", "at least", 1 - ALPHA, exact.holds(added))
    narrower = (exact.high - exact.low) / added < (ratios.high - ratios.low) / math.log(1 + added)
    yield check_row(
        "2 coverage", "additive effect: interval narrower by difference than by ratio", "at least", 0.9, narrower
    )


def coverage(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Check 2: intervals that include the true effect."""
    for effect, noisier in product((1.0, 1.2), (1.0, 4.0)):
        truth = math.log(effect)
        intervals = hodges_lehmann_rows(differences(truth, rng, repetitions, noisier=noisier), ALPHA)
        cell = f"effect {effect - 1:+.0%}, treatment noise x{noisier:g}"
        yield check_row("2 coverage", cell, "at least", 1 - ALPHA, intervals.holds(truth))


def errors_at_the_margin(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Check 3: effects exactly at the margin called `equivalent`, and errors anywhere in a family."""
    quiet = Noise(ar_sd=0.02, tail_sd=0.01, drift=0.02, shock_rate=0.0)  # usual noise hardly ever shows it
    for margin, noise, name in ((1.05, quiet, "low noise"), (1.10, quiet, "low noise"), (1.10, Noise(), "usual noise")):
        half = math.log(margin)
        d = differences(half, rng, repetitions, noise=noise)
        p = np.maximum(signed_rank_p_rows(d + half, "greater"), signed_rank_p_rows(d - half, "less"))
        yield check_row(
            "3 false equivalent",
            f"effect equal to the margin of {margin - 1:.0%}, {name}",
            "at most",
            ALPHA,
            p <= ALPHA,
        )
    for real in (0, 2):
        effects = np.zeros(TREATMENTS)
        effects[1 : 1 + real] = math.log(1.5)
        values = simulate(effects, BLOCKS, repetitions, rng)
        p = np.stack([signed_rank_p_rows(values[:, :, k] - values[:, :, 0]) for k in range(1, TREATMENTS)], axis=1)
        wrong = np.array([(holm(row)[real:] <= ALPHA).any() for row in p])
        cell = f"{TREATMENTS - 1} contrasts, {real} of them real, Holm"
        yield check_row("3 family-wise error", cell, "at most", ALPHA, wrong)


def families(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Step-down max-T over all pairs of five treatments and over contrasts with one: family-wise error and power.

    It is exact if block differences are jointly symmetric about zero. Shocks that affect two treatments only, and
    treatments of unlike skewness, are not; the limits show what that costs. Intervals are not widened for the family:
    in a quarter of the families one excludes zero and is not called. Reports mark it.
    """
    size = max(20, repetitions // 2)
    for n in (6, 8, 10):
        for name, values in other_noises(n, size, rng):
            adjusted = adjusted_p(values, PAIRS)
            yield check_row("3 family-wise error", f"10 pairs, n = {n}, {name}", "at most", ALPHA, any_called(adjusted))
            if name == "heavy tails and shocks":
                marked = any_called(np.where(adjusted > ALPHA, own_p(values, PAIRS), 1.0))
                cell = f"10 pairs, n = {n}, {name}: an interval excludes zero and is not called"
                yield check_row("limit", cell, "more than", ALPHA, marked)
    # A treatment that truly differs must not raise the error rate of the others.
    apart = simulate(np.where(np.arange(ARMS) == 0, math.log(1.5), 0.0), 8, size, rng)
    wrong = any_called(adjusted_p(apart, PAIRS)[:, ARMS - 1 :])
    yield check_row("3 family-wise error", "10 pairs, n = 8, one treatment truly different", "at most", ALPHA, wrong)
    for real in (0, 2):
        effects = np.where((np.arange(TREATMENTS) > 0) & (np.arange(TREATMENTS) <= real), math.log(1.5), 0.0)
        p = adjusted_p(simulate(effects, BLOCKS, size, rng), [(k, 0) for k in range(1, TREATMENTS)])
        cell = f"{TREATMENTS - 1} contrasts, {real} of them real, max-T"
        yield check_row("3 family-wise error", cell, "at most", ALPHA, any_called(p[:, real:]))
    hit = (rng.random((size, 8, ARMS)) < 0.1) * rng.exponential(0.5, (size, 8, ARMS)) * (np.arange(ARMS) < 2)
    wrong = any_called(adjusted_p(rng.normal(0, 0.05, hit.shape) + hit, PAIRS))
    yield check_row("limit", "10 pairs, n = 8, shocks in only two treatments", "at most", 0.10, wrong)
    # Lognormal treatments of growing skewness, shifted so that the differences from the first have a pseudomedian of 0.
    shapes = np.linspace(0.3, 1.5, ARMS)
    drawn = np.exp(shapes * rng.normal(0, 1, (2, 200_000, ARMS)))
    centres = np.median((drawn - drawn[..., :1]).mean(axis=0), axis=0)
    for n in (6, 8):
        skewed = np.exp(shapes * rng.normal(0, 1, (size, n, ARMS))) - centres
        wrong = any_called(adjusted_p(skewed, [(k, 0) for k in range(1, ARMS)]))
        cell = f"4 contrasts, n = {n}, lognormal treatments of unlike skewness"
        yield check_row("limit", cell, "at most", 0.10, wrong)
    for n, least in ((6, 0.45), (8, 0.68), (10, 0.80)):
        # Neighbours are one standard deviation of a difference apart.
        values = rng.normal(0, 1 / math.sqrt(2), (size, n, ARMS)) + np.arange(ARMS)
        is_called = (adjusted_p(values, PAIRS) <= ALPHA).ravel()
        yield check_row("4 power", f"10 pairs of treatments 1 sd apart, n = {n}, max-T", "at least", least, is_called)


def power(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Check 4: power at ten blocks is as stated, and grows with the blocks and with the effect."""
    shown: dict[tuple[int, float], NDArray[np.bool_]] = {}
    for n, effect in ((6, 1.1), (10, 1.05), (10, 1.1), (10, 1.2), (16, 1.1)):
        shown[n, effect] = signed_rank_p_rows(differences(math.log(effect), rng, repetitions, blocks=n)) <= ALPHA
    yield check_row("4 power", "n = 10, effect +10%", "about", 0.62, shown[10, 1.1])
    yield check_row("4 power", "n = 10, effect +20%", "about", 0.89, shown[10, 1.2])
    for less, more, name in (
        ((6, 1.1), (10, 1.1), "effect +10%, n = 10 rather than 6"),
        ((10, 1.1), (16, 1.1), "effect +10%, n = 16 rather than 10"),
        ((10, 1.05), (10, 1.1), "n = 10, effect +10% rather than +5%"),
        ((10, 1.1), (10, 1.2), "n = 10, effect +20% rather than +10%"),
    ):
        yield check_row("4 power grows", name, "more than", float(shown[less].mean()), shown[more])


def negative_control(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Check 5: treatments in sequence must fail check 1, and so must looking after every block."""
    sequential = signed_rank_p_rows(differences(0.0, rng, repetitions, order="sequential")) <= ALPHA
    d = differences(0.0, rng, repetitions, blocks=12)
    peeking = np.any([signed_rank_p_rows(d[:, :n]) <= ALPHA for n in range(6, 13)], axis=0)
    yield check_row("5 negative control", "sequential order", "more than", 0.10, sequential)
    yield check_row("5 negative control", "tested after every block from 6 to 12", "more than", ALPHA + 0.02, peeking)


def proportional(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Check which number is valid beyond its session, for a cost in proportion to the level and for a constant cost.

    The level wanders (AR 0.8, sd 8 %). The interval of the added amount misses the long-run value of a proportional
    cost, and the interval of the ratio misses the long-run value of a constant cost. The long-run value is the
    pseudomedian of independent blocks.
    """
    noise = Noise(tail_sd=0.02, shock_rate=0.0, drift=0.0)
    for times, blocks in product((2.0, 4.0), (10, 16)):
        effects = np.where(np.arange(TREATMENTS) == 1, math.log(times), 0.0)
        far = np.exp(simulate(effects, 1, 100_000, rng, noise=noise))[:, 0]
        values = simulate(effects, blocks, repetitions, rng, noise=noise)
        runs = np.exp(values)
        added = hodges_lehmann_rows(runs[:, :, 1] - runs[:, :, 0], ALPHA)
        ratio = hodges_lehmann_rows(values[:, :, 1] - values[:, :, 0], ALPHA)
        cell = f"cost x{times:g} in proportion to the level, n = {blocks}"
        yield check_row("2 coverage", f"{cell}, ratio", "at least", 1 - ALPHA, ratio.holds(math.log(times)))
        missed = ~added.holds(_pseudomedian(far[:, 1] - far[:, 0]))
        yield check_row("limit", f"{cell}: intervals of the added amount that miss", "more than", ALPHA, missed)
        # The third treatment has no cost of its own: it is given a constant one.
        constant, long_run = runs[:, :, 2] + times - 1, np.log((far[:, 2] + times - 1) / far[:, 0])
        added = hodges_lehmann_rows(constant - runs[:, :, 0], ALPHA)
        ratio = hodges_lehmann_rows(np.log(constant / runs[:, :, 0]), ALPHA)
        cell = f"constant cost of {times - 1:g} times the level, n = {blocks}"
        yield check_row("2 coverage", f"{cell}, added amount", "at least", 1 - ALPHA, added.holds(times - 1))
        missed = ~ratio.holds(_pseudomedian(long_run))
        yield check_row("limit", f"{cell}: intervals of the ratio that miss", "more than", ALPHA, missed)


def _pseudomedian(independent: FloatArray) -> float:
    """Return the median of averages of two independent values."""
    return float(np.median((independent[::2] + independent[1::2]) / 2))


def own_failures(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Runs that fail on their own and rank worst: intervals at a true shift, lost power, and false `saturated`.

    A share f of the runs of both sides fails. A treatment that fails in more than half of the blocks is `saturated` if
    a sign test over blocks also shows that it fails more often than its baseline.
    """
    size, shift = max(20, repetitions // SCALAR_SHARE), 1.0

    def compared(f: float, n: int, sd: float) -> list[Effect]:
        t, b = rng.normal(0.0, sd, (2, size, n))
        t, b = (np.where(rng.random((size, n)) < f, math.inf, values) for values in (t + shift, b))
        return [compare_paired(*study, alpha=ALPHA, scale="difference").effect for study in zip(t, b, strict=True)]

    for f in (0.1, 0.2, 0.3):
        found = compared(f, 12, 1.0)
        for side, missed in (
            ("below", np.array([one.low > shift for one in found])),
            ("above", np.array([one.high < shift for one in found])),
        ):
            cell = f"{f:.0%} of the runs fail on their own, n = 12: the interval misses a true shift, {side} it"
            yield check_row("2 own failures", cell, "at most", ALPHA / 2, missed)
    for n, least in ((8, 0.62), (12, 0.85)):
        is_called = np.array([one.p <= ALPHA for one in compared(0.05, n, 0.01)])
        cell = f"a shift that is otherwise always found, 5% of the runs fail on their own, n = {n}"
        yield check_row("4 power", cell, "at least", least, is_called)
    for n in (6, 8, 10, 12):
        p = np.array([[_sign_p(ours, theirs) for theirs in range(n + 1)] for ours in range(n + 1)])
        for f in (0.1, 0.3, 0.5):
            t, b = rng.random((2, repetitions, n)) < f
            alone = (2 * t.sum(axis=1) > n) & (2 * b.sum(axis=1) <= n)
            tested = p[(t & ~b).sum(axis=1), (b & ~t).sum(axis=1)] <= ALPHA
            cell = f"equal treatments fail in {f:.0%} of their runs, n = {n}: one is called saturated"
            yield check_row("saturated", cell, "at most", ALPHA / 2, alone & tested)
            if f == 0.5:
                cell = f"equal treatments fail in {f:.0%} of their runs, n = {n}: called saturated without the test"
                yield check_row("limit", cell, "more than", ALPHA, alone)
        t, b = rng.random((repetitions, n)) < 0.95, rng.random((repetitions, n)) < 0.05
        is_called = (2 * t.sum(axis=1) > n) & (p[(t & ~b).sum(axis=1), (b & ~t).sum(axis=1)] <= ALPHA)
        cell = f"a treatment fails in 95% of its runs, its baseline in 5%, n = {n}: called saturated"
        yield check_row("4 power", cell, "at least", 0.5 if n == 6 else 0.9, is_called)


def _sign_p(ours: int, theirs: int) -> float:
    """Return the p-value of the sign test if each side alone failed in this many blocks."""
    return signed_rank_p(np.array([1.0] * ours + [-1.0] * theirs))


def materiality(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Effects exactly at the margin called `material`, anywhere in a family of five."""
    half = math.log(1.1)
    effects = np.where(np.arange(TREATMENTS) == 0, 0.0, half)
    values = simulate(effects, BLOCKS, repetitions, rng)
    d = values[:, :, 1:] - values[:, :, :1]
    p = np.stack([signed_rank_p_rows(d[:, :, k] - half, "greater") for k in range(TREATMENTS - 1)], axis=1)
    wrong = np.array([(holm(row) <= ALPHA).any() for row in p])
    yield check_row("3 family-wise error", "material, five effects at the margin of 10%", "at most", ALPHA, wrong)


def agreement(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Check 6: interval and p agree; units and the order of the treatments change nothing, also with ties and zeros."""
    for digits, name in ((None, "continuous"), (2, "rounded to 1 %: ties and zeros")):
        logs = simulate(np.zeros(2), BLOCKS, repetitions, rng)
        values = np.exp(logs) if digits is None else np.maximum(np.round(np.exp(logs), digits), 0.01)
        apart, unit, swapped = [], [], []
        for t, b in zip(values[:, :, 1], values[:, :, 0], strict=True):
            pairs = (t, b), (t * 1e3, b * 1e3), (b, t)
            compared = [compare_paired(*pair) for pair in pairs]
            here, there, back = (one.effect for one in compared)
            apart.append(compared[0].excludes_no_effect != (here.p <= ALPHA))
            unit.append(here.p != there.p or not math.isclose(here.low, there.low, rel_tol=1e-9))
            swapped.append(here.p != back.p or not math.isclose(here.low * back.high, 1.0, rel_tol=1e-9))
        for what, bad in (("interval against p-value", apart), ("another unit", unit), ("treatments swapped", swapped)):
            yield check_row("6 agreement", f"{what}, {name}", "exactly", 0.0, np.array(bad))


def recorded_noise(recorded: ArrayLike, rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Checks 1 and 2 under the residuals of a recorded A/A study, natural logs (blocks, treatments)."""
    values = bootstrap(recorded, np.zeros(2), BLOCKS, repetitions, rng)
    intervals = hodges_lehmann_rows(values[:, :, 1] - values[:, :, 0], ALPHA, atol=1e-12)
    yield check_row("1 false positives", "recorded A/A residuals", "at most", ALPHA, intervals.p <= ALPHA)
    yield check_row("2 coverage", "recorded A/A residuals", "at least", 1 - ALPHA, intervals.holds(0.0))


# Share of the repetitions for the scalar functions, which are compared exactly.
AGREEMENT_SHARE = 10
