"""Values of the runs at one load, by treatment and block: the input of every analysis within blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshtrial.lazy import pl
from meshtrial.records.dataset import StudyData
from meshtrial.vocabulary import Scale

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class LoadBlocks:
    """The included runs of one load, by block."""

    runs: pl.DataFrame  # their rows of `runs.parquet`
    blocks: tuple[int, ...]  # in the order of every array

    @classmethod
    def of(cls, table: pl.DataFrame, load: str, blocks: Sequence[int] | None = None) -> LoadBlocks:
        """Return these blocks of a run table, or all that it has at the load."""
        runs = table.filter((pl.col("load") == load) & pl.col("included"))
        return cls(runs, tuple(sorted(runs["block"].unique()) if blocks is None else blocks))

    @cached_property
    def _by_response(self) -> dict[str, pl.DataFrame]:
        return {rows["response"][0]: rows for rows in self.runs.partition_by("response")}

    def values(self, treatments: Sequence[str], response: str, column: str = "value") -> dict[str, FloatArray]:
        """Return one value per block for each treatment, or another column's; NaN for a missing one."""
        rows = self._by_response.get(response, self.runs.clear())
        known = dict(zip(zip(rows["block"], rows["treatment"], strict=True), rows[column], strict=True))
        return {t: np.array([known.get((b, t), math.nan) for b in self.blocks], dtype=float) for t in treatments}

    def ranked(self, treatments: Sequence[str], response: str) -> dict[str, FloatArray]:
        """Return the values that verdicts use, in which a latency of a run that failed on its own is infinite.

        The time of a change that never took effect is infinite too; times of the run's other changes remain.
        """
        ranked = self.values(treatments, response)
        is_of_change = response.startswith("propagation_")
        if not is_of_change and not response.startswith("latency_"):
            return ranked
        rows = self.runs.filter(~pl.col("valid")).select("block", "treatment").unique()
        failed = set(rows.iter_rows())
        for treatment, values in ranked.items():
            if np.isfinite(values).any():  # otherwise no run has enough requests for it
                own = np.array([(block, treatment) in failed for block in self.blocks])
                values[own & np.isnan(values) if is_of_change else own] = math.inf
        return ranked

    def complete(self, treatments: Sequence[str], *responses: str) -> LoadBlocks:
        """Return the blocks in which each treatment has a value of each response."""
        arrays = [array for response in responses for array in self.values(treatments, response).values()]
        # Without any treatment, every block is complete.
        whole = np.logical_and.reduce([np.ones(len(self.blocks), dtype=bool), *map(np.isfinite, arrays)])
        return replace(self, blocks=tuple(block for block, ok in zip(self.blocks, whole, strict=True) if ok))


def block_effects(own: FloatArray, base: FloatArray | None, scale: Scale) -> FloatArray | None:
    """Return one effect per block, logarithms of ratios or differences; without a baseline, of the level itself.

    None if a ratio is not positive. The mean of these is the effect of a session, a place or a study.
    """
    if scale == "difference":
        return own if base is None else own - base
    ratios = own if base is None else own / base
    return np.log(ratios) if (ratios > 0).all() else None


def included_blocks(data: StudyData, load: str) -> LoadBlocks:
    """Return the included blocks of a study at one load."""
    return LoadBlocks.of(data.table, load, data.inclusions[load].blocks)
