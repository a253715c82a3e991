"""vegeta: every request (``vegeta encode`` to JSON or CSV), its report in JSON, or its histogram; nanoseconds.

The percentiles of the JSON report are estimates of a t-digest, so the requests are the better form (lib/results.go,
lib/metrics.go and lib/histogram.go of tsenart/vegeta). As in vegeta, statuses from 200 to 399 are good.
Limits: no form contains the requested rate (the report's ``rate`` is that of the sends) or the connections.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping

from meshtrial.compare.formats.latencies import (
    of_counts,
    of_percentiles,
    readings,
    recorded,
    recorded_requests,
    summary,
)
from meshtrial.compare.formats.source import Format, Source, beginning, few, holding, several_runs, with_line
from meshtrial.load.files import InputFileError, parse_duration_s, parse_time_ns
from meshtrial.load.recorded import Recorded
from meshtrial.load.result import LoadSettings
from meshtrial.typed import shortened

_NS = 1e-9
_COLUMNS = ("timestamp", "code", "latency", "bytes_out", "bytes_in", "error", "body", "attack", "seq")
_ROW = r"\d{19},\d{1,3},\d+,\d+,\d+,"
_BUCKETS = r"^Bucket +# +% +Histogram *$"
_BUCKET = re.compile(r"^\[([0-9.a-zµ]+), +([0-9.a-zµ]+|\+Inf)\] +(\d{1,18}) ", re.MULTILINE)
_OPEN = "latency is from the send, on an open schedule; a stall delays only requests without a free worker"


def _is_stream(source: Source) -> bool:
    return {"attack", "seq", "code", "timestamp", "latency"} <= set(source.first_line)


def _read_report(source: Source, sample_floor: float) -> Recorded:
    whole = source.fields("JSON report of vegeta")
    latencies, codes = whole.inside("latencies"), whole.counts("status_codes")
    requests = whole.integer("requests")
    if requests is None:
        raise whole.broken("requests is missing")
    good = sum(n for code, n in codes.items() if "200" <= code < "400")
    percentiles = readings(latencies, "{}th", _NS)
    lasted = whole.number("duration")
    settings = LoadSettings(
        generator="vegeta",
        closed_loop=False,
        start_unix_ns=parse_time_ns(whole.text("earliest") or ""),
        actual_rps=whole.number("rate"),
        actual_duration_s=None if lasted is None else lasted * _NS,
        requests=requests,
        body_bytes=whole.inside("bytes_in").number("mean"),
    )
    bounds = summary(latencies, ("min", "mean", "max"), _NS)
    return recorded(
        source,
        "vegeta report",
        of_percentiles(source, percentiles, good, sample_floor, bounds),
        settings,
        requests=requests,
        failed=requests - good,
        notes=(f"vegeta's estimates of percentiles (a t-digest), not exact; {_OPEN}",),
        further="use vegeta encode --to json, which keeps every request",
    )


def _read_requests(source: Source, sample_floor: float) -> Recorded:
    stream = _is_stream(source)
    rows = list(source.lines("stream of vegeta") if stream else source.rows("CSV of vegeta", _COLUMNS))
    latencies, good, starts, sizes = [], [], [], []
    numbered: Counter[tuple[str, int]] = Counter()
    for row in rows:
        latency, code = row.number("latency"), row.integer("code")
        timestamp = row.text("timestamp") or ""
        start = int(timestamp) if re.fullmatch(r"\d{1,19}", timestamp) else parse_time_ns(timestamp)
        if latency is None or code is None or start is None:
            raise row.broken("one request lacks timestamp, code or latency")
        latencies.append(latency * _NS)
        good.append(200 <= code < 400)
        starts.append(start)
        sizes.append(row.number("bytes_in") or 0.0)
        numbered[row.text("attack") or "", row.integer("seq") or 0] += 1
    if not latencies:
        raise InputFileError(source.path, "has no requests")
    _refuse_several(source, numbered)
    lasted = (max(starts) - min(starts)) * _NS
    settings = LoadSettings(
        generator="vegeta",
        labels=rows[0].text("attack"),
        closed_loop=False,
        start_unix_ns=min(starts),
        actual_rps=len(latencies) / lasted if lasted > 0 else None,
        body_bytes=math.fsum(sizes) / len(sizes),
    )
    return recorded_requests(source, "vegeta requests", latencies, good, settings, sample_floor, _NS, _OPEN)


def _refuse_several(source: Source, numbered: Mapping[tuple[str, int], int]) -> None:
    """Refuse several runs: an attack numbers its requests from 0, so no number occurs twice in one run."""
    (attack, number), times = max(numbered.items(), key=lambda item: item[1])
    attacks = list(dict.fromkeys(name for name, _ in numbered))
    if times > 1:
        raise several_runs(source.path, times, f"number {number} of attack {shortened(attack)} occurs {times} times")
    if len(attacks) > 1:
        raise several_runs(source.path, len(attacks), f"the attacks {few(attacks)}")


def _read_histogram(source: Source, sample_floor: float) -> Recorded:
    ends, counts, first = [], [], None
    for low, high, count in _BUCKET.findall(source.text):
        start, end = parse_duration_s(low), math.inf if high == "+Inf" else parse_duration_s(high)
        if start is None or end is None:
            raise InputFileError(source.path, f"is an invalid histogram of vegeta: [{low}, {high}] is not a bucket")
        first = start if first is None else first
        ends.append(end)
        counts.append(int(count))
    if first is None or not math.isinf(ends[-1]):
        raise InputFileError(source.path, "is vegeta's histogram without its end (+Inf); it is truncated")
    return recorded(
        source,
        "vegeta histogram",
        of_counts(source, ends, counts, sample_floor, first),
        LoadSettings(generator="vegeta", closed_loop=False),
        requests=sum(counts),
        failed=None,
        notes=(f"percentiles are interpolated in vegeta's buckets and include failed requests; {_OPEN}",),
        further="its last bucket has no end; give higher buckets to -type='hist[...]', or use vegeta encode",
    )


REPORT = Format(holding("latencies", "requests", "status_codes"), _read_report)
STREAM = Format(_is_stream, _read_requests, stream=True)
TABLE = Format(beginning(_ROW), _read_requests, stream=True)
HISTOGRAM = Format(with_line(_BUCKETS), _read_histogram, once=(_BUCKETS,))
