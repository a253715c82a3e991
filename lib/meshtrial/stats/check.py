"""One measured error rate, coverage or power, held against what it should be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rule = Literal["at most", "at least", "more than", "about", "exactly"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One measured error rate, coverage or power.

    Attributes
    ----------
    check : str
        Number and name of the check in METHOD.md.
    cell : str
        The simulated situation.
    rule : str
        How `observed` must stand to `nominal`.
    nominal, observed : float
        Shares of studies.
    mc_se : float
        Monte-Carlo standard error at the nominal value.
    repetitions : int
        Simulated studies.
    passed : bool
        Whether the rule holds, three standard errors allowed.
    """

    check: str
    cell: str
    rule: Rule
    nominal: float
    observed: float
    mc_se: float
    repetitions: int
    passed: bool


# power is compared with a rounded figure for a noise that METHOD.md describes only in part
_ABOUT = 0.04


def check_row(check: str, cell: str, rule: Rule, nominal: float, hits: NDArray[np.bool_]) -> CheckResult:
    """Judge the share of `hits` by a rule: three Monte-Carlo standard errors are allowed.

    Parameters
    ----------
    check, cell : str
        What was simulated.
    rule : str
        ``"at most"``, ``"at least"``, ``"about"`` (within 0.04 beside the standard errors), ``"more than"`` or
        ``"exactly"`` (no allowance).
    nominal : float
        The share to hold against.
    hits : (repetitions,) bool array
        One outcome a simulated study.
    """
    n = len(hits)
    observed = float(hits.mean())
    se = math.sqrt(nominal * (1 - nominal) / n)
    passed = {
        "at most": observed <= nominal + 3 * se,
        "at least": observed >= nominal - 3 * se,
        "more than": observed > nominal,
        "about": abs(observed - nominal) <= _ABOUT + 3 * se,
        "exactly": observed == nominal,
    }[rule]
    return CheckResult(check, cell, rule, nominal, observed, se, n, passed)
