"""k6: its summary (``--summary-export``, ``handleSummary``, the form with a version), or its samples (``--out json``).

Times are in milliseconds. ``http_req_duration`` is sending, waiting and receiving, without connecting. Only the part
of a summary with ``expected_response:true`` is used, which excludes failed requests (internal/js/summary-wrapper.js,
internal/lib/summary and output/json of grafana/k6). A gRPC script has ``grpc_req_duration`` instead.
Limits: a summary has the percentiles of ``--summary-trend-stats``, by default without p99; the versioned form
(``--new-machine-readable-summary``) ends at p95. No form contains whether users or a rate were requested; dropped
iterations show that a rate was missed.
"""

import re
from collections.abc import Mapping
from typing import Any

from meshtrial.compare.formats.latencies import (
    of_percentiles,
    reading,
    readings,
    recorded,
    recorded_requests,
    refuse_repeated,
    summary,
)
from meshtrial.compare.formats.source import Format, Source, several_runs
from meshtrial.load.files import Fields, InputFileError, parse_time_ns
from meshtrial.load.recorded import LONGEST_RUN_S, Recorded
from meshtrial.load.result import LoadSettings

_MS = 1e-3
_TRENDS = ("http_req_duration", "grpc_req_duration")
_GOOD = "{expected_response:true}"
_STREAM = "stream of k6"
_LOOP = (
    "latency is from the send; virtual users wait for responses, so a stall delays requests (coordinated omission), "
    "unless the script set an arrival rate, which the file does not contain"
)


def _is_summary(source: Source) -> bool:
    if source.holds("metrics", "root_group"):
        return True
    if not source.holds("results", "metadata") or not isinstance(source.document["metadata"], dict):
        return False
    return not {"k6_version", "k6Version"}.isdisjoint(source.document["metadata"])


def _is_stream(source: Source) -> bool:
    first = source.first_line
    return first.get("type") in ("Metric", "Point") and {"metric", "data"} <= set(first)


def _read_summary(source: Source, sample_floor: float) -> Recorded:
    whole = source.fields("k6 summary")
    metrics = _metrics(whole)
    name = next((name for name in _TRENDS if name in metrics), None)
    if name is None:
        raise InputFileError(source.path, f"is a k6 summary without {' or '.join(_TRENDS)}; no request was made")
    expected = metrics.get(name + _GOOD)
    separate = expected is not None and bool(expected.data)
    trend = expected if expected is not None and separate else metrics[name]
    counter, failures = metrics.get("http_reqs"), metrics.get("http_req_failed")
    requests = metrics[name].integer("count")
    if counter is not None and name == _TRENDS[0]:
        requests = counter.integer("count")
    share = None
    if failures is not None and name == _TRENDS[0]:
        share = failures.number("rate") if "rate" in failures.data else failures.number("value")
    if share is not None and not 0 <= share <= 1:
        raise InputFileError(source.path, f"is an invalid k6 summary: the rate of http_req_failed is {share:g}")
    failed = None if share is None or requests is None else round(share * requests)
    lasted = _lasted(whole, counter)
    rate = requests / lasted if requests is not None and lasted else None
    # The name is p(90), or p90 in the versioned form of k6 1.8.
    percentiles = readings(trend, "p({})", _MS) | readings(trend, "p{}", _MS)
    percentiles |= {} if (median := reading(trend, "med", _MS)) is None else {"p50": median}
    metadata = whole.inside("metadata")
    ended = parse_time_ns(metadata.text("generated_at") or "")
    began = ended - round(lasted * 1e9) if ended is not None and lasted and 0 < lasted < LONGEST_RUN_S else None
    good = None if requests is None else requests - (failed or 0)
    bounds = summary(trend, ("min", "avg", "max"), _MS)
    latencies = of_percentiles(source, percentiles, good, sample_floor, bounds, failed_inside=not separate)
    settings = LoadSettings(
        generator="k6",
        client="grpc" if name == _TRENDS[1] else None,
        # The key of the versioned form has changed.
        version=metadata.text("k6_version") or metadata.text("k6Version"),
        start_unix_ns=began,
        actual_rps=rate,
        actual_duration_s=lasted,
        requests=requests,
        users=_users(metrics),
        sent_share=_share(*(_count(metrics, name) for name in ("dropped_iterations", "iterations"))),
    )
    return recorded(
        source,
        "k6 summary",
        latencies,
        settings,
        requests=requests,
        failed=failed,
        notes=(f"k6's own percentiles; {_LOOP}",),
        further="run k6 with --summary-trend-stats='avg,med,max,p(90),p(95),p(99)', or with --out json=FILE",
    )


def _metrics(whole: Fields) -> dict[str, Fields]:
    """Return the values of all metrics by name, from any of the three forms."""
    if "results" in whole.data:
        listed = whole.inside("results").objects("metrics")
        return {name: item.inside("values") for item in listed if (name := item.text("name")) is not None}
    metrics = whole.inside("metrics")
    named = {}
    for name in metrics.data:
        item = metrics.inside(name)
        named[name] = item.inside("values") if "values" in item.data else item
    return named


def _lasted(whole: Fields, counter: Fields | None) -> float | None:
    milliseconds = whole.inside("state").number("testRunDurationMs")
    if milliseconds is not None:
        return milliseconds * _MS
    seconds = whole.inside("config").number("duration")
    if seconds is not None:
        return seconds
    count, rate = (None, None) if counter is None else (counter.number("count"), counter.number("rate"))
    return count / rate if count is not None and rate is not None and rate > 0 else None


def _users(metrics: Mapping[str, Fields]) -> int | None:
    """Return the number of virtual users, if it was constant."""
    users = metrics.get("vus_max")
    least, most = (None, None) if users is None else (users.integer("min"), users.integer("max"))
    return most if least == most else None


def _count(metrics: Mapping[str, Fields], name: str) -> float | None:
    return metrics[name].number("count") if name in metrics else None


def _share(dropped: float | None, made: float | None) -> float | None:
    return made / (made + dropped) if dropped and made and dropped > 0 and made > 0 else None


def _read_stream(source: Source, sample_floor: float) -> Recorded:
    name = next((name for name in _TRENDS if f'"{name}"'.encode() in source.data), None)
    if name is None:
        raise InputFileError(source.path, f"is a {_STREAM} without {' or '.join(_TRENDS)}; no request was made")
    latencies, good, ends, protocols, declared = [], [], [], set(), 0
    for line in source.lines(_STREAM, f'"{name}"'.encode()):
        if line.data.get("metric") != name:
            continue
        declared += line.data.get("type") == "Metric"
        if line.data.get("type") != "Point":
            continue
        point = line.inside("data")
        tags = point.inside("tags")
        latency, end = point.number("value"), parse_time_ns(point.text("time") or "")
        if latency is None or end is None:
            raise line.broken(f"one sample of {name} lacks time or value")
        latencies.append(latency * _MS)
        good.append(_is_good(tags.data, grpc=name == _TRENDS[1]))
        ends.append(end)
        protocols.add(tags.text("proto"))
    if declared > 1:
        raise several_runs(source.path, declared, f"the metric {name} is declared {declared} times")
    if not latencies:
        raise InputFileError(source.path, f"has no sample of {name}")
    refuse_repeated(source, ends, latencies)
    starts = [end - round(latency * 1e9) for end, latency in zip(ends, latencies, strict=True) if 0 <= latency < 1e6]
    began = min(starts, default=min(ends))
    lasted = (max(ends) - began) / 1e9
    settings = LoadSettings(
        generator="k6",
        client="grpc" if name == _TRENDS[1] else None,
        start_unix_ns=began,
        actual_rps=len(latencies) / lasted if lasted > 0 else None,
        h2=protocols == {"HTTP/2.0"} if len(protocols) == 1 and None not in protocols else None,
        sent_share=_share(_points(source, "dropped_iterations"), _points(source, "iterations")),
    )
    return recorded_requests(source, "k6 samples", latencies, good, settings, sample_floor, 1e-9, _LOOP)


def _is_good(tags: Mapping[str, Any], *, grpc: bool) -> bool:
    """Return k6's own verdict on a request, else that of its status; 0 is OK for gRPC, and no response for HTTP."""
    if "expected_response" in tags:
        return bool(tags["expected_response"] == "true")
    return re.fullmatch(r"0" if grpc else r"[23]\d\d", str(tags.get("status", ""))) is not None


def _points(source: Source, metric: str) -> float:
    mark = f'"{metric}"'.encode()
    points = (line for line in source.lines(_STREAM, mark) if line.data.get("type") == "Point")
    return sum(line.inside("data").number("value") or 0.0 for line in points if line.data.get("metric") == metric)


SUMMARY = Format(_is_summary, _read_summary)
STREAM = Format(_is_stream, _read_stream, stream=True)
