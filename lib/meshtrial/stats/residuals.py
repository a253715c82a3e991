"""Residuals of a study's runs, for the diagnostics."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.comparison import Scale
from meshtrial.stats.ranknull import FloatArray

# a dozen diagnostics on every response: at 5 % a sound study would carry a warning more often than not
LEVEL = 0.01


def log_table(values: Mapping[str, ArrayLike], scale: Scale = "ratio") -> tuple[list[str], FloatArray]:
    """Names and a (blocks, arms) array on the scale of the analysis; nan where a run is missing."""
    names = list(values)
    if not names:
        raise UsageError("diagnostics need at least one treatment")
    columns = [np.asarray(values[name], dtype=np.float64) for name in names]
    if len({c.shape for c in columns}) != 1 or columns[0].ndim != 1:
        raise UsageError("every treatment needs one value a block (nan where it has none)")
    table = np.stack(columns, axis=1)
    if scale == "ratio":
        table = np.where(table > 0, table, np.nan)
        table = np.log(table)
    return names, table


def without_arms(table: FloatArray) -> FloatArray:
    """Residuals after each arm's median."""
    rest: FloatArray = table - np.nanmedian(table, axis=0)
    return rest


def without_blocks(table: FloatArray) -> FloatArray:
    """Residuals after arms and blocks: one step of median polish (Tukey 1977)."""
    rest = without_arms(table)
    polished: FloatArray = rest - np.nanmedian(rest, axis=1, keepdims=True)
    return polished


def change_text(size: float, scale: Scale) -> str:
    """A change on the scale of the analysis, as a reader wants it: per cent, or the response's unit."""
    return f"{math.expm1(size):+.1%}" if scale == "ratio" else f"{size:+.3g}"
