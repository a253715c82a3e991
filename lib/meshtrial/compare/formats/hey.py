"""hey: its text, or with ``-o csv`` one row per request.

Both have seconds with four decimals, so the resolution is 0.1 ms (requester/print.go and report.go of rakyll/hey).
Limits: only the text counts requests without a response. Percentiles and CSV end with the first million requests, by
which hey also divides. Neither contains the requested rate, the connections, or the start of the run. hey counts a
response with an interrupted body as a response (makeRequest in requester/requester.go ignores that error).
"""

import re

from meshtrial.compare.formats.latencies import Reading, Summary, of_percentiles, of_requests, recorded
from meshtrial.compare.formats.source import Format, Source, beginning, with_line
from meshtrial.load.files import InputFileError
from meshtrial.load.recorded import Recorded
from meshtrial.load.result import LoadSettings

_STEP_S = 1e-4
_KEPT = 1_000_000
_COLUMNS = "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read"
_BEGIN = r"^Summary:\s+Total:\s+[\d.]+ secs"
_SUMMARY = re.compile(r"^ *(Total|Slowest|Fastest|Average):\s+([\d.]{1,20}) secs", re.MULTILINE)
_RATE = re.compile(r"^ *Requests/sec:\s+([\d.]{1,20})", re.MULTILINE)
_SIZE = re.compile(r"^ *Size/request:\s+(\d{1,18}) bytes", re.MULTILINE)
_PERCENTILE = re.compile(r"^ *(\d\d)%+ in ([\d.]{1,20}) secs", re.MULTILINE)
_STATUS = re.compile(r"^ *\[(\d{3})\]\s+(\d{1,18}) responses", re.MULTILINE)
_ERROR = re.compile(r"^ *\[(\d{1,18})\]\s+(?!\d+ responses)\S", re.MULTILINE)
_LOOP = (
    "latency is from the send, in a closed loop (limited to a rate by -q); a stall delays the requests that would have "
    "met it (coordinated omission)"
)


def _read_text(source: Source, sample_floor: float) -> Recorded:
    text = source.text
    summary = dict(_SUMMARY.findall(text))
    rate, size = _RATE.search(text), _SIZE.search(text)
    percentiles = {f"p{share}": _reading(source, value) for share, value in _PERCENTILE.findall(text)}
    codes = {code: int(n) for code, n in _STATUS.findall(text)}
    lost = sum(int(n) for n in _ERROR.findall(text.partition("Error distribution:")[2]))
    if lost and not codes:
        raise InputFileError(source.path, f"has no responses; all of its {lost} requests failed")
    if not {"Total", "Slowest", "Average"} <= set(summary) or rate is None or not percentiles or not codes:
        raise InputFileError(source.path, "is hey's text without its end (Status code distribution); it is truncated")
    answered = sum(codes.values())
    good = sum(n for code, n in codes.items() if code < "400")
    lasted, whole = _number(source, summary["Total"]), answered <= _KEPT
    settings = LoadSettings(
        generator="hey",
        actual_rps=_number(source, rate[1]) if whole or not lasted else answered / lasted,
        actual_duration_s=lasted,
        # Only some versions include requests without a response in their rate.
        requests=answered if not lost else None,
        body_bytes=float(size[1]) if size else None,
    )
    bounds = Summary(
        _reading(source, summary["Fastest"]) if "Fastest" in summary else None,
        _reading(source, summary["Average"]) if whole else None,
        _reading(source, summary["Slowest"]),
    )
    return recorded(
        source,
        "hey",
        of_percentiles(source, percentiles, good, sample_floor, bounds),
        settings,
        requests=answered + lost,
        failed=answered - good + lost,
        notes=(f"hey's own percentiles, with a resolution of 0.1 ms; {_LOOP}",),
        further="use hey -o csv, which keeps every request",
    )


def _read_table(source: Source, sample_floor: float) -> Recorded:
    latencies, good, ends = [], [], []
    coded = False
    for row in source.rows("CSV of hey"):
        latency, status, offset = row.number("response-time"), row.integer("status-code"), row.number("offset")
        if latency is None:
            raise row.broken("one row has no response-time")
        coded = status is not None
        latencies.append(latency)
        good.append(status is None or status < 400)
        if offset is not None:
            ends.append(offset + latency)
    lasted = max(ends, default=0.0)
    settings = LoadSettings(generator="hey", actual_rps=len(latencies) / lasted if lasted > 0 else None)
    values = of_requests(source, latencies, good, sample_floor, _STEP_S)
    failed = good.count(False) if coded else None
    note = f"resolution of latencies is 0.1 ms; requests without a response are not in hey's CSV; {_LOOP}"
    return recorded(source, "hey CSV", values, settings, requests=len(latencies), failed=failed, notes=(note,))


def _number(source: Source, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputFileError(source.path, f"is an invalid text of hey: {text} is not a number") from None


def _reading(source: Source, text: str) -> Reading:
    return Reading(_number(source, text), _STEP_S)


TEXT = Format(with_line(_BEGIN), _read_text, once=(_BEGIN, r"^Status code distribution:"))
TABLE = Format(beginning(re.escape(_COLUMNS)), _read_table, once=(f"^{re.escape(_COLUMNS)}",))
