"""Locust: the table of its statistics (``--csv``, the file ``_stats.csv``), or its JSON (``--json``); milliseconds.

Locust rounds latencies to two digits: to 1 ms below 100 ms, to 10 ms below a second, and so on (locust/stats.py of
locustio/locust). This is the resolution of a percentile. Failed requests are included.
Limits: the table does not contain the start of the run; neither contains the number of users.
"""

import math
from collections import Counter

from meshtrial.compare.formats.latencies import Reading, of_counts, of_percentiles, recorded, summary
from meshtrial.compare.formats.source import Format, Source, beginning, several_runs
from meshtrial.design.responses import PERCENTILES
from meshtrial.load.files import Fields, InputFileError
from meshtrial.load.recorded import Recorded
from meshtrial.load.result import LoadSettings

_MS = 1e-3
_COLUMNS = r"^\"?Type\"?,\"?Name\"?,\"?Request Count\"?,\"?Failure Count"  # Locust 1.0 has quotes around them
_TOTAL = r"^\"?(?:None)?\"?,\"?Aggregated\"?,"
_ALL = "Aggregated"
_LATEST_S = 1e10  # the year 2286
_ROUNDING = "rounded to 1 ms below 100 ms and to two significant digits above"
_LOOP = (
    "latency is from the send; users wait for responses, so a stall delays the requests that would have met it "
    "(coordinated omission)"
)


def _is_json(source: Source) -> bool:
    entries = source.document
    keys = {"num_requests", "response_times", "num_failures"}
    return isinstance(entries, list) and bool(entries) and isinstance(entries[0], dict) and keys <= set(entries[0])


def _read_table(source: Source, sample_floor: float) -> Recorded:
    total = next((row for row in source.rows("table of Locust") if row.text("Name") == _ALL), None)
    if total is None:
        raise InputFileError(source.path, f"is a table of Locust without the row {_ALL}; it is truncated")
    requests, failed = total.integer("Request Count"), total.integer("Failure Count")
    if requests is None or failed is None:
        raise total.broken("Request Count or Failure Count is missing")
    percentiles = {
        key: rounded
        for key, q in PERCENTILES.items()
        if (rounded := _rounded(total, f"{q.label.removeprefix('p')}%")) is not None
    }
    bounds = summary(total, ("Min Response Time", "Average Response Time", "Max Response Time"), _MS)
    settings = LoadSettings(
        generator="locust",
        closed_loop=True,
        actual_rps=total.number("Requests/s"),
        body_bytes=total.number("Average Content Size"),
    )
    return recorded(
        source,
        "Locust table",
        of_percentiles(source, percentiles, requests - failed, sample_floor, bounds),
        settings,
        requests=requests,
        failed=failed,
        notes=(f"Locust's own percentiles, {_ROUNDING}; {_LOOP}",),
        further="set PERCENTILES_TO_REPORT in Locust, or use its --json",
    )


def _read_json(source: Source, sample_floor: float) -> Recorded:
    entries = Fields({"entries": source.document}, source.path, "JSON of Locust").objects("entries")
    counts: Counter[float] = Counter()
    requests, failed, content = 0, 0, 0.0
    names = Counter((entry.text("method"), entry.text("name")) for entry in entries)
    (method, name), times = names.most_common(1)[0]
    if times > 1:
        raise several_runs(source.path, times, f"the entry {method} {name} occurs {times} times")
    for entry in entries:
        requests += entry.integer("num_requests") or 0
        failed += entry.integer("num_failures") or 0
        content += entry.number("total_content_length") or 0.0
        for text, count in entry.counts("response_times").items():
            counts[_milliseconds(entry, text)] += count

    def all_of(name: str, unit: float = 1.0) -> list[float]:
        return [value * unit for entry in entries if (value := entry.number(name)) is not None]

    smallest_s = min(all_of("min_response_time", _MS), default=None)
    largest_s = max(all_of("max_response_time", _MS), default=None)
    starts, ends = all_of("start_time"), all_of("last_request_timestamp")
    if not starts or not counts or not requests:
        raise InputFileError(source.path, "is a JSON of Locust without start_time or response_times")
    if not 0 <= min(starts) < _LATEST_S:
        raise InputFileError(source.path, f"is a JSON of Locust whose start_time is {min(starts):g}")
    lasted = max(ends, default=min(starts)) - min(starts)
    settings = LoadSettings(
        generator="locust",
        closed_loop=True,
        start_unix_ns=round(min(starts) * 1e9),
        actual_rps=requests / lasted if lasted > 0 else None,
        body_bytes=content / requests,
    )
    return recorded(
        source,
        "Locust JSON",
        of_counts(source, *_buckets(counts), sample_floor, first_s=0.0, smallest_s=smallest_s, largest_s=largest_s),
        settings,
        requests=requests,
        failed=failed,
        notes=(f"Locust's latencies, {_ROUNDING}; {_LOOP}",),
    )


def _buckets(counts: Counter[float]) -> tuple[list[float], list[int]]:
    """Return ends of buckets in seconds, and counts; a value stands for half a step on either side."""
    ends: list[float] = []
    totals: list[int] = []
    for value, count in sorted(counts.items()):
        low, high = (max(0.0, value - _step(value) / 2) * _MS, (value + _step(value) / 2) * _MS)
        if low > (ends[-1] if ends else 0.0):
            ends.append(low)
            totals.append(0)
        ends.append(high)
        totals.append(count)
    return ends, totals


def _step(milliseconds: float) -> float:
    """Return the step to which Locust rounds a value."""
    return 1.0 if milliseconds < 100 else 10.0 if milliseconds < 1000 else 100.0 if milliseconds < 10_000 else 1000.0


def _rounded(row: Fields, column: str) -> Reading | None:
    value = None if row.data.get(column) in ("N/A", "") else row.number(column)
    return None if value is None else Reading(value * _MS, _step(value) * _MS)


def _milliseconds(entry: Fields, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e9:
        raise entry.broken(f"response_times contains {text[:40]!r}")
    return value


TABLE = Format(beginning(_COLUMNS), _read_table, once=(_COLUMNS, _TOTAL))
JSON = Format(_is_json, _read_json)
