"""Nighthawk's own JSON (``--output-format json``): durations as text with an s, 64-bit counts as text.

It contains percentiles of an HdrHistogram with cumulative counts, which are read as buckets like those of its fortio
export (api/client/output.proto and source/client/output_formatter_impl.cc of envoyproxy/nighthawk). The statistic used
is ``benchmark_http_client.request_to_response`` of all workers together, in the result ``global``.
A request failed if it was reset, got no connection, or had a status other than 2xx or 3xx. A request that found the
queue full was not sent (onComplete and onPoolFailure in source/client/benchmark_client_impl.cc).
Limits: rate and connections are per worker; the number of workers is that of the results other than ``global``.
"""

import dataclasses
import re

from meshtrial.compare.formats.latencies import Latencies, of_counts, recorded
from meshtrial.compare.formats.source import Format, Source
from meshtrial.load.files import Fields, parse_duration_s, parse_time_ns
from meshtrial.load.recorded import Recorded
from meshtrial.load.result import LoadSettings

_ID = "benchmark_http_client.request_to_response"
_LABEL = "JSON of Nighthawk"


def _recognises(source: Source) -> bool:
    results = source.document["results"] if source.holds("options", "results") else None
    return isinstance(results, list) and any(isinstance(one, dict) and "statistics" in one for one in results)


def _read(source: Source, sample_floor: float) -> Recorded:
    whole = source.fields(_LABEL)
    options, results = whole.inside("options"), whole.objects("results")
    everything = next((result for result in results if result.text("name") == "global"), None)
    if everything is None:
        raise whole.broken("there is no result named global")
    statistic = _statistic(everything, "request_to_response")
    if statistic is None:
        raise whole.broken(f"global has no statistic {_ID}")
    workers = max(1, len(results) - 1)
    counters = {
        name: counter.integer("value") or 0
        for counter in everything.objects("counters")
        if (name := counter.text("name")) is not None
    }
    answered = sum(n for name, n in counters.items() if re.fullmatch(r"benchmark\.http_[1-5x]xx", name))
    good = sum(counters.get(f"benchmark.http_{family}xx", 0) for family in "23")
    resets = counters.get("benchmark.stream_resets", 0)
    unconnected = counters.get("benchmark.pool_connection_failure", 0)
    sent = counters.get("upstream_rq_total") or answered + resets
    lasted = _seconds(everything, "execution_duration")
    rate, connections = options.number("requests_per_second"), options.integer("connections")
    http2 = options.flag("h2") or options.inside("protocol").text("value") == "HTTP2"
    open_loop = options.flag("open_loop")
    body = _statistic(everything, "response_body_size")
    settings = LoadSettings(
        generator="nighthawk",
        labels=" ".join(map(str, labels)) if isinstance(labels := options.data.get("labels"), list) else None,
        start_unix_ns=parse_time_ns(whole.text("timestamp") or ""),
        closed_loop=False,
        requested_rps=None if rate is None else rate * workers,
        requested_duration_s=_seconds(options, "duration"),
        actual_rps=sent / lasted if lasted else None,
        actual_duration_s=lasted,
        requests=sent,
        # Over HTTP/2 one connection carries all requests.
        threads=None if connections is None else workers * (1 if http2 else connections),
        h2=http2,
        payload_bytes=options.inside("request_options").integer("request_body_size"),
        timeout_s=_seconds(options, "timeout"),
        body_bytes=None if body is None else body.number("raw_mean"),
    )
    sends = (
        "on an open schedule"
        if open_loop
        else "and a send waits for a free connection, so a stall delays others (coordinated omission)"
    )
    return recorded(
        source,
        "nighthawk",
        _latencies(source, statistic, sample_floor),
        settings,
        requests=max(sent, answered + resets) + unconnected,
        failed=answered + resets - good + unconnected,
        notes=(f"percentiles are interpolated in the buckets of Nighthawk; latency is from the send, {sends}",),
    )


def _statistic(result: Fields, name: str) -> Fields | None:
    statistics = result.objects("statistics")
    return next((item for item in statistics if item.text("id") == f"benchmark_http_client.{name}"), None)


def _latencies(source: Source, statistic: Fields, sample_floor: float) -> Latencies:
    ends: list[float] = []
    counts: list[int] = []
    before = 0
    for item in statistic.objects("percentiles"):
        end, count = _seconds(item, "duration"), item.integer("count")
        if end is None or count is None:
            raise item.broken("one percentile lacks duration or count")
        ends.append(end)
        counts.append(count - before)
        before = count
    if not ends or before != statistic.integer("count"):
        raise statistic.broken(f"the percentiles of {_ID} end at {before} of {statistic.data.get('count')!r} requests")
    smallest, mean, largest = (_seconds(statistic, called) for called in ("min", "mean", "max"))
    counted = of_counts(source, ends, counts, sample_floor, smallest_s=smallest, largest_s=largest)
    values = dict(counted.values)
    values |= {} if mean is None else {"latency_mean_s": mean}
    values |= {"latency_max_s": ends[-1] if largest is None else largest}
    return dataclasses.replace(counted, values=values)


def _seconds(fields: Fields, name: str) -> float | None:
    """Return a duration in the notation of protobuf: ``0.000220359s``."""
    value = fields.data.get(name)
    if value is None:
        return None
    seconds = parse_duration_s(value) if isinstance(value, str) and len(value) < 40 else None
    if seconds is None or seconds > 1e9:
        raise fields.broken(f"{name} is {str(value)[:40]!r}, not a duration")
    return seconds


FORMAT = Format(_recognises, _read)
