"""oha: its JSON (``--output-format json``, formerly ``--json``), or its CSV with one row per request; seconds.

Percentiles are of all responses. With ``--stats-success-breakdown`` they are also given for responses with 2xx, which
are then used (src/printer.rs and src/result_data.rs of hatoo/oha). Requests that were outstanding at the end of a run
of fixed duration (``-z``) are among oha's errors, but are not counted as failures.
Limits: neither form contains the requested rate, the connections, or the start of the run; the CSV has responses only.
"""

import re

from meshtrial.compare.formats.latencies import (
    Summary,
    of_percentiles,
    readings,
    recorded,
    recorded_requests,
    refuse_repeated,
    summary,
)
from meshtrial.compare.formats.source import Format, Source, beginning, holding
from meshtrial.load.recorded import Recorded
from meshtrial.load.result import LoadSettings

_DEADLINE = "aborted due to deadline"
_COLUMNS = "request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status"
_LOOP = (
    "latency is from the send unless oha had --latency-correction; without -q it is a closed loop, in which a stall "
    "delays requests (coordinated omission); the file contains neither"
)


def _read_summary(source: Source, sample_floor: float) -> Recorded:
    whole = source.fields("JSON of oha")
    totals, codes = whole.inside("summary"), whole.counts("statusCodeDistribution")
    errors = whole.counts("errorDistribution")
    answered = sum(codes.values())
    lost = sum(n for reason, n in errors.items() if reason != _DEADLINE)
    good = sum(n for code, n in codes.items() if code < "400")
    separate = bool(whole.data.get("latencyPercentilesSuccessful"))
    listed = whole.inside("latencyPercentilesSuccessful" if separate else "latencyPercentiles")
    settings = LoadSettings(
        generator="oha",
        actual_rps=totals.number("requestsPerSec"),
        actual_duration_s=totals.number("total"),
        requests=answered + sum(errors.values()),
        body_bytes=totals.number("sizePerRequest"),
    )
    # These three are of all responses, even if the percentiles are not.
    alike = not separate or good == answered
    bounds = summary(totals, ("fastest", "average", "slowest"), 1.0) if alike else Summary()
    with_failed, percentiles = not separate and good < answered, readings(listed, "p{}", 1.0)
    latencies = of_percentiles(source, percentiles, good, sample_floor, bounds, failed_inside=with_failed)
    requests, failed = answered + lost, answered - good + lost
    note = f"oha's own percentiles; {_LOOP}"
    return recorded(source, "oha", latencies, settings, requests=requests, failed=failed, notes=(note,))


def _read_table(source: Source, sample_floor: float) -> Recorded:
    latencies, good, ends = [], [], []
    for row in source.rows("CSV of oha"):
        start, latency = row.number("request-start"), row.number("request-duration")
        status = row.integer("status")
        if start is None or latency is None or status is None or start < 0:
            raise row.broken("one row lacks request-start, request-duration or status, or starts before the run")
        latencies.append(latency)
        good.append(status < 400)
        ends.append(start + latency)
    refuse_repeated(source, ends, latencies)
    lasted = max(ends, default=0.0)
    settings = LoadSettings(generator="oha", actual_rps=len(latencies) / lasted if lasted > 0 else None)
    note = f"requests without a response are not in oha's CSV; {_LOOP}"
    return recorded_requests(source, "oha CSV", latencies, good, settings, sample_floor, 1e-9, note)


SUMMARY = Format(holding("summary", "latencyPercentiles", "statusCodeDistribution"), _read_summary)
TABLE = Format(beginning(re.escape(_COLUMNS)), _read_table, once=(f"^{re.escape(_COLUMNS)}",))
