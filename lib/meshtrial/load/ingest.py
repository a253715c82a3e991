"""The generators' files as one measurement of a run.

Latency quantiles are over successful requests only, raw and corrected. A refused connection is fast and a time-out is a
constant, so neither is a latency of the service; failures count in ``error_ratio``, which has a run check. (fortio's
own percentiles include failed requests.) Imputed sends had no outcome: they count only in the corrected quantiles, and
never towards the sample floor.

Achieved rate: fortio's ActualQPS divides by a time that includes the stagger of ``-uniform`` and the wait for the last
answer. It therefore reads 97.0 for a perfect run of 100 rps over 4 connections in 1 second. Here it is, per generator,

    rate x (sent / planned) x (planned last send / actual last send, at most 1)

This is the planned rate if every send is on time, and less if sends are skipped, missing at the end, or drawn out.
The rates of several generators are summed. For streams, the arrival of the last event counts instead of its send, as a
mean over the streams, because delayed events wait on the path or at the server. A closed loop has no plan: its rate is
requests by duration, and it has no ratio.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from meshtrial.design.load import ClosedLoop, Load, OpenLoad, SlicedLoad
from meshtrial.design.responses import QUANTILES, requests_needed
from meshtrial.errors import RecordError
from meshtrial.load import failures, quantiles
from meshtrial.load.accesslog import read_access_log
from meshtrial.load.files import CLOCK_S, InputFileError
from meshtrial.load.generators import GeneratorOutput
from meshtrial.load.histogram import crosscheck
from meshtrial.load.quantiles import merge_requests, successful
from meshtrial.load.result import STREAMS, FortioResult, read_result
from meshtrial.load.schedule import Lateness, Schedule, argument, lateness, schedule_of, with_schedule
from meshtrial.records.schema import GeneratorRecord

_CLOCK_SLACK_S, _CLOCK_SLEW = 0.1, 1e-3


@dataclass(frozen=True)
class Measurement:
    """The measured load of one run."""

    # One row per request, columns `quantiles.COLUMNS`; starts are in seconds after the start of the slice's earliest
    # generator. Requests due in a slice's `slice_warmup_s` are left out.
    requests: pl.DataFrame
    generators: tuple[GeneratorRecord, ...]  # one per call, slice by slice
    responses: Mapping[str, float]  # by registered name, in SI base units; quantiles if the sample floor allows
    bounds: Mapping[str, float]  # resolution of each quantile in seconds: the access log's microsecond
    notes: tuple[str, ...]  # for the reader; none of them fails the run
    # Failed requests by kind, including those of a slice's warm-up, as in the run checks.
    failures: Mapping[str, int] = field(default_factory=dict)

    @property
    def start_unix_s(self) -> float:
        """Start of the earliest generator, to which the requests' starts are relative."""
        return min(generator.start_unix_s for generator in self.generators)


@dataclass(frozen=True)
class _Part:
    """The measurement of one generator."""

    record: GeneratorRecord
    frame: pl.DataFrame
    schedule: Schedule | None
    late: Lateness
    notes: tuple[str, ...]
    connect_s: float | None = None  # mean time to connect
    first_events_s: tuple[float, ...] = ()  # of each stream


def ingest(outputs: Sequence[GeneratorOutput], load: Load, sample_floor: float) -> Measurement:
    """Read the output of all generators of one measured stage.

    Raise RecordError if a file is missing, damaged, or of another run than its neighbour: an incomplete run is not
    measured.
    """
    return ingest_slices([outputs], load, sample_floor)


def ingest_slices(slices: Sequence[Sequence[GeneratorOutput]], load: Load, sample_floor: float) -> Measurement:
    """Read several interleaved slices of one deployment as one run with the requests of all slices.

    Quantiles and the sample floor are of all requests of the run, not means over slices. Rates are means over the
    slices, which follow each other in time. Rates, failures and lateness include a slice's warm-up; latencies are of
    requests due after ``slice_warmup_s``.
    """
    if not slices:
        raise RecordError("no slice was measured, so there is nothing to read")
    by_slice = [_parts(outputs, load.timeout_s) for outputs in slices]
    parts = [part for slice_parts in by_slice for part in slice_parts]
    frames = [[part.frame for part in slice_parts] for slice_parts in by_slice]
    everything = pl.concat([merge_requests(of_slice, slice_index=i) for i, of_slice in enumerate(frames)])
    requests = _warm(everything, load)
    responses, bounds = latencies(requests, sample_floor)
    if len(load.protocols) > 1:
        responses |= _by_protocol(parts, load, sample_floor)
    if load.streams:
        responses |= _of_streams(parts, load, sample_floor)
    responses |= qualities(parts, load, len(slices))
    notes = [
        f"slice {i + 1}: {note}" if len(slices) > 1 else note
        for i, slice_parts in enumerate(by_slice)
        for part in slice_parts
        for note in part.notes
    ]
    notes += _notes(parts, load, responses, sample_floor, requests)
    return Measurement(
        requests,
        tuple(part.record for part in parts),
        responses,
        bounds,
        tuple(notes),
        failures.count(everything),
    )


def _warm(requests: pl.DataFrame, load: Load) -> pl.DataFrame:
    """Return the requests that were due (of a closed loop: sent) after their slice's warm-up."""
    if not isinstance(load, SlicedLoad) or not load.slice_warmup_s:
        return requests
    return requests.filter(pl.coalesce("scheduled_start_s", "actual_start_s") >= load.slice_warmup_s)


def _parts(outputs: Sequence[GeneratorOutput], timeout_s: float) -> list[_Part]:
    """Read the generators of one slice, with starts relative to the earliest."""
    if not outputs:
        raise RecordError("no load generator was called, so there is nothing to read")
    results = [_read(output) for output in outputs]
    origin_ns = min(start_ns for _, start_ns in results)
    return [
        _part(output, result, start_ns, origin_ns, timeout_s)
        for output, (result, start_ns) in zip(outputs, results, strict=True)
    ]


def _read(output: GeneratorOutput) -> tuple[FortioResult, int]:
    """Return a generator's result and its start in nanoseconds since 1970."""
    try:
        result = read_result(output.json_path)
    except InputFileError as error:
        raise RecordError(
            f"generator {output.name} (exit code {output.exit_code}): {error}. {_last_log_lines(output)}"
        ) from error
    if result.start_unix_ns is None:
        raise RecordError(
            f"{result.path}: there is no StartTime, so the schedule of this run is unknown; measure again"
        )
    return result, result.start_unix_ns


def _last_log_lines(output: GeneratorOutput) -> str:
    lines = [line for line in output.text.splitlines() if line.strip()]
    return f"Its last output: {' | '.join(lines[-3:])}" if lines else "It printed nothing."


def _part(output: GeneratorOutput, result: FortioResult, start_ns: int, origin_ns: int, timeout_s: float) -> _Part:
    try:
        log = read_access_log(output.access_log_path, may_overlap=result.generator == STREAMS)
    except InputFileError as error:
        raise RecordError(f"generator {output.name}: {error}. {_last_log_lines(output)}") from error
    if log.height != result.latency.count:
        raise RecordError(
            f"generator {output.name}: {output.access_log_path} has {log.height} requests, {output.json_path} "
            f"{result.latency.count}: they are not of the same complete run; measure again"
        )
    _require_one_clock(output.name, log, result.actual_duration_s)
    schedule = schedule_of(result, output.argv)
    option = argument(output.argv, "-r")
    resolution = float(option) if option else result.resolution_s
    notes = list(crosscheck(result, log, resolution))
    log = failures.explained(log, output.text, timeout_s)
    requests, errors = log.height, int((~log["ok"]).sum())
    frame = with_schedule(log, schedule, start_ns, origin_ns)
    del log  # free what the frame does not share before quantiles need memory
    if output.exit_code != 0:
        notes.append(f"the generator ended with exit code {output.exit_code}. {_last_log_lines(output)}")
    if "falling behind" in output.text:
        line = next(line for line in output.text.splitlines() if "falling behind" in line)
        notes.append(f"fortio reported: {line.strip()}; see the late share and the corrected latencies")
    if len(result.addresses) > 1:
        notes.append(f"the target resolved to {len(result.addresses)} addresses: {', '.join(sorted(result.addresses))}")
    duration = result.actual_duration_s or 0.0
    record = GeneratorRecord(
        argv=output.argv,
        version=result.version or "",
        exit_code=output.exit_code,
        start_unix_s=start_ns / 1e9,
        duration_s=duration,
        planned_requests=schedule.planned if schedule else None,
        requests=requests,
        errors=errors,
        requested_rps=schedule.rps if schedule else result.requested_rps,
        achieved_rps=_achieved(frame, schedule, (start_ns - origin_ns) / 1e9, requests, duration),
        sockets=result.sockets,
        connections=result.threads,
        resolution_s=resolution or 0.0,
        return_codes=dict(result.return_codes),
    )
    overdue = lateness(frame, schedule) if schedule else Lateness(0, 0)
    named = tuple(f"{output.name}: {note}" for note in notes)
    return _Part(record, frame, schedule, overdue, named, result.connect_mean_s, result.first_events_s)


def _require_one_clock(name: str, log: pl.DataFrame, lasted_s: float | None) -> None:
    """Raise RecordError if the clock was set forward during the run, which would make every later send seem late.

    Starts are by the wall clock; schedule, latencies and the duration by the monotonic clock. A clock may be slewed by
    half a thousandth (adjtime(3)). A clock that was set back is refused by the reader of the access log.
    """
    if not lasted_s or not log.height:
        return
    ended_s = (pl.col("latency_s") + (pl.col("start_unix_ns") - pl.col("start_unix_ns").min()) / 1e9).max()
    span_s = log.select(ended_s).item()
    if span_s > _CLOCK_SLACK_S + (1 + _CLOCK_SLEW) * lasted_s:
        raise RecordError(
            f"generator {name}: its requests span {span_s:.4g} s, but it ran for {lasted_s:.4g} s, so the machine's "
            "clock was set during the run; measure again"
        )


def _achieved(
    frame: pl.DataFrame, schedule: Schedule | None, start_s: float, requests: int, duration_s: float
) -> float:
    if schedule is None:
        return requests / duration_s if duration_s > 0 else 0.0
    if schedule.streams:
        after_due_s = pl.col("actual_start_s") + pl.col("latency_s") - pl.col("scheduled_start_s")
        last_events = frame.filter(pl.col("ok") & (pl.col("iter") == schedule.calls_per_thread - 1))
        last = last_events.select(after_due_s.mean() + schedule.last_send_s).item()
    else:
        last = frame.select(pl.col("actual_start_s").max() - start_s).item()
    last_s = math.inf if last is None else float(last)
    drawn_out = max(1.0, last_s / schedule.last_send_s)
    return schedule.rps * requests / schedule.planned / drawn_out


def latencies(requests: pl.DataFrame, sample_floor: float) -> tuple[dict[str, float], dict[str, float]]:
    """Return mean, maximum and quantiles of a run's requests, and the resolution of each quantile."""
    values = successful(requests).to_numpy()
    responses: dict[str, float] = {}
    if count := values.size:
        responses = {"latency_mean_s": float(np.mean(values)), "latency_max_s": float(np.max(values))}
    bounds: dict[str, float] = {}
    for prefix, column in (("latency", "latency_s"), ("latency_corrected", "corrected_latency_s")):
        if prefix != "latency":
            values = successful(requests, column).to_numpy()
        for q, value in quantiles.exact(values, sample_floor, count=count).items():
            responses[f"{prefix}_{q}_s"] = value
            bounds[f"{prefix}_{q}_s"] = CLOCK_S
    return responses, bounds


def _by_protocol(parts: Sequence[_Part], load: Load, sample_floor: float) -> dict[str, float]:
    """Return quantiles for each protocol of a mixed load; those of the mixture may fall between the two."""
    responses: dict[str, float] = {}
    for protocol, is_grpc in (("http", False), ("grpc", True)):
        frames = [part.frame for part in parts if ("-grpc" in part.record.argv) == is_grpc]
        values = np.concatenate([successful(_warm(frame, load)).to_numpy() for frame in frames])
        responses |= {f"latency_{protocol}_{q}_s": value for q, value in quantiles.exact(values, sample_floor).items()}
    return responses


def _of_streams(parts: Sequence[_Part], load: Load, sample_floor: float) -> dict[str, float]:
    """Return the times to first events, the deviations of gaps between events, and the number of lost streams.

    A gap is the time between the arrivals of two consecutive events of a stream. Its deviation is its absolute
    difference from the time between their sends (RFC 3550, section 6.4.1: D), which is the difference of the latencies.
    """
    deviations, held = [], 0
    for part in parts:
        both = pl.col("ok") & pl.col("ok").shift(1) & (pl.col("thread") == pl.col("thread").shift(1))
        gap_s = pl.when(both).then(pl.col("latency_s").diff().abs())
        deviations.append(_warm(part.frame.with_columns(gap_s.alias("gap_s")), load)["gap_s"].drop_nulls().to_numpy())
        last = part.schedule.calls_per_thread - 1 if part.schedule else 0
        held += part.frame.filter(pl.col("ok") & (pl.col("iter") == last)).height
    responses = {"streams_lost": float(sum(part.record.connections for part in parts) - held)}
    found = quantiles.exact(np.concatenate(deviations), sample_floor)
    responses |= {f"event_gap_{q}_s": value for q, value in found.items()}
    if first := [seconds for part in parts for seconds in part.first_events_s]:
        responses |= {"first_event_mean_s": math.fsum(first) / len(first), "first_event_max_s": max(first)}
    return responses


def qualities(parts: Sequence[_Part], load: Load, slices: int = 1) -> dict[str, float]:
    """Return the descriptive responses of a run, which are never judged: requests, failures, rates, lateness."""
    sent = sum(part.record.requests for part in parts)
    achieved = math.fsum(part.record.achieved_rps for part in parts) / slices
    described = {
        "requests": float(sent),
        "error_ratio": sum(part.record.errors for part in parts) / sent if sent else 1.0,
        "achieved_rps": achieved,
    }
    sockets = [part.record.sockets for part in parts]
    if load.keepalive and sockets and None not in sockets:
        connections, failed = (sum(getattr(p.record, name) for p in parts) for name in ("connections", "errors"))
        described["reconnects"] = float(max(0, sum(s or 0 for s in sockets) - connections - failed))
    if load.new_connections:
        times = [part.connect_s for part in parts if part.connect_s is not None]
        described |= {"connect_mean_s": math.fsum(times) / len(times)} if times else {}
    elif isinstance(load, ClosedLoop) and load.echoes:
        described["throughput_bytes_s"] = achieved * (1 - described["error_ratio"]) * load.payload_bytes
    if isinstance(load, OpenLoad):
        described["achieved_ratio"] = achieved / load.mean_rps
        # Imputed sends are late sends too; the denominator is every send that was due.
        due = sum(part.frame.height for part in parts if part.schedule)
        described["late_ratio"] = sum(part.late.target for part in parts) / due if due else 1.0
        described["generator_late_ratio"] = sum(part.late.generator for part in parts) / due if due else 0.0
    return described


def _notes(
    parts: Sequence[_Part], load: Load, responses: Mapping[str, float], sample_floor: float, requests: pl.DataFrame
) -> list[str]:
    notes = []
    missing = [q for q in QUANTILES if f"latency_{q}_s" not in responses]
    if missing:
        needed = requests_needed(QUANTILES[missing[0]], sample_floor)
        notes.append(
            f"not reported for too few requests: {', '.join(missing)} "
            f"({missing[0]} needs {needed}, the run has {successful(requests).len()})"
        )
    imputed = int(requests["imputed"].sum())
    if imputed:
        notes.append(f"{imputed} sends never left and are imputed in the corrected latencies")
    if isinstance(load, OpenLoad) and any(part.schedule is None for part in parts):
        notes.append("the schedule of a generator is unknown: lateness and corrected latencies leave it out")
    return notes
