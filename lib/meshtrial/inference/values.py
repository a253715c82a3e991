"""What the runs of one load say, by treatment and block: what every analysis within blocks starts from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from meshtrial.records.dataset import StudyData

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class LoadBlocks:
    """The included runs of one load, by block."""

    runs: pl.DataFrame  # their rows of `runs.parquet`
    blocks: tuple[int, ...]  # in the order of every array

    @classmethod
    def of(cls, table: pl.DataFrame, load: str, blocks: Sequence[int] | None = None) -> LoadBlocks:
        """These blocks of a tidy table, or all that it has at the load."""
        runs = table.filter((pl.col("load") == load) & pl.col("included"))
        return cls(runs, tuple(sorted(runs["block"].unique()) if blocks is None else blocks))

    def values(self, treatments: Sequence[str], response: str, column: str = "value") -> dict[str, FloatArray]:
        """One value a block of each treatment, or what another column says of its run; NaN where there is none."""
        rows = self.runs.filter(pl.col("response") == response).select("block", "treatment", column)
        known = {(block, treatment): value for block, treatment, value in rows.iter_rows()}
        return {t: np.array([known.get((b, t), math.nan) for b in self.blocks], dtype=float) for t in treatments}

    def ranked(self, treatments: Sequence[str], response: str) -> dict[str, FloatArray]:
        """The values that verdicts are of: a latency of a run that failed by itself is infinite, behind every other.

        So is the time until a change is obeyed where it never was; what the run's other changes took stays as it is.
        """
        ranked = self.values(treatments, response)
        is_of_change = response.startswith("propagation_")
        if not is_of_change and not response.startswith("latency_"):
            return ranked
        rows = self.runs.filter(~pl.col("valid")).select("block", "treatment").unique()
        failed = set(rows.iter_rows())
        for treatment, values in ranked.items():
            if np.isfinite(values).any():  # else too few requests for it in any run
                own = np.array([(block, treatment) in failed for block in self.blocks])
                values[own & np.isnan(values) if is_of_change else own] = math.inf
        return ranked

    def complete(self, treatments: Sequence[str], *responses: str) -> LoadBlocks:
        """The blocks in which each of the treatments has a value of each of the responses."""
        arrays = [array for response in responses for array in self.values(treatments, response).values()]
        whole = np.logical_and.reduce([np.isfinite(array) for array in arrays])
        return replace(self, blocks=tuple(block for block, ok in zip(self.blocks, whole, strict=True) if ok))


def included_blocks(data: StudyData, load: str) -> LoadBlocks:
    """The blocks of a study that take part in the inference at one load."""
    return LoadBlocks.of(data.table, load, data.inclusions[load].blocks)
