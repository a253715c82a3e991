"""What wrk2 and wrk print with ``--latency``.

wrk2 prints percentiles with two decimals of us, ms or s, and below them the spectrum of its HdrHistogram with three
decimals of ms (src/wrk.c and src/hdr_histogram.c of giltene/wrk2): a percentile that the spectrum lists is taken from
there. Its latency runs from the schedule. wrk has no schedule and no spectrum.
Limits: a send waits for a timer of whole milliseconds, which its README says too (against a server on the same machine
a p50 of 0.15 ms since the send was 0.99 ms from the schedule). The asked rate (``-R``) and the beginning of the run are
not printed. The first ten seconds, in which wrk2 calibrates, are in its count of requests and not in its percentiles.
"""

from __future__ import annotations

import re

from meshtrial.compare.formats.latencies import Latencies, Reading, of_percentiles, recorded
from meshtrial.compare.formats.source import Format, Source
from meshtrial.design.responses import QUANTILES
from meshtrial.load.files import InputFileError
from meshtrial.load.recorded import Recorded
from meshtrial.load.settings import LoadSettings

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_BEGIN = re.compile(r"^Running (\d{1,9})([smh]) test @ \S", re.MULTILINE)
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
_SOCKETS = re.compile(r"^ *Socket errors: (connect \d+, read \d+, write \d+, timeout \d+)", re.MULTILINE)
_STATUS = re.compile(r"^ *Non-2xx or 3xx responses: (\d{1,18})", re.MULTILINE)

_SCHEDULED = (
    "wrk2's own percentiles, from the schedule on, so what waited is in them; its timer waits whole milliseconds, so "
    "about 1 ms of its own is in each too: go by what is added, the ratio is too small"
)
_CLOSED = (
    "wrk's own percentiles, from the send on in a closed loop: a stall holds back the requests that would have "
    "met it (coordinated omission)"
)


def _read(source: Source, sample_floor: float) -> Recorded:
    whole = source.text.replace("\r\n", "\n")
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
    spectrum = _HDR.search(text)
    if scheduled and spectrum is None:
        raise InputFileError(source.path, "is wrk2's text without the whole spectrum (#[Mean ...): it was cut off")
    complete = int(done[1])
    lost = [int(n) for counted in _SOCKETS.findall(whole) for n in re.findall(r"\d{1,18}", counted)]
    status = sum(int(n) for n in _STATUS.findall(whole))
    behind = int(spectrum[3]) if spectrum else complete
    begin, connections = _BEGIN.search(whole), _CONNECTIONS.search(whole)
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
    return recorded(
        source,
        settings.generator,
        _latencies(source, text, table[1], spectrum, behind - min(behind, status), sample_floor),
        settings,
        requests=complete + sum(lost),
        failed=status + sum(lost),
        notes=(_SCHEDULED if scheduled else _CLOSED,),
    )


def _latencies(
    source: Source, text: str, table: str, spectrum: re.Match[str] | None, good: int, sample_floor: float
) -> Latencies:
    percentiles = {}
    printed = {round(float(share) / 100, 6): _reading(value, unit) for share, value, unit in _ROW.findall(table)}
    listed = {float(share): _in_ms(value) for value, share, _ in _SPECTRUM.findall(text)} if spectrum else {}
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
    return of_percentiles(source, percentiles, good, sample_floor, mean=mean, largest=largest)


def _reading(value: str, unit: str) -> Reading:
    # Its clock counts microseconds.
    return Reading(float(value) * _UNITS_S[unit], max(1e-6, 0.01 * _UNITS_S[unit]))


def _in_ms(value: str) -> Reading:
    """Of the spectrum: the histogram keeps 2048 to 4095 of the smallest power of two in microseconds that is enough."""
    microseconds = float(value) * 1e3
    width = 2 ** max(0, int(microseconds).bit_length() - 11)
    return Reading(microseconds / 1e6, width / 1e6)


FORMAT = Format("wrk2", lambda source: _BEGIN.search(source.head) is not None, _read)
