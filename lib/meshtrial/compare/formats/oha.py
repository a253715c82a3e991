"""What oha writes with ``--output-format json`` (once ``--json``), or with ``csv`` a row a request; seconds.

Its percentiles are of all answers; with ``--stats-success-breakdown`` also of those with a 2xx, which then are taken
(src/printer.rs and src/result_data.rs of hatoo/oha). Requests that were under way when a run by time (``-z``) ended
stand among its errors and are no failures.
Limits: neither form says the asked rate, the connections, or when the run began; the CSV has answers only.
"""

from __future__ import annotations

import re

from meshtrial.compare.formats.latencies import of_percentiles, of_requests, reading, readings, recorded
from meshtrial.compare.formats.source import Format, Source, beginning, holding
from meshtrial.load.files import InputFileError
from meshtrial.load.recorded import Recorded
from meshtrial.load.settings import LoadSettings

_DEADLINE = "aborted due to deadline"
_COLUMNS = "request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status"
_LOOP = (
    "latency runs from the send unless oha had --latency-correction; without -q it is a closed loop, which holds back "
    "requests in a stall (coordinated omission); the file says neither"
)


def _read_summary(source: Source, sample_floor: float) -> Recorded:
    whole = source.fields("JSON of oha")
    summary, codes = whole.inside("summary"), whole.counts("statusCodeDistribution")
    errors = whole.counts("errorDistribution")
    answered = sum(codes.values())
    lost = sum(n for reason, n in errors.items() if reason != _DEADLINE)
    good = sum(n for code, n in codes.items() if code < "400")
    apart = bool(whole.data.get("latencyPercentilesSuccessful"))
    listed = whole.inside("latencyPercentilesSuccessful" if apart else "latencyPercentiles")
    settings = LoadSettings(
        generator="oha",
        actual_rps=summary.number("requestsPerSec"),
        actual_duration_s=summary.number("total"),
        requests=answered + sum(errors.values()),
        body_bytes=summary.number("sizePerRequest"),
    )
    mean, largest = reading(summary, "average", 1.0), reading(summary, "slowest", 1.0)
    return recorded(
        source,
        "oha",
        of_percentiles(
            source,
            readings(listed, "p{}", 1.0),
            good,
            sample_floor,
            mean=mean,
            largest=largest,
            failed_inside=not apart and good < answered,
        ),
        settings,
        requests=answered + lost,
        failed=answered - good + lost,
        notes=(f"oha's own percentiles; {_LOOP}",),
    )


def _read_table(source: Source, sample_floor: float) -> Recorded:
    latencies, good, ends = [], [], []
    for row in source.rows("CSV of oha"):
        start, latency = row.number("request-start"), row.number("request-duration")
        status = row.integer("status")
        if start is None or latency is None or status is None:
            raise row.broken("a row lacks request-start, request-duration or status")
        latencies.append(latency)
        good.append(status < 400)
        ends.append(start + latency)
    if not latencies:
        raise InputFileError(source.path, "is a CSV of oha without a request")
    lasted = max(ends)
    settings = LoadSettings(generator="oha", actual_rps=len(latencies) / lasted if lasted > 0 else None)
    return recorded(
        source,
        "oha CSV",
        of_requests(source, latencies, good, sample_floor, 1e-9),
        settings,
        requests=len(latencies),
        failed=good.count(False),
        notes=(f"requests without an answer are not in oha's CSV; {_LOOP}",),
    )


SUMMARY = Format("oha", holding("summary", "latencyPercentiles", "statusCodeDistribution"), _read_summary)
TABLE = Format("oha CSV", beginning(re.escape(_COLUMNS)), _read_table)
