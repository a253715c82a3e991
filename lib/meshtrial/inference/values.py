"""Values of one response by treatment and block, from the tidy table."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def block_values(
    table: pl.DataFrame, load: str, response: str, treatments: Sequence[str], blocks: Sequence[int]
) -> dict[str, FloatArray]:
    """Values of one response by treatment, in the order of the included blocks; NaN where a run has none."""
    rows = table.filter((pl.col("load") == load) & (pl.col("response") == response) & pl.col("included"))
    known = {(b, t): v for b, t, v in rows.select("block", "treatment", "value").iter_rows()}
    return {t: np.array([known.get((b, t), math.nan) for b in blocks], dtype=float) for t in treatments}


def block_column(
    table: pl.DataFrame, load: str, response: str, column: str, treatments: Sequence[str], blocks: Sequence[int]
) -> dict[str, FloatArray]:
    """Another column of the same runs (``position``, ``start_unix_s``, ``bound``), shaped like :func:`block_values`."""
    rows = table.filter((pl.col("load") == load) & (pl.col("response") == response) & pl.col("included"))
    known = {(b, t): v for b, t, v in rows.select("block", "treatment", column).iter_rows() if v is not None}
    return {t: np.array([known.get((b, t), math.nan) for b in blocks], dtype=float) for t in treatments}
