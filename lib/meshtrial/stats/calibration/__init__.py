"""Error rates of the shipped tests, measured on simulated studies with known truth.

The checks simulate studies, run the shipped test on them, and compare the share of errors with the nominal one,
allowing three Monte-Carlo standard errors. Check 5 is the negative control: the sequential order must fail check 1, or
the checks prove nothing.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.stats.calibration import contrasts, machine, planning, sessions
from meshtrial.stats.calibration.cells import BLOCKS, CheckResult, Rule, check_row
from meshtrial.stats.calibration.contrasts import recorded_noise

__all__ = ["BLOCKS", "CHECKS", "CheckResult", "Rule", "check_row", "recorded_noise", "run_all"]

CHECKS: tuple[Callable[[np.random.Generator, int], Iterator[CheckResult]], ...] = (
    contrasts.false_positives,
    contrasts.coverage,
    contrasts.errors_at_the_margin,
    contrasts.power,
    contrasts.negative_control,
    planning.stopping_rules,
    machine.limits,
    contrasts.agreement,
    machine.own_states,
    machine.foreign_load,
    machine.regimes,
    machine.extended,
    planning.planned_power,
    contrasts.materiality,
    planning.gate,
    contrasts.families,
    contrasts.scales,
    sessions.sessions,
    sessions.levels,
    planning.months,
    planning.budgets,
    machine.slopes,
    contrasts.own_failures,
    sessions.units,
    contrasts.proportional,
)


def run_all(rng_seed: int, repetitions: int = 4000, *, recorded: ArrayLike | None = None) -> tuple[CheckResult, ...]:
    """Run every check with this number of simulated studies per cell.

    Every check has its own random stream, so its size does not change the numbers of the others. `recorded` has
    logs (blocks, treatments) of a recorded A/A study; its residuals are then checked too.
    """
    streams = np.random.SeedSequence(rng_seed).spawn(len(CHECKS) + 1)
    rows: list[CheckResult] = []
    for check, stream in zip(CHECKS, streams, strict=False):
        size = max(20, repetitions // contrasts.AGREEMENT_SHARE) if check is contrasts.agreement else repetitions
        rows += check(np.random.default_rng(stream), size)
    if recorded is not None:
        rows += recorded_noise(recorded, np.random.default_rng(streams[-1]), repetitions)
    return tuple(rows)
