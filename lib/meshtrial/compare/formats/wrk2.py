"""wrk2 and wrk: their text with ``--latency``.

wrk2 prints percentiles with two decimals of us, ms or s, and then the spectrum of its HdrHistogram with three decimals
of ms (src/wrk.c and src/hdr_histogram.c of giltene/wrk2). Percentiles in the spectrum are used from there. Its counts
are also used to merge several load generators of one run. wrk2's latency is from the schedule; wrk has no schedule and
no spectrum.
Limits: a send waits for a timer of whole milliseconds, as its README states (on one machine a p50 of 0.15 ms from the
send was 0.99 ms from the schedule). The requested rate (``-R``) and the start of the run are not printed. The first ten
seconds, in which wrk2 calibrates, are in its number of requests but not in its percentiles.

The time-out counters differ. Every two seconds, wrk2 counts connections whose last send was two or more seconds ago
(check_timeouts in src/wrk.c). These may have had their response, so its counter is not used. wrk counts responses
that took longer than its time-out. They are among its requests but not in its percentiles (response_complete in
src/wrk.c of wg/wrk, since 4.0.0).
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence

from meshtrial.compare.formats.latencies import Counts, Latencies, Reading, Summary, of_percentiles, recorded
from meshtrial.compare.formats.source import Format, Source, with_line
from meshtrial.design.responses import QUANTILES
from meshtrial.load.files import InputFileError
from meshtrial.load.recorded import Recorded
from meshtrial.load.result import Bucket, LoadSettings

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
# autocannon's text begins in the same way, but prints connections without threads in the next line.
_BEGIN = r"^Running (\d{1,9})([smh]) test @ (?!.*\n\d+ connections)\S"
_TABLE = re.compile(r"^ *Latency Distribution.*\n((?: *[\d.]+% +[\d.]+[a-z]+ *\n)+)", re.MULTILINE)
_ROW = re.compile(r"^ *(\d{1,3}(?:\.\d{1,3})?)% +(\d{1,12}\.\d\d)(us|ms|s|m|h) *$", re.MULTILINE)
_SPECTRUM = re.compile(r"^ *(\d{1,15}\.\d{3}) +([01]\.\d{6}) +(\d{1,18}) +[\d.inf]+ *$", re.MULTILINE)
_OVERALL = re.compile(r"^ *Latency +(\d{1,12}\.\d\d)(us|ms|s|m|h) +\S+ +(\d{1,12}\.\d\d)(us|ms|s|m|h) ", re.MULTILINE)
_HDR = re.compile(r"#\[Mean += +(\d{1,15}\.\d{3}),.*\n#\[Max += +(\d{1,15}\.\d{3}), Total count += +(\d{1,18})\]")
_DONE = re.compile(
    r"^ *(\d{1,18}) requests in (\d{1,12}\.\d\d)(us|ms|s|m|h), (\d{1,12}\.\d\d)([KMGTP]?)B read", re.MULTILINE
)
_RATE = re.compile(r"^Requests/sec: +(\d{1,18}\.\d\d)", re.MULTILINE)
_CONNECTIONS = re.compile(r"^ *\d+ threads and (\d{1,9}) connections", re.MULTILINE)
_SOCKETS = re.compile(
    r"^ *Socket errors: connect (\d{1,18}), read (\d{1,18}), write (\d{1,18}), timeout (\d{1,18})", re.MULTILINE
)
_STATUS = re.compile(r"^ *Non-2xx or 3xx responses: (\d{1,18})", re.MULTILINE)

_SCHEDULED = (
    "percentiles of wrk2's histogram are from the schedule and include waiting; its timer of whole milliseconds adds "
    "about 1 ms to each, so use differences, because ratios are too small"
)
_CLOSED = (
    "wrk's own percentiles and mean are from the send in a closed loop; where a response took twice a connection's "
    "mean time per request, wrk 4 adds latencies of requests that were never sent"
)
_IDLE = (
    "wrk2's time-out counter is not used, because every 2 s it counts all connections that have not sent, also idle "
    "ones; a request without a response is not counted as failed, but lowers the rate"
)
_LATE = "responses slower than wrk's time-out are counted as failed, and are not in its percentiles"


def _read(source: Source, sample_floor: float) -> Recorded:
    whole = source.text
    # The second table of --u_latency, of uncorrected latency, is not used.
    text = whole.partition("Uncorrected Latency")[0]
    done, rate = _DONE.search(whole), _RATE.search(whole)
    if done is None or rate is None:
        raise InputFileError(source.path, "is wrk's or wrk2's text without its end (Requests/sec); it is truncated")
    table = _TABLE.search(text)
    if table is None:
        raise InputFileError(
            source.path, "has no latency distribution, only a mean; run wrk2 or wrk again with --latency"
        )
    scheduled = "HdrHistogram" in table[0]
    spectrum = _HDR.search(text) if scheduled else None
    complete, lost, timeouts = int(done[1]), 0, 0
    if sockets := _SOCKETS.search(whole):
        *errors, timeouts = map(int, sockets.groups())
        lost = sum(errors)
    status = sum(int(n) for n in _STATUS.findall(whole))
    late = 0 if scheduled else timeouts
    behind = int(spectrum[3]) if spectrum else complete - min(complete, late)
    begin, connections = re.search(_BEGIN, whole, re.MULTILINE), _CONNECTIONS.search(whole)
    lasted = float(done[2]) * _UNITS_S[done[3]]
    settings = LoadSettings(
        generator="wrk2" if scheduled else "wrk",
        closed_loop=not scheduled,
        # Durations in minutes or hours are rounded.
        requested_duration_s=float(begin[1]) if begin and begin[2] == "s" else None,
        actual_rps=float(rate[1]),
        actual_duration_s=lasted,
        requests=complete,
        threads=int(connections[1]) if connections else None,
        body_bytes=float(done[4]) * _BYTES[done[5]] / complete if complete else None,
    )
    notes = [_SCHEDULED if scheduled else _CLOSED]
    if timeouts:
        notes.append(_IDLE if scheduled else _LATE)
    latencies = _latencies(source, text, table[1], spectrum, behind - min(behind, status), sample_floor)
    return recorded(
        source,
        settings.generator,
        dataclasses.replace(latencies, failed_inside=status > 0),
        settings,
        requests=complete + lost,
        # A late response may also have a bad status.
        failed=min(complete, status + late) + lost,
        notes=notes,
    )


def _latencies(
    source: Source, text: str, table: str, spectrum: re.Match[str] | None, good: int, sample_floor: float
) -> Latencies:
    percentiles = {}
    printed = {round(float(share) / 100, 6): _reading(value, unit) for share, value, unit in _ROW.findall(table)}
    rows = _SPECTRUM.findall(text) if spectrum else []
    listed = {float(share): _in_ms(value) for value, share, _ in rows}
    for key, q in QUANTILES.items():
        reading = listed.get(q) or printed.get(q)
        if reading is not None:
            percentiles[key] = reading
    overall = _OVERALL.search(text)
    if spectrum:
        mean, largest = Reading(float(spectrum[1]) / 1e3), _in_ms(spectrum[2])
    elif overall:
        mean, largest = _reading(overall[1], overall[2]), _reading(overall[3], overall[4])
    else:
        raise InputFileError(source.path, "is wrk's text without its line Latency; it is truncated")
    latencies = of_percentiles(source, percentiles, good, sample_floor, Summary(None, mean, largest))
    if spectrum is None or not rows:
        return latencies
    return dataclasses.replace(latencies, pool=_counts(source, rows, int(spectrum[3])))


def _counts(source: Source, rows: Sequence[tuple[str, str, str]], total: int) -> Counts:
    """Return the spectrum as counts. Each line has a value, a share, and the number of requests up to that value."""
    ends = [_in_ms(value) for value, _, _ in rows]
    counted = [0, *(int(count) for _, _, count in rows)]
    starts = [max(0.0, ends[0].value_s - ends[0].width_s), *(end.value_s for end in ends)]
    if counted[-1] != total or starts != sorted(starts) or counted != sorted(counted):
        reason = f"its spectrum decreases, or ends at {counted[-1]} of {total} requests; it is truncated or was edited"
        raise InputFileError(source.path, reason)
    edges = zip(itertools.pairwise(starts), itertools.pairwise(counted), strict=True)
    counts = Counts.of([Bucket(start, end, after - before) for (start, end), (before, after) in edges])
    # A line has the first value up to which its share of requests lies; up to the value before, there are fewer.
    below = {
        end.value_s - end.width_s: math.ceil(float(share) * total - 1e-9) - 1
        for end, (_, share, _) in zip(ends, rows, strict=True)
        if float(share) in QUANTILES.values()
    }
    return counts.narrowed(below)


def _reading(value: str, unit: str) -> Reading:
    # Its clock has a resolution of a microsecond.
    return Reading(float(value) * _UNITS_S[unit], max(1e-6, 0.01 * _UNITS_S[unit]))


def _in_ms(value: str) -> Reading:
    """Return a value of the spectrum; its resolution is the power of two that leaves 2048 to 4095 steps."""
    microseconds = float(value) * 1e3
    width = 2 ** max(0, int(microseconds).bit_length() - 11)
    return Reading(microseconds / 1e6, width / 1e6)


FORMAT = Format(with_line(_BEGIN), _read, once=(r"^Running \d{1,9}[smh] test @ ", r"^Requests/sec:"))
