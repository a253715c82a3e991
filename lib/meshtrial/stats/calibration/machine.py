"""Machines that violate an assumption, and how often the diagnostics detect it."""

from collections.abc import Iterator

import numpy as np

from meshtrial.stats.calibration.cells import (
    ALPHA,
    ARMS,
    BLOCKS,
    SCALAR_SHARE,
    TREATMENTS,
    CheckResult,
    check_row,
    differences,
    other_noises,
)
from meshtrial.stats.diagnostics import all_dependent, dependent_blocks
from meshtrial.stats.growth import block_slopes, slope_over_blocks
from meshtrial.stats.intervals import hodges_lehmann_rows, signed_rank_p_rows
from meshtrial.stats.simulate import simulate
from meshtrial.stats.verdict import DEPENDENT_SDS


def limits(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """What the design does not protect from: a treatment that reacts to the machine's drift more than its baseline.

    Its block differences inherit the autocorrelation, and false positives exceed alpha. `dependent_blocks` finds little
    of it at ten blocks; the remedy is pauses between blocks.
    """
    p = signed_rank_p_rows(differences(0.0, rng, repetitions, feels=4.0))
    yield check_row(
        "limit", "AR(1) drift affects a treatment 4 times as much as its baseline", "more than", ALPHA, p <= ALPHA
    )


def own_states(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Treatments with slow states of their own: how often these are detected, and how often a difference is called
    nevertheless.

    The states wander from block to block (AR(1), rho 0.8, sd 8 %), and nothing differs. Exact tests assume independent
    blocks and call far more than 5 %; a study in which the dependence is found calls nothing. If all treatments wander,
    they show it together; if one does, ten blocks show it in a quarter of the studies.
    """
    size = max(20, repetitions // SCALAR_SHARE)
    for many, name in ((True, "every treatment"), (False, "one treatment")):
        feels = np.ones(TREATMENTS) if many else (np.arange(TREATMENTS) == 1).astype(float)
        wander = rng.normal(0, 1, (size, BLOCKS, TREATMENTS))
        for block in range(1, BLOCKS):
            wander[:, block] = 0.8 * wander[:, block - 1] + 0.6 * wander[:, block]
        values = 0.08 * wander * feels + rng.normal(0, 0.02, wander.shape)
        called = signed_rank_p_rows(values[:, :, 1] - values[:, :, 0]) <= ALPHA
        noticed = np.array(
            [
                bool(all_dependent(list(np.exp(study.T))) or dependent_blocks(np.exp(study[:, 1]), np.exp(study[:, 0])))
                for study in values
            ]
        )
        of = f"slow states of {name}"
        d = values[:, :, 1] - values[:, :, 0]
        far = np.abs(np.median(d, axis=1)) > DEPENDENT_SDS * d.std(axis=1, ddof=1)
        missed = called & (~noticed | far)
        yield check_row("limit", f"{of}: called different, without the dependence test", "more than", ALPHA, called)
        yield check_row("dependent blocks", f"{of}: detected", "at least", 0.75 if many else 0.2, noticed)
        if many:
            yield check_row("dependent blocks", f"{of}: called different", "at most", 0.15, missed)
        else:
            yield check_row("limit", f"{of}: called different", "more than", ALPHA, missed)
    sound = simulate(np.zeros(TREATMENTS), BLOCKS, size, rng)
    false = np.array([bool(all_dependent(list(np.exp(study.T)))) for study in sound])
    yield check_row("dependent blocks", "usual noise: detected although there are none", "at most", 0.02, false)


def foreign_load(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Another program in four blocks of ten, which affects treatments without a proxy only: unchecked and checked.

    Unchecked, baseline and twin answer 30 % faster in those blocks. Checked, their runs fail and the blocks are
    excluded.
    """
    d = differences(0.0, rng, repetitions, blocks=16)
    loaded = rng.random((repetitions, 16)).argsort(axis=1) < 6
    ungated = hodges_lehmann_rows(np.where(loaded, d + 0.3, d)[:, :BLOCKS], ALPHA)
    quiet = np.stack([study[~busy] for study, busy in zip(d, loaded, strict=True)])
    gated = hodges_lehmann_rows(quiet, ALPHA)
    name = "another program that affects only treatments without a proxy"
    yield check_row("limit", f"{name}: intervals that miss, unchecked", "more than", ALPHA, ~ungated.holds(0.0))
    yield check_row("2 coverage", f"{name}: checked", "at least", 1 - ALPHA, gated.holds(0.0))


def regimes(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """One treatment in one of two states 40 % apart, random for every deployment: intervals are wide and valid."""
    d = differences(0.0, rng, repetitions)
    state = np.where(rng.random(d.shape) < 0.5, 0.2, -0.2)
    intervals = hodges_lehmann_rows(d + state, ALPHA)
    cell = "two states of one treatment, random per deployment"
    yield check_row("regimes", f"{cell}: false positives", "at most", ALPHA, intervals.p <= ALPHA)
    yield check_row("regimes", f"{cell}: coverage", "at least", 1 - ALPHA, intervals.holds(0.0))


def extended(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Negative controls: studies that are tested before their end, or extended until significant, err too often."""
    d = differences(0.0, rng, repetitions, blocks=20)
    p = {n: signed_rank_p_rows(d[:, :n]) for n in (7, 10, 15, 20)}
    unfinished = (p[7] <= ALPHA) | (p[10] <= ALPHA)
    added = np.any([p[n] <= ALPHA for n in (10, 15, 20)], axis=0)
    yield check_row(
        "5 negative control", "tested after 7 of 10 blocks and again at the end", "more than", ALPHA, unfinished
    )
    yield check_row(
        "5 negative control", "five blocks added, up to twice, while inconclusive", "more than", ALPHA, added
    )


SIZES = np.array([1.0, 2.0, 3.0, 4.5, 6.0])


def slopes(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Slopes over five sizes where nothing grows: p at most 5 %, and called, which `dependent` slopes are not.

    Noise grows with size. If it is the machine's wander, large sizes feel it more, and neighbouring blocks have similar
    slopes. Ten blocks seldom show that unless the machine's state never returns. Sizes with unlike weight make a skewed
    slope of skewed noise.
    """
    size = max(20, repetitions // SCALAR_SHARE)
    own = block_slopes(SIZES, rng.normal(0.0, 0.1, (repetitions, BLOCKS, ARMS)) * SIZES)
    independent = "independent noise that grows with size: p at most 5 %"
    yield check_row("slopes", independent, "at most", ALPHA, signed_rank_p_rows(own) <= ALPHA)
    for n in (BLOCKS, 16):
        felt = {name: values - values.mean() for name, values in other_noises(n, size, rng) if name in _WANDERING}
        for name, values in felt.items():
            found = [slope_over_blocks(block_slopes(SIZES, study * SIZES), 0.0, ALPHA) for study in values]
            beyond = np.array([one.p <= ALPHA for one in found])
            called = beyond & ~np.array([one.dependent for one in found])
            cell = f"slopes, {name} that grows with size, n = {n}"
            yield check_row("limit", f"{cell}: p at most 5 %", "more than", ALPHA, beyond)
            yield check_row("limit", f"{cell}: called", "more than", ALPHA, called)
    skewed = block_slopes(np.array([0.0, 0.1, 0.3, 1.0]), np.exp(1.5 * rng.normal(size=(repetitions, BLOCKS, 4))))
    cell = "slopes over 0, 100, 300 and 1000, lognormal noise with sigma 1.5"
    yield check_row("limit", cell, "more than", ALPHA, signed_rank_p_rows(skewed) <= ALPHA)


_WANDERING = ("ARMA(1,1)", "random walk")
