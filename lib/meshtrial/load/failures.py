"""Failed requests by kind: what the path answered, what did not answer in time, what could not be reached."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from meshtrial.load.accesslog import read_access_log
from meshtrial.load.fortio import TIMEOUT_S

KINDS = ("5xx", "other status", "time-out", "refused or reset")


def failures(requests: pl.DataFrame, timeout_s: float = TIMEOUT_S) -> dict[str, int]:
    """Count failed requests by :data:`KINDS`.

    Parameters
    ----------
    requests : polars.DataFrame
        An access log: ``ok``, ``code`` (an HTTP status, or -1 for fortio's socket error), ``latency_s``.
    timeout_s : float
        The generator's own; a socket error that took this long is a time-out.
    """
    failed = requests.filter(~pl.col("ok"))
    code = pl.col("code").str.extract(r"(-?\d+)", 1).cast(pl.Int64, strict=False).fill_null(-1)
    kind = (
        pl.when(code >= 500)
        .then(pl.lit(KINDS[0]))
        .when(code >= 100)
        .then(pl.lit(KINDS[1]))
        .when(pl.col("latency_s") >= timeout_s * 0.99)
        .then(pl.lit(KINDS[2]))
        .otherwise(pl.lit(KINDS[3]))
    )
    counted = dict(failed.select(kind.alias("kind")).group_by("kind").len().iter_rows())
    return {name: int(counted.get(name, 0)) for name in KINDS}


def failures_of(logs: Iterable[Path]) -> dict[str, int]:
    """The same over several generators' access logs."""
    found = dict.fromkeys(KINDS, 0)
    for log in logs:
        for name, count in failures(read_access_log(log)).items():
            found[name] += count
    return found
