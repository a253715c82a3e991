"""ghz's JSON (``-O json``): a summary, and every call of the first million; nanoseconds.

If all calls are in the file, exact quantiles of those without an error are computed. Otherwise ghz's own percentiles
are used, which also exclude errors unless ghz had ``--count-errors`` (runner/reporter.go of bojand/ghz).
Limits: a call's time is that of its end, so the run began up to one latency before the first.
"""

from meshtrial.compare.formats.latencies import (
    Latencies,
    Reading,
    Summary,
    of_percentiles,
    of_requests,
    reading,
    recorded,
)
from meshtrial.compare.formats.source import Format, Source, holding
from meshtrial.load.files import Fields, parse_time_ns
from meshtrial.load.recorded import Recorded
from meshtrial.load.result import LoadSettings

_NS = 1e-9


def _read(source: Source, sample_floor: float) -> Recorded:
    whole = source.fields("JSON of ghz")
    options, calls = whole.inside("options"), whole.objects("details")
    total, count = whole.number("total"), whole.integer("count") or 0
    errors = whole.counts("errorDistribution")
    # A run of fixed duration ends by closing its connections. ghz counts the interrupted calls as errors, at most one
    # per worker.
    closed = sum(n for reason, n in errors.items() if "is closing" in reason)
    under_way = min(closed, options.integer("concurrency") or 0) if whole.text("endReason") == "timeout" else 0
    good = count - sum(errors.values())
    requested = options.number("rps") or options.number("qps") or None
    every = count > 0 and len(calls) == count
    ends = [moment for call in calls if (moment := parse_time_ns(call.text("timestamp") or "")) is not None]
    settings = LoadSettings(
        generator="ghz",
        client="grpc",
        labels=whole.text("name"),
        start_unix_ns=min(ends, default=None),
        closed_loop=requested is None,
        requested_rps=requested,
        actual_rps=whole.number("rps"),
        actual_duration_s=None if total is None else total * _NS,
        requests=count,
        threads=options.integer("connections"),
        users=options.integer("concurrency"),
        timeout_s=None if (timeout := options.number("timeout")) is None else timeout * _NS,
    )
    source_note = "every call is in the file" if every else "ghz's own percentiles"
    waits = "waits for a free worker are not included (coordinated omission), unless ghz had --async"
    return recorded(
        source,
        "ghz" if every else "ghz summary",
        _of_calls(source, calls, sample_floor) if every else _of_summary(source, whole, good, sample_floor),
        settings,
        requests=count - under_way,
        failed=sum(errors.values()) - under_way,
        notes=(f"{source_note}; latency is from the send; {waits}",),
        further="" if every else "ghz keeps every call of the first million in its JSON",
    )


def _of_calls(source: Source, calls: list[Fields], sample_floor: float) -> Latencies:
    latencies, good = [], []
    for call in calls:
        latency = call.number("latency")
        if latency is None:
            raise call.broken("a call has no latency")
        latencies.append(latency * _NS)
        good.append(not call.data.get("error"))
    return of_requests(source, latencies, good, sample_floor, _NS)


def _of_summary(source: Source, whole: Fields, good: int, sample_floor: float) -> Latencies:
    percentiles = {}
    for item in whole.objects("latencyDistribution"):
        share, latency = item.integer("percentage"), item.number("latency")
        if share is not None and latency is not None:
            percentiles[f"p{share}"] = Reading(latency * _NS)
    # The average includes failed calls, so it is left out.
    bounds = Summary(reading(whole, "fastest", _NS), None, reading(whole, "slowest", _NS))
    with_errors = whole.inside("options").flag("count-errors") is True
    return of_percentiles(source, percentiles, good, sample_floor, bounds, failed_inside=with_errors)


FORMAT = Format(holding("latencyDistribution", "statusCodeDistribution", "count"), _read)
