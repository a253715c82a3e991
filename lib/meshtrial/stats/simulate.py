"""Studies with a known truth, drawn for many repetitions at once.

A run's log value is the sum of its treatment's effect, an AR(1) process over the runs in time, a linear drift,
heavy-tailed (t3) noise of its own, and now and then a positive shock. The size of the t3 noise (sd 0.055) and of the
shocks (exponential, mean 0.25) were chosen so that the power at ten blocks is about .62 for +10 % and .89 for +20 %.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshtrial.errors import UsageError
from meshtrial.stats.ranktests import FloatArray

Order = Literal["randomised", "sequential"]
_BURN_IN = 40  # 0.8^40 = 1e-4 of the start remains


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of single runs, in natural log units (0.08 is about 8 %)."""

    rho: float = 0.8  # autocorrelation of neighbouring runs in time
    ar_sd: float = 0.08  # stationary standard deviation of the AR(1) part
    drift: float = 0.15  # linear change from the first run to the last
    tail_sd: float = 0.055  # standard deviation of the t noise with 3 degrees of freedom
    # Share of the runs with a shock, and the mean of the exponential shock
    shock_rate: float = 0.05
    shock_mean: float = 0.25

    def __post_init__(self) -> None:
        if not (
            0 <= self.rho < 1 and 0 <= self.shock_rate <= 1 and min(self.ar_sd, self.tail_sd, self.shock_mean) >= 0
        ):
            raise UsageError(f"noise needs 0 <= rho < 1, a rate between 0 and 1 and sizes of at least 0, got {self}")


def simulate(
    # Log effect of each treatment; `ln 1.2` for +20 %. The first is the baseline.
    effects: ArrayLike,
    blocks: int,
    repetitions: int,
    rng: np.random.Generator,
    *,
    noise: Noise | None = None,
    # Randomised complete blocks, or all runs of each treatment in turn: the order that gives false positives
    order: Order = "randomised",
    # Factor on each treatment's own t3 noise, 1 by default; 4 for a treatment four times noisier
    scales: ArrayLike | None = None,
    # Factor on the machine's AR(1) wander for each treatment, 1 by default. If a treatment reacts more than its
    # baseline, block differences inherit the autocorrelation, and no test for exchangeable blocks is exact.
    sensitivities: ArrayLike | None = None,
) -> FloatArray:
    """Draw whole studies: natural logs of the responses, (repetitions, blocks, treatments)."""
    noise = noise or Noise()
    effect = np.asarray(effects, dtype=np.float64)
    treatments = len(effect)
    if treatments < 2 or blocks < 1 or repetitions < 1:
        raise UsageError(
            f"a simulated study needs 2 treatments, a block and a repetition, got {treatments}, {blocks}, {repetitions}"
        )
    scale = np.ones(treatments) if scales is None else np.asarray(scales, dtype=np.float64)
    feels = np.ones(treatments) if sensitivities is None else np.asarray(sensitivities, dtype=np.float64)
    runs = blocks * treatments
    wander = _ar1(repetitions, runs, noise, rng)
    own = rng.standard_t(3, (repetitions, runs)) * (noise.tail_sd / math.sqrt(3))
    common = np.broadcast_to(noise.drift * np.linspace(0, 1, runs), (repetitions, runs))
    hit = rng.random((repetitions, runs)) < noise.shock_rate
    common = common + np.where(hit, rng.exponential(1.0, (repetitions, runs)) * noise.shock_mean, 0.0)
    places = run_places(repetitions, blocks, treatments, order, rng)
    values: FloatArray = effect + feels * _at(wander, places) + scale * _at(own, places) + _at(common, places)
    return values


def run_places(
    repetitions: int, blocks: int, treatments: int, order: Order, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the time index of each run: (repetitions, blocks, treatments)."""
    if order == "randomised":
        within = rng.random((repetitions, blocks, treatments)).argsort(axis=2)
        return np.asarray(within + np.arange(blocks)[:, None] * treatments, dtype=np.int64)
    if order == "sequential":
        return np.broadcast_to(
            np.arange(treatments) * blocks + np.arange(blocks)[:, None], (repetitions, blocks, treatments)
        ).astype(np.int64)
    raise UsageError(f"order must be 'randomised' or 'sequential', got {order!r}")


def bootstrap(
    recorded: ArrayLike,
    effects: ArrayLike,
    blocks: int,
    repetitions: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Draw studies from the residuals of a recorded A/A study instead of from a model.

    Whole blocks are drawn with replacement, which keeps what a block shares. Their runs are assigned to the treatments
    in random order, with replacement if there are more treatments than recorded runs. `recorded` has natural logs of
    identical treatments (``none`` and ``none-aa``), one row per block. The rest is as in `simulate`.
    """
    source = np.asarray(recorded, dtype=np.float64)
    effect = np.asarray(effects, dtype=np.float64)
    if source.ndim != 2 or min(source.shape) < 2 or not np.isfinite(source).all():
        raise UsageError(
            f"an A/A record is at least 2 blocks by 2 identical treatments, finite; got shape {source.shape}"
        )
    width, treatments = source.shape[1], len(effect)
    # Remove the treatments' means: a constant difference is no noise.
    source = source - source.mean(axis=0) + source.mean()
    rows = rng.integers(0, len(source), (repetitions, blocks))
    if treatments <= width:
        columns = rng.random((repetitions, blocks, width)).argsort(axis=2)[:, :, :treatments]
    else:
        columns = rng.integers(0, width, (repetitions, blocks, treatments))
    values: FloatArray = source[rows[:, :, None], columns] + effect
    return values


def _ar1(repetitions: int, runs: int, noise: Noise, rng: np.random.Generator) -> FloatArray:
    steps = rng.normal(0.0, noise.ar_sd * math.sqrt(1 - noise.rho**2), (repetitions, _BURN_IN + runs))
    for t in range(1, _BURN_IN + runs):
        steps[:, t] += noise.rho * steps[:, t - 1]
    return steps[:, _BURN_IN:]


def _at(values: FloatArray, places: NDArray[np.int64]) -> FloatArray:
    taken: FloatArray = np.take_along_axis(values, places.reshape(len(places), -1), axis=1).reshape(places.shape)
    return taken
