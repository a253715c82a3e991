"""What the requests around one moment saw: failures, the longest silence, latencies from the schedule.

Latencies as sent would hide a restart: while nothing answers, nothing is sent (coordinated omission), so only those
from the schedule are given. The same window is taken of runs in which nothing was restarted, at the same time.
"""

import polars as pl

from meshtrial.load import quantiles
from meshtrial.load.quantiles import successful


def responses(requests: pl.DataFrame, begin_s: float, length_s: float, sample_floor: float) -> dict[str, float]:
    """``failed_requests`` of the whole run; ``longest_gap_s`` and ``latency_restart_window_*_s`` of a window of it.

    ``begin_s`` is in the clock of ``actual_start_s``. It is the window's requests that count towards the floor.
    """
    failed = requests.filter(~pl.col("ok").fill_null(True)).height
    due = pl.coalesce("scheduled_start_s", "actual_start_s")
    inside = requests.filter(due.is_between(begin_s, begin_s + length_s, closed="left"))
    answered = successful(inside).len()
    latencies = successful(inside, "corrected_latency_s").to_numpy()
    percentiles = quantiles.exact(latencies, sample_floor, count=answered)
    return {
        "failed_requests": float(failed),
        "longest_gap_s": longest_gap(requests, begin_s, length_s),
        **{f"latency_restart_window_{q}_s": value for q, value in percentiles.items()},
    }


def longest_gap(requests: pl.DataFrame, begin_s: float, length_s: float) -> float:
    """Seconds of the longest time within a window in which no request was answered well, whoever asked."""
    end_s = begin_s + length_s
    ended = pl.col("actual_start_s") + pl.col("latency_s")
    answers = requests.filter(pl.col("ok"), ended.is_between(begin_s, end_s)).select(ended.alias("at"))["at"]
    moments = pl.concat([pl.Series([begin_s]), answers.sort().cast(pl.Float64), pl.Series([end_s])])
    return float(moments.diff().max())  # type: ignore[arg-type]
