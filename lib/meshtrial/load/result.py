"""A load generator's settings and totals, and fortio's result JSON: versions from 1.3 on, and Nighthawk's export of it.

Opinion: what a file or a version does not contain is None, never a default, so that no guess is compared. Numbers may
be strings, because Nighthawk writes counts that way (protobuf's JSON).
Limits: histograms keep the export's edges; :mod:`meshtrial.load.histogram` restores the original ones.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshtrial.load.files import LONGEST_S, Fields, InputFileError, parse_duration_s, parse_time_ns, read_text


def compared(label: str, *, blocking: bool = False) -> Any:
    """Declare a setting in which files may differ: its label, and whether a difference forbids a comparison."""
    return field(default=None, metadata={"label": label, "blocking": blocking})


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """The load of one run; None for everything that its file does not contain."""

    generator: str = field(metadata={"label": "load generator", "blocking": True})  # ``fortio``, ``wrk2``, ...
    # `fast` or `std` (fortio's two HTTP clients, never comparable with each other), `grpc`, `tcp` or `udp`.
    client: str | None = compared("client", blocking=True)
    version: str | None = compared("version")
    run_type: str | None = None
    labels: str | None = None
    url: str | None = None
    start_unix_ns: int | None = None  # by the wall clock
    closed_loop: bool | None = compared("closed loop", blocking=True)  # True if it sends as fast as answers arrive
    requested_rps: float | None = compared("rate (rps)", blocking=True)  # None for a closed loop
    requested_duration_s: float | None = compared("duration (s)")  # None for `exactly`, or an endless run
    exactly: int | None = compared("number of calls")
    actual_rps: float | None = None
    actual_duration_s: float | None = None
    threads: int | None = compared("connections", blocking=True)  # each a closed loop of its own
    # Only if their number was constant.
    users: int | None = compared("virtual users", blocking=True)
    requests: int | None = None  # sent in `actual_duration_s`
    sent_share: float | None = None  # of the planned requests; None if it follows from the rate, or is unknown
    uniform: bool | None = compared("uniform")
    jitter: bool | None = compared("jitter")
    catchup: bool | None = compared("catch-up")  # False is fortio's `-nocatchup`
    keepalive: bool | None = compared("keep-alive", blocking=True)
    h2: bool | None = compared("HTTP/2", blocking=True)
    payload_bytes: int | None = compared("payload (bytes)", blocking=True)
    timeout_s: float | None = compared("timeout (s)")
    sockets: int | None = None  # opened, including those of fortio's warm-up call; None for gRPC
    resolution_s: float | None = compared("histogram resolution (s)")  # fortio's `-r`
    body_bytes: float | None = None  # mean size of an answer


# The `generator` of a result whose calls are events of streams.
STREAMS = "event-streams"


@dataclass(frozen=True)
class Bucket:
    """Requests with ``start_s < latency <= end_s``; the first bucket also includes its start."""

    start_s: float
    end_s: float
    count: int


@dataclass(frozen=True)
class ExportedHistogram:
    """A histogram as fortio exports it, in seconds and without empty buckets."""

    count: int
    min_s: float  # 0 without requests, as are maximum and mean
    max_s: float
    mean_s: float
    sum_s: float | None
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, kw_only=True)
class FortioResult(LoadSettings):
    """One run of fortio by its result file: settings and measurements."""

    path: Path
    closed_loop: bool
    threads: int  # used, which may be fewer than requested
    latency: ExportedHistogram  # all requests, failed ones INCLUDED
    errors: ExportedHistogram | None  # the failed ones; None in versions before 1.17, which do not write it
    return_codes: Mapping[str, int] = field(default_factory=dict)
    addresses: Mapping[str, int] = field(default_factory=dict)
    connect_mean_s: float | None = None  # time to establish a TCP connection
    # For each stream that brought an event: seconds from before its connection was opened to its first event
    first_events_s: tuple[float, ...] = ()

    @property
    def error_count(self) -> int:
        """Failed requests, by fortio's count or, in versions without it, by the return codes."""
        if self.errors is not None:
            return self.errors.count
        good = sum(n for code, n in self.return_codes.items() if _is_ok(code))
        return sum(self.return_codes.values()) - good


def read_result(path: Path | str) -> FortioResult:
    """Read one fortio result, gzip or plain; InputFileError names file and reason."""
    path = Path(path)
    text = read_text(path)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            raise InputFileError(path, f"the JSON is truncated (it ends in line {error.lineno})") from error
        raise InputFileError(path, f"is not JSON (line {error.lineno}: {error.msg})") from error
    except (RecursionError, ValueError) as error:  # thousands of digits or of nested brackets
        raise InputFileError(path, f"is not a fortio result ({error})") from None
    if not isinstance(data, dict):
        raise InputFileError(path, f"is not a fortio result but a JSON {type(data).__name__}; one file holds one run")
    if data.get("error") or data.get("Error") is True:
        reason = ": ".join(str(data[key]) for key in ("message", "exception") if data.get(key))
        raise InputFileError(path, f"fortio reports that this run failed ({reason or 'no reason given'})")
    if data.get("DurationHistogram") is None:
        keys = ", ".join(list(data)[:5]) or "nothing"
        raise InputFileError(path, f"is not a fortio result: there is no DurationHistogram (fields: {keys})")
    return _Reader(data, path, "fortio result").result()


# Tolerance for rounded numbers and for nanoseconds on either side of an edge.
_SLACK = 1e-3


def _is_ok(code: str) -> bool:
    # fortio counts 2xx and 418 (its own "I am a teapot" fault) as successful; gRPC's success is SERVING.
    return code in ("SERVING", "OK", "418") or (len(code) == 3 and code.startswith("2"))


class _Reader(Fields):
    def result(self) -> FortioResult:
        data = self.data
        qps = data.get("RequestedQPS")
        closed = isinstance(qps, str) and qps.strip().lower() == "max"
        duration, start = self.text("RequestedDuration"), self.text("StartTime")
        exactly = self.integer("Exactly") or None
        nighthawk = self._from_nighthawk()
        latency = self.histogram("DurationHistogram")
        failed = data.get("ErrorsDurationHistogram") is not None
        nanoseconds = self.number("ActualDuration")
        timeout = self.number("HTTPReqTimeOut")
        nocatchup = self.flag("NoCatchUp")
        nokeepalive = self.flag("DisableKeepAlive")
        return FortioResult(
            path=self.path,
            generator="nighthawk" if nighthawk else STREAMS if "FirstEvents" in data else "fortio",
            client=self._client(),
            version=self.text("Version"),
            run_type=self.text("RunType"),
            labels=self.text("Labels"),
            url=self.text("URL") or self.text("Destination"),
            start_unix_ns=parse_time_ns(start) if start else None,
            closed_loop=closed,
            requested_rps=None if closed else self.number("RequestedQPS"),
            requested_duration_s=parse_duration_s(duration) if duration and not exactly else None,
            exactly=exactly,
            actual_rps=self.number("ActualQPS"),
            actual_duration_s=None if nanoseconds is None else nanoseconds / 1e9,
            threads=self.integer("NumThreads") or 0,
            requests=None if nighthawk else latency.count,
            latency=latency,
            errors=self.histogram("ErrorsDurationHistogram") if failed else None,
            uniform=self.flag("Uniform"),
            jitter=self.flag("Jitter"),
            catchup=None if nocatchup is None else not nocatchup,
            keepalive=None if nokeepalive is None else not nokeepalive,
            h2=self.flag("H2"),
            payload_bytes=self._payload_bytes(),
            timeout_s=None if timeout is None else timeout / 1e9,
            sockets=self.integer("SocketCount"),
            connect_mean_s=self._mean_of("ConnectionStats"),
            first_events_s=self._seconds("FirstEvents"),
            resolution_s=self.number("Resolution") or None,
            body_bytes=self._mean_of("Sizes"),
            return_codes=self.counts("RetCodes"),
            addresses=self.counts("IPCountMap"),
        )

    def histogram(self, name: str) -> ExportedHistogram:
        exported = self.inside(name)
        buckets: list[Bucket] = []
        for item in exported.objects("Data"):
            start, end, count = item.number("Start"), item.number("End"), item.integer("Count")
            if start is None or end is None or count is None:
                raise self.broken(f"a bucket of {name} lacks a field")
            bucket = Bucket(start, end, count)
            self.validate_bucket(name, buckets[-1] if buckets else None, bucket)
            buckets.append(bucket)
        total = sum(bucket.count for bucket in buckets)
        count = exported.integer("Count")
        if count is None:
            raise self.broken(f"{name} has no Count")
        if count != total:
            raise InputFileError(
                self.path, f"{name} does not add up: its buckets contain {total} requests, its Count is {count}"
            )
        if count and (lacking := [key for key in ("Max", "Avg") if exported.number(key) is None]):
            raise self.broken(f"{name} has no {lacking[0]}")
        # protobuf's JSON leaves out a minimum of 0.
        low, high, mean = (exported.number(key) or 0.0 for key in ("Min", "Max", "Avg"))
        if low < 0:
            raise InputFileError(self.path, f"{name}: the Min is {low:g}")
        for bucket in buckets:
            if bucket.count and (bucket.end_s < low * (1 - _SLACK) or bucket.start_s > high * (1 + _SLACK)):
                label = f"the bucket from {bucket.start_s:g} to {bucket.end_s:g}"
                raise InputFileError(self.path, f"{name}: {label} is not between Min {low:g} and Max {high:g}")
        if count and not low - _SLACK * abs(low) <= mean <= high + _SLACK * abs(high):
            raise InputFileError(self.path, f"{name}: the Avg {mean:g} is not between Min {low:g} and Max {high:g}")
        return ExportedHistogram(
            count=count,
            min_s=low,
            max_s=high,
            mean_s=mean,
            sum_s=exported.number("Sum"),
            buckets=tuple(buckets),
        )

    def validate_bucket(self, name: str, before: Bucket | None, bucket: Bucket) -> None:
        """Raise InputFileError for a bucket with impossible numbers, or that overlaps the one before."""
        label = f"{name}: the bucket from {bucket.start_s:g} to {bucket.end_s:g}"
        if bucket.count < 0:
            raise InputFileError(self.path, f"{label} contains {bucket.count} requests")
        if bucket.end_s < bucket.start_s * (1 - _SLACK) or bucket.start_s < 0:
            raise InputFileError(self.path, f"{label} is reversed or negative")
        if bucket.end_s > LONGEST_S:
            raise InputFileError(self.path, f"{label}: no answer takes that long")
        if before is not None and bucket.start_s < before.end_s - _SLACK * abs(before.end_s):
            raise InputFileError(self.path, f"{label} overlaps the previous one, which ends at {before.end_s:g}")

    def _from_nighthawk(self) -> bool:
        # Nighthawk labels its export, and protobuf writes 64-bit counts as strings; fortio does neither.
        count = self.inside("DurationHistogram").data.get("Count")
        return isinstance(count, str) or (self.text("Labels") or "").startswith("Nighthawk")

    def _client(self) -> str | None:
        run_type = (self.text("RunType") or "").upper()
        for start in ("GRPC", "TCP", "UDP"):
            if run_type.startswith(start):
                return start.lower()
        fast_off = self.flag("DisableFastClient")
        if fast_off is None or self._from_nighthawk():
            return None
        return "std" if fast_off or self.flag("H2") else "fast"

    def _mean_of(self, name: str) -> float | None:
        values = self.inside(name)
        return values.number("Avg") if values.data.get("Count") else None

    def _seconds(self, name: str) -> tuple[float, ...]:
        values = self.data.get(name) or ()
        if not isinstance(values, list | tuple) or not all(isinstance(v, float | int) and v >= 0 for v in values):
            raise self.broken(f"{name} is not a list of seconds")
        return tuple(map(float, values))

    def _payload_bytes(self) -> int | None:
        # Go writes bytes as base64; for versions that wrote plain text, use its length.
        value = self.data.get("Payload")
        if not isinstance(value, str):
            return None
        try:
            return len(base64.b64decode(value, validate=True))
        except (binascii.Error, ValueError):
            return len(value.encode())
