"""fortio's send schedule: planned offsets, lateness, and latency from the schedule.

fortio measures from the actual send, and every connection waits for its answer. So requests that a stall held up look
fast: coordinated omission (G. Tene, "How NOT to measure latency"). Because the schedule is known, this can be
corrected. Every connection is a queue served in order:

    corrected latency = latency + the time for which the connection was still busy after the planned start

- *Catch-up* (fortio's default): every planned send happens, some late. The busy time is read from the log: end of the
  connection's previous request less the planned start, at least 0.
- *No catch-up* (``-nocatchup``): overdue sends are skipped, which leaves a gap in ``iter``. Each is imputed and
  flagged: it would have waited until the blocking request ended, and then taken the median latency of its generator's
  successful requests. That is a lower bound, because a queue forms behind a stall. A skipped send has only a corrected
  latency.
- In both modes, sends at the end that were due while their connection was blocked, and never left because fortio stops
  at the end of the duration, are imputed in the same way.

The generator's own lateness on a free connection is not charged to the target. Go's timers wake up in whole
milliseconds of epoll, so on an idle machine this lateness is uniform between 0 and 1 ms, several times a
sub-millisecond latency. It remains visible as ``actual_start_s - scheduled_start_s``, and :func:`lateness` counts it
separately from the target's.

Events of a stream are sent by the server, and several may be under way at once. One that fell due while its stream was
blocked has the time at which it was due for its start, so its latency needs no correction. An event that started late
was held up by the server's own timers. Planned starts are relative to the stream's first event.

The offsets repeat fortio's arithmetic (periodic.go, ``runOne`` and ``runQPSSetup``) to the nanosecond. Call i of N of a
thread is due (i + i/(N-1)) / (qps/c) after the thread's start. With ``-uniform`` thread t starts after t/qps.
``-jitter`` moves every send by up to a tenth of the wait before it. The drawn amounts are unknown, so the plan is the
one without jitter, and a send that is late by at most that much is on time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from meshtrial.load.quantiles import COLUMNS
from meshtrial.load.result import STREAMS, FortioResult

MIN_LATE_S = 1e-3
_JITTER = 1 / 9  # share of an interval: a tenth of the wait, which is longer after a send that was moved forward
# Requests processed at once, in whole connections, to limit the memory of intermediate results.
TOGETHER = 1 << 20


@dataclass(frozen=True)
class Schedule:
    """The open-rate schedule of one generator."""

    rps: float  # over its threads
    threads: int
    calls_per_thread: int  # after fortio's integer division
    leftover: int = 0  # further calls of thread 0 (only with an exact number of calls)
    uniform: bool = False
    catchup: bool = True
    jitter: bool = False
    streams: bool = False  # its calls are events, which the server sends

    @property
    def interval_s(self) -> float:
        """Seconds between two sends of one connection."""
        return self.threads / self.rps

    @property
    def planned(self) -> int:
        """The number of planned requests."""
        return self.calls_per_thread * self.threads + self.leftover

    @property
    def late_after_s(self) -> float:
        """Seconds after which a send is late: the connection's next send was due, and at least 1 ms."""
        return max(self.interval_s, MIN_LATE_S)

    @property
    def last_send_s(self) -> float:
        """Planned start of the last send, in seconds after the start of the run."""
        # The stretch i/(N-1) puts the last of N calls N intervals after the thread's start.
        first_thread = (self.calls_per_thread + self.leftover) * self.interval_s
        delay = (self.threads - 1) / self.rps if self.uniform else 0.0
        last = max(first_thread, self.calls_per_thread * self.interval_s + delay)
        # The wait between two calls is two intervals if there are only two, and one if there are many.
        wait = self.interval_s * (1 + 1 / max(1, self.calls_per_thread - 1))
        return last + _JITTER * wait if self.jitter else last

    def calls_of(self, thread: pl.Expr) -> pl.Expr:
        """Return the number of planned calls of a thread."""
        return pl.when(thread == 0).then(self.calls_per_thread + self.leftover).otherwise(self.calls_per_thread)

    def offset_ns(self, thread: pl.Expr, iteration: pl.Expr) -> pl.Expr:
        """Return the planned start of a call, in nanoseconds after the start of the run."""
        per_thread = self.rps / self.threads
        i = iteration.cast(pl.Float64)
        due = (i + i / (self.calls_of(thread) - 1)) / per_thread
        offset = (due * 1e9).cast(pl.Int64)
        if not self.uniform:
            return offset
        between = 1.0 / per_thread
        delay = between - (between / self.threads * (self.threads - thread).cast(pl.Float64))
        return offset + (delay * 1e9).cast(pl.Int64)


def schedule_of(result: FortioResult, arguments: Sequence[str] = ()) -> Schedule | None:
    """Return the schedule of a run; None for a closed loop, an endless run, or a file without the settings.

    The rate comes from the command line if it is known, because the file rounds it to nine digits.
    """
    if result.closed_loop or result.generator not in ("fortio", STREAMS) or result.threads < 1:
        return None
    option = argument(arguments, "-qps")
    rps = float(option) if option else result.requested_rps
    if not rps or rps <= 0:
        return None
    flags = {
        "streams": result.generator == STREAMS,
        "uniform": bool(result.uniform),
        "catchup": result.catchup is not False,
        "jitter": bool(result.jitter),
    }
    if result.exactly:
        each, leftover = divmod(result.exactly, result.threads)
        return Schedule(rps, result.threads, each, leftover, **flags) if each > 1 else None
    if not result.requested_duration_s:
        return None
    each = max(2, int(rps * result.requested_duration_s)) // result.threads
    return Schedule(rps, result.threads, each, **flags) if each > 1 else None


def argument(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value of a command-line flag, written ``-flag value`` or ``-flag=value``; None if absent."""
    for i, item in enumerate(arguments):
        if item.startswith(flag + "="):
            return item.partition("=")[2]
        if item == flag and i + 1 < len(arguments):
            return arguments[i + 1]
    return None


def with_schedule(frame: pl.DataFrame, schedule: Schedule | None, start_unix_ns: int, origin_ns: int) -> pl.DataFrame:
    """Add planned start, actual start and corrected latency, and impute sends that never left.

    ``frame`` is in the order of :func:`meshtrial.load.accesslog.read_access_log`. ``start_unix_ns`` is the start of
    this generator's schedule, ``origin_ns`` that of the earliest generator, to which both starts are relative. Without
    a schedule (a closed loop) planned start and corrected latency are null, and nothing is imputed. An imputed row has
    no actual start, latency, ok or code.
    """
    if schedule is not None and schedule.streams:
        return _of_streams(frame, schedule, origin_ns)
    service_s = _service_s(frame)
    return pl.concat(
        [_scheduled(part, schedule, service_s, start_unix_ns, origin_ns) for part in _by_connections(frame)]
    )


def _of_streams(frame: pl.DataFrame, schedule: Schedule, origin_ns: int) -> pl.DataFrame:
    """Return the events with their planned starts, which are relative to the first event of each stream."""
    thread, iteration = pl.col("thread"), pl.col("iter")
    after_first = schedule.offset_ns(thread, iteration) - schedule.offset_ns(thread, pl.lit(0))
    due_ns = pl.col("start_unix_ns").first().over("thread") + after_first
    return frame.select(
        *_columns(
            ((due_ns - origin_ns) / 1e9).alias("scheduled_start_s"),
            ((pl.col("start_unix_ns") - origin_ns) / 1e9).alias("actual_start_s"),
            pl.col("latency_s").alias("corrected_latency_s"),
            pl.lit(False).alias("imputed"),
        )
    )


def _by_connections(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield parts of a frame that is sorted by connection, each with whole connections; at least one part."""
    start, threads = 0, frame["thread"]
    while start == 0 or start < frame.height:
        stop = min(start + TOGETHER, frame.height)
        if stop < frame.height:
            stop = int(threads.search_sorted(threads[stop - 1], "right"))
        yield frame.slice(start, stop - start)
        start = max(stop, 1)


def _scheduled(
    frame: pl.DataFrame, schedule: Schedule | None, service_s: float, start_unix_ns: int, origin_ns: int
) -> pl.DataFrame:
    sent = frame.with_columns(
        ((pl.col("start_unix_ns") - origin_ns) / 1e9).alias("actual_start_s"), pl.lit(False).alias("imputed")
    )
    if schedule is None:
        null = pl.lit(None, pl.Float64)
        return sent.select(*_columns(null.alias("scheduled_start_s"), null.alias("corrected_latency_s")))
    due_ns = schedule.offset_ns(pl.col("thread"), pl.col("iter")) + start_unix_ns
    ended_ns = pl.col("start_unix_ns") + (pl.col("latency_s") * 1e9).cast(pl.Int64)
    # The frame is sorted, so a connection's previous request is the previous row, which is cheaper than grouping.
    free_ns = pl.when(pl.col("thread") == pl.col("thread").shift(1)).then(ended_ns.shift(1))
    busy_s = (free_ns - pl.col("due_ns")).clip(0).fill_null(0) / 1e9
    sent = sent.with_columns(due_ns.alias("due_ns")).with_columns(
        ((pl.col("due_ns") - origin_ns) / 1e9).alias("scheduled_start_s"),
        (busy_s + pl.col("latency_s")).alias("corrected_latency_s"),
    )
    held_up = _held_up(sent, schedule, service_s, start_unix_ns, origin_ns)
    whole = sent.select(*_columns())
    return whole if held_up.is_empty() else pl.concat([whole, held_up]).sort("thread", "iter")


@dataclass(frozen=True)
class Lateness:
    """Late sends by cause."""

    target: int  # the connection would have been busy even with a perfect generator, because answers were late
    generator: int  # the connection would have been free: the generator's timers, or earlier sends that they delayed


def lateness(frame: pl.DataFrame, schedule: Schedule) -> Lateness:
    """Count sends of one generator that left (or, imputed, would have left) too late by the schedule.

    A generator that wakes up late sends overdue requests back to back, so a connection is busy with requests that
    should have ended. The target's lateness alone is the queue of measured latencies if every send were on time:
    wait = max(0, previous wait + previous latency - time between the two planned sends) (Lindley 1952).
    """
    if schedule.streams:
        late = pl.col("actual_start_s") - pl.col("scheduled_start_s") > schedule.late_after_s
        return Lateness(0, frame.filter(pl.col("ok") & late).height)
    service_s = _service_s(frame)
    parts = [_lateness(part, schedule, service_s) for part in _by_connections(frame)]
    return Lateness(sum(part.target for part in parts), sum(part.generator for part in parts))


def _lateness(frame: pl.DataFrame, schedule: Schedule, service_s: float) -> Lateness:
    # An imputed send would have left once its connection was free: its corrected latency less the service time.
    held_up = pl.col("corrected_latency_s") - service_s
    imputed = int(frame.filter("imputed").select((held_up > schedule.late_after_s).sum()).item())
    served = pl.col("latency_s").cum_sum().over("thread") - pl.col("latency_s")
    queue = frame.filter(~pl.col("imputed")).with_columns(served.alias("served"))
    # Lindley's recursion in closed form: a send leaves at the maximum over (earlier plan + latencies since then).
    left = (pl.col("scheduled_start_s") - pl.col("served")).cum_max().over("thread") + pl.col("served")
    waits = queue.select(
        (left - pl.col("scheduled_start_s") > schedule.late_after_s).alias("target"),
        (pl.col("actual_start_s") - pl.col("scheduled_start_s") > schedule.late_after_s).alias("late"),
    )
    target = int(waits["target"].sum())
    return Lateness(target + imputed, waits.filter(pl.col("late") & ~pl.col("target")).height)


def _held_up(
    sent: pl.DataFrame, schedule: Schedule, service_s: float, start_unix_ns: int, origin_ns: int
) -> pl.DataFrame:
    """Return imputed rows for sends that a request before them blocked."""
    following = pl.when(pl.col("thread") == pl.col("thread").shift(-1)).then(pl.col("iter").shift(-1))
    planned = schedule.calls_of(pl.col("thread")).cast(pl.Int64)
    gaps = sent.select(
        "thread",
        (pl.col("iter") + 1).alias("first"),
        pl.coalesce(following, planned).alias("stop"),
        following.is_null().alias("trailing"),
        (pl.col("start_unix_ns") + (pl.col("latency_s") * 1e9).cast(pl.Int64)).alias("free_ns"),
    ).filter(pl.col("stop") > pl.col("first"))
    rows = gaps.with_columns(pl.int_ranges("first", "stop").alias("iter")).explode("iter")
    due = schedule.offset_ns(pl.col("thread"), pl.col("iter")) + start_unix_ns
    rows = rows.with_columns(due.alias("due_ns"))
    # After the last request, only sends due while it blocked were lost; the rest of a stopped run is not missing.
    rows = rows.filter(~pl.col("trailing") | (pl.col("due_ns") <= pl.col("free_ns")))
    wait_s = (pl.col("free_ns") - pl.col("due_ns")).clip(0) / 1e9
    return rows.select(
        *_columns(
            ((pl.col("due_ns") - origin_ns) / 1e9).alias("scheduled_start_s"),
            pl.lit(None, pl.Float64).alias("actual_start_s"),
            pl.lit(None, pl.Float64).alias("latency_s"),
            (wait_s + service_s).alias("corrected_latency_s"),
            pl.lit(None, pl.Boolean).alias("ok"),
            pl.lit(None, sent.schema["code"]).alias("code"),
            pl.lit(True).alias("imputed"),
        )
    )


def _service_s(frame: pl.DataFrame) -> float:
    """Return the median latency of the successful requests, or of all requests if none succeeded."""
    good = frame.select(pl.col("latency_s").filter(pl.col("ok").fill_null(False))).to_series()
    value = (good if good.len() else frame["latency_s"].drop_nulls()).median()
    return float(value) if isinstance(value, int | float) else 0.0


def _columns(*computed: pl.Expr) -> list[pl.Expr]:
    """Return the columns of a scheduled frame in order, with computed ones in place of existing ones."""
    named = {expression.meta.output_name(): expression for expression in computed}
    return [named.get(name, pl.col(name)) for name in COLUMNS if name not in ("slice", "generator")]
