"""What wrk2 and wrk print with ``--latency``.

wrk2 prints percentiles with two decimals of us, ms or s, and below them the spectrum of its HdrHistogram with three
decimals of ms (src/wrk.c and src/hdr_histogram.c of giltene/wrk2): a percentile that the spectrum lists is taken from
there, and so are the counts from which several generators of one run are merged. Its latency runs from the schedule.
wrk has no schedule and no spectrum.
Limits: a send waits for a timer of whole milliseconds, which its README says too (against a server on the same machine
a p50 of 0.15 ms since the send was 0.99 ms from the schedule). The asked rate (``-R``) and the beginning of the run are
not printed. The first ten seconds, in which wrk2 calibrates, are in its count of requests and not in its percentiles.

Their counters of time-outs mean different things. wrk2 looks every two seconds which connections last sent two seconds
ago or earlier, answered or not (check_timeouts in src/wrk.c), so its counter is not used. wrk counts answers that took
longer than its time-out; these are among its requests and not in its percentiles (response_complete in src/wrk.c of
wg/wrk, since 4.0.0).
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence

from meshtrial.compare.formats.latencies import Counts, Latencies, Reading, of_percentiles, recorded
from meshtrial.compare.formats.source import Format, Source, with_line
from meshtrial.design.responses import QUANTILES
from meshtrial.load.files import InputFileError
from meshtrial.load.recorded import Recorded
from meshtrial.load.result import Bucket
from meshtrial.load.settings import LoadSettings

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
# autocannon, whose text begins alike, prints its connections directly below and without threads.
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
    "percentiles of wrk2's histogram, from the schedule on, so what waited is in them; its timer waits whole "
    "milliseconds, so about 1 ms of its own is in each too: go by what is added, the ratio is too small"
)
_CLOSED = (
    "wrk's own percentiles and mean, from the send on in a closed loop; to make up for what a stall holds back, wrk 4 "
    "adds latencies of requests that it never sent wherever an answer took twice a connection's mean time per request"
)
_IDLE = (
    "wrk2's counter of time-outs is not used: every 2 s it counts the connections that have not sent meanwhile, also "
    "those that wait for their next turn; a request without an answer is not counted as failed, it lowers the rate"
)
_LATE = "answers slower than wrk's time-out are counted as failed, and are in none of its percentiles"


def _read(source: Source, sample_floor: float) -> Recorded:
    whole = source.text
    # Of --u_latency the second table, of uncorrected latency, is left out.
    text = whole.partition("Uncorrected Latency")[0]
    done, rate = _DONE.search(whole), _RATE.search(whole)
    if done is None or rate is None:
        raise InputFileError(source.path, "is wrk's or wrk2's text without its end (Requests/sec): it was cut off")
    table = _TABLE.search(text)
    if table is None:
        raise InputFileError(
            source.path, "holds no latency distribution, only a mean: run wrk2 or wrk again with --latency"
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
        # Longer ones are printed in whole minutes.
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
        # A late answer may have a bad status as well.
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
        raise InputFileError(source.path, "is wrk's text without its line Latency: it was cut off")
    latencies = of_percentiles(source, percentiles, good, sample_floor, mean=mean, largest=largest)
    if spectrum is None or not rows:
        return latencies
    return dataclasses.replace(latencies, pool=_counts(source, rows, int(spectrum[3])))


def _counts(source: Source, rows: Sequence[tuple[str, str, str]], total: int) -> Counts:
    """The spectrum as counts. Each line has a value, a share, and how many requests took at most that value."""
    ends = [_in_ms(value) for value, _, _ in rows]
    counted = [0, *(int(count) for _, _, count in rows)]
    starts = [max(0.0, ends[0].value_s - ends[0].width_s), *(end.value_s for end in ends)]
    if counted[-1] != total or starts != sorted(starts) or counted != sorted(counted):
        reason = f"its spectrum falls, or ends at {counted[-1]} of {total} requests: it was cut off, or was edited"
        raise InputFileError(source.path, reason)
    edges = zip(itertools.pairwise(starts), itertools.pairwise(counted), strict=True)
    counts = Counts.of([Bucket(start, end, after - before) for (start, end), (before, after) in edges])
    # The line of a share has the first value that so many requests do not exceed: fewer do not exceed the value before.
    below = {
        end.value_s - end.width_s: math.ceil(float(share) * total - 1e-9) - 1
        for end, (_, share, _) in zip(ends, rows, strict=True)
        if float(share) in QUANTILES.values()
    }
    return counts.narrowed(below)


def _reading(value: str, unit: str) -> Reading:
    # Its clock counts microseconds.
    return Reading(float(value) * _UNITS_S[unit], max(1e-6, 0.01 * _UNITS_S[unit]))


def _in_ms(value: str) -> Reading:
    """Of the spectrum: the histogram keeps 2048 to 4095 of the smallest power of two in microseconds that is enough."""
    microseconds = float(value) * 1e3
    width = 2 ** max(0, int(microseconds).bit_length() - 11)
    return Reading(microseconds / 1e6, width / 1e6)


FORMAT = Format("wrk2", with_line(_BEGIN), _read, once=(r"^Running \d{1,9}[smh] test @ ", r"^Requests/sec:"))
