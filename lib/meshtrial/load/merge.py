"""Requests of several generators as one table.

Merging requests is exact: quantiles of the merged table are those of the concatenated requests, which is
the pooled quantile. Averaging the generators' own quantiles would be neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

COLUMNS: dict[str, pl.DataType] = {
    "slice": pl.Int32(),
    "generator": pl.Int32(),
    "thread": pl.Int32(),
    "iter": pl.Int64(),
    "scheduled_start_s": pl.Float64(),
    "actual_start_s": pl.Float64(),
    "latency_s": pl.Float64(),
    "corrected_latency_s": pl.Float64(),
    "ok": pl.Boolean(),
    "code": pl.String(),
    "imputed": pl.Boolean(),
}


def merge_requests(frames: Sequence[pl.DataFrame], *, slice_index: int = 0) -> pl.DataFrame:
    """One table of all requests, with the generator's number (from 0, in the order given) beside each.

    Parameters
    ----------
    frames : sequence of polars.DataFrame
        From :func:`meshtrial.load.schedule.with_schedule`, one a generator.
    slice_index : int
        From 0.
    """
    marked = [
        frame.with_columns(pl.lit(number).alias("generator"), pl.lit(slice_index).alias("slice"))
        for number, frame in enumerate(frames)
    ]
    return pl.concat([frame.select(pl.col(name).cast(kind) for name, kind in COLUMNS.items()) for frame in marked])


def successful(requests: pl.DataFrame, column: str = "latency_s") -> pl.Series:
    """Latencies that quantiles are taken of: successful requests, and in corrected columns imputed ones."""
    return requests.filter(pl.col("ok").fill_null(True))[column].drop_nulls()
