"""What oha writes with ``--output-format json`` (once ``--json``), or with ``csv`` one row per request; seconds.

Its percentiles are of all answers; with ``--stats-success-breakdown`` also of those with a 2xx, which then are taken
(src/printer.rs and src/result_data.rs of hatoo/oha). Requests that were under way when a run by time (``-z``) ended
stand among its errors and are no failures.
Limits: neither form says the asked rate, the connections, or when the run began; the CSV has answers only.
"""

import re

from meshtrial.compare.formats.latencies import (
    of_percentiles,
    reading,
    readings,
    recorded,
    recorded_requests,
    refuse_repeated,
)
from meshtrial.compare.formats.source import Format, Source, beginning, holding
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
    # These three are of all answers, also where the percentiles are not.
    alike = not apart or good == answered
    smallest, mean, largest = (
        reading(summary, name, 1.0) if alike else None for name in ("fastest", "average", "slowest")
    )
    inside, percentiles = not apart and good < answered, readings(listed, "p{}", 1.0)
    told = of_percentiles(
        source,
        percentiles,
        good,
        sample_floor,
        smallest=smallest,
        mean=mean,
        largest=largest,
        failed_inside=inside,
    )
    requests, failed = answered + lost, answered - good + lost
    note = f"oha's own percentiles; {_LOOP}"
    return recorded(source, "oha", told, settings, requests=requests, failed=failed, notes=(note,))


def _read_table(source: Source, sample_floor: float) -> Recorded:
    latencies, good, ends = [], [], []
    for row in source.rows("CSV of oha"):
        start, latency = row.number("request-start"), row.number("request-duration")
        status = row.integer("status")
        if start is None or latency is None or status is None or start < 0:
            raise row.broken("a row lacks request-start, request-duration or status, or starts before the run")
        latencies.append(latency)
        good.append(status < 400)
        ends.append(start + latency)
    refuse_repeated(source, ends, latencies)
    lasted = max(ends, default=0.0)
    settings = LoadSettings(generator="oha", actual_rps=len(latencies) / lasted if lasted > 0 else None)
    note = f"requests without an answer are not in oha's CSV; {_LOOP}"
    return recorded_requests(source, "oha CSV", latencies, good, settings, sample_floor, 1e-9, note)


SUMMARY = Format("oha", holding("summary", "latencyPercentiles", "statusCodeDistribution"), _read_summary)
TABLE = Format("oha CSV", beginning(re.escape(_COLUMNS)), _read_table, once=(f"^{re.escape(_COLUMNS)}",))
