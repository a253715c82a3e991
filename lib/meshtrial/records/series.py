"""A run second by second: latencies, rate and failures of its requests, CPU and memory of its components.

It is small enough to be kept where the requests are not. Quantiles of a second describe only that second and are never
averaged to a quantile of the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshtrial.lazy import pl
from meshtrial.records.columns import SERIES, Kinds

FILE = "series.parquet"
COLUMNS = Kinds(SERIES)
QUANTILES = {"p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99}
# Requests that must lie beyond a quantile of one second, so that it differs from the largest latency.
_BEYOND = 5


@dataclass(frozen=True)
class UsageSample:
    """The cumulative use of a component at one moment."""

    at_s: float  # seconds after the start of the slice
    cpu_s: float  # CPU seconds so far
    memory_bytes: int | None  # resident memory now


def empty() -> pl.DataFrame:
    """Return the series of a run without any values over time."""
    return pl.DataFrame(schema=COLUMNS)


def of_requests(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the number of requests, of failures by kind, and quantiles, by the second in which requests were sent.

    ``requests`` has the columns of ``latency.parquet``; imputed sends, which never left, do not count. The result has
    the columns :data:`COLUMNS`, without a component, and the measures ``sent``, ``failed``, ``failed KIND``,
    ``p50_s``, ...
    """
    needed = requests.select("slice", "actual_start_s", "latency_s", "ok", "code", "imputed")
    sent = needed.filter(~pl.col("imputed") & pl.col("actual_start_s").is_not_null()).with_columns(
        pl.col("actual_start_s").floor().cast(pl.Int32).alias("second"), pl.col("ok").fill_null(True)
    )
    if sent.is_empty():
        return empty()
    keys = ["slice", "second"]
    good = pl.col("latency_s").filter(pl.col("ok"))
    enough = {name: good.len() * (1 - q) >= _BEYOND for name, q in QUANTILES.items()}
    counted = sent.group_by(keys).agg(
        pl.len().cast(pl.Float64).alias("sent"),
        (~pl.col("ok")).sum().cast(pl.Float64).alias("failed"),
        *(pl.when(enough[n]).then(good.quantile(q, "linear")).alias(n) for n, q in QUANTILES.items()),
    )
    long = counted.unpivot(index=keys, variable_name="measure", value_name="value").drop_nulls("value")
    kinds = (
        sent.filter(~pl.col("ok"))
        .group_by([*keys, "code"])
        .agg(pl.len().cast(pl.Float64).alias("value"))
        .with_columns(pl.format("failed {}", pl.col("code").cast(pl.String)).alias("measure"))
    )
    return _tidy(pl.concat([long, kinds.select(long.columns)]).with_columns(pl.lit("").alias("component")))


def of_samples(samples: Mapping[str, Sequence[UsageSample]], slice_index: int = 0) -> pl.DataFrame:
    """Return CPU and memory of every component between samples, in the columns :data:`COLUMNS`.

    ``cpu_cores`` is the mean since the previous sample, ``memory_bytes`` the value at the sample; ``second`` is that of
    the middle between both samples.
    """
    rows = []
    for component, readings in samples.items():
        for before, after in itertools.pairwise(readings):
            passed = after.at_s - before.at_s
            if passed <= 0:
                continue
            second = int((before.at_s + after.at_s) / 2)
            rows.append((slice_index, second, component, "cpu_cores", (after.cpu_s - before.cpu_s) / passed))
            if after.memory_bytes is not None:
                rows.append((slice_index, second, component, "memory_bytes", float(after.memory_bytes)))
    return _tidy(pl.DataFrame(rows, schema=COLUMNS, orient="row"))


def _tidy(frame: pl.DataFrame) -> pl.DataFrame:
    columns = (pl.col(name).cast(kind) for name, kind in COLUMNS.items())
    return frame.select(columns).sort("slice", "component", "measure", "second")
