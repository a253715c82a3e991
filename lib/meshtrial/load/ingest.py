"""What the generators left behind, as one measurement of a run.

Latency quantiles are over successful requests only, raw and corrected: a refused connection is fast, a
timeout is a constant, and neither is a latency of the service; failures are counted in ``error_ratio``,
which has a gate. (fortio's own percentiles include failed requests.) Imputed sends, which had no outcome,
stand in the corrected quantiles alone, and never count towards the sample floor.

Achieved rate: fortio's ActualQPS divides by a time that holds the stagger of ``-uniform`` and the wait for
the last answer: a perfect run of 100 rps over 4 connections in 1 s reads 97.0. Here a generator achieves
(sent / planned) x (planned last send / actual last send, at most 1) of its rate: 1 when every send leaves
by its time, less when sends are skipped, dropped at the end, or drawn out. Several generators add up.
A closed loop has no plan: requests through duration, no ratio.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from meshtrial.design.responses import QUANTILES, requests_needed
from meshtrial.design.study import Load
from meshtrial.errors import RecordError
from meshtrial.load import failures, quantiles
from meshtrial.load.accesslog import CLOCK_S, read_access_log
from meshtrial.load.files import InputFileError
from meshtrial.load.generators import GeneratorOutput
from meshtrial.load.histogram import crosscheck
from meshtrial.load.quantiles import merge_requests, successful
from meshtrial.load.result import FortioResult, read_result
from meshtrial.load.schedule import Lateness, Schedule, argument, lateness, schedule_of, with_schedule
from meshtrial.records.schema import GeneratorRecord

_CLOCK_SLACK_S, _CLOCK_SLEW = 0.1, 1e-3


@dataclass(frozen=True)
class Measurement:
    """One run's load as it was measured."""

    # One row per request, columns `quantiles.COLUMNS`; starts are seconds after the slice's earliest generator began.
    # None was due in a slice's `slice_warmup_s`.
    requests: pl.DataFrame
    generators: tuple[GeneratorRecord, ...]  # one a call; of several slices, slice after slice
    responses: Mapping[str, float]  # by names of the registry, in SI base units; quantiles where the floor allows
    bounds: Mapping[str, float]  # resolution in seconds of each quantile: the access log's microsecond
    notes: tuple[str, ...]  # what a reader should know; nothing here fails a run
    # Failed requests by kind, of whole slices: gates hold them whole, what warms them up included.
    failures: Mapping[str, int] = field(default_factory=dict)

    @property
    def start_unix_s(self) -> float:
        """Start of the earliest generator: what the requests' starts are relative to."""
        return min(generator.start_unix_s for generator in self.generators)


@dataclass(frozen=True)
class _Part:
    """One generator's share."""

    record: GeneratorRecord
    frame: pl.DataFrame
    schedule: Schedule | None
    late: Lateness
    notes: tuple[str, ...]
    connect_s: float | None = None  # mean


def ingest(outputs: Sequence[GeneratorOutput], load: Load, sample_floor: float) -> Measurement:
    """Read what all generators of one measured call left.

    RecordError where a file is missing, damaged, or of another run than its neighbour: a run with part of its requests
    is not measured.
    """
    return ingest_slices([outputs], load, sample_floor)


def ingest_slices(slices: Sequence[Sequence[GeneratorOutput]], load: Load, sample_floor: float) -> Measurement:
    """Read several interleaved slices of one deployment: one run, whose requests are those of all its slices.

    A quantile is that of the requests of the whole run, so it is a percentile and no mean of percentiles, and the
    sample floor is the run's. Rates are means over the slices, for these follow each other in time; they, failures and
    lateness are those of whole slices, latencies those of what was due after ``slice_warmup_s``.
    """
    if not slices:
        raise RecordError("no slice was measured: there is nothing to read")
    taken = [_parts(outputs, load.timeout_s) for outputs in slices]
    parts = [part for one in taken for part in one]
    everything = pl.concat([merge_requests([part.frame for part in one], slice_index=i) for i, one in enumerate(taken)])
    requests = _warm(everything, load)
    responses, bounds = latencies(requests, sample_floor)
    if len(load.protocols) > 1:
        responses |= _by_protocol(parts, load, sample_floor)
    responses |= qualities(parts, load, len(slices))
    several = len(slices) > 1
    notes = [
        f"slice {i + 1}: {note}" if several else note for i, one in enumerate(taken) for p in one for note in p.notes
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
    """Without what was due (of a closed loop: sent) while its slice was still warming up."""
    if not load.slice_warmup_s:
        return requests
    return requests.filter(pl.coalesce("scheduled_start_s", "actual_start_s") >= load.slice_warmup_s)


def _parts(outputs: Sequence[GeneratorOutput], timeout_s: float) -> list[_Part]:
    """The generators of one slice, against the start of the earliest."""
    if not outputs:
        raise RecordError("no load generator was called: there is nothing to read")
    results = [_result_of(output) for output in outputs]
    starts = [_start_of(result) for result in results]
    return [
        _part(output, result, start, min(starts), timeout_s)
        for output, result, start in zip(outputs, results, starts, strict=True)
    ]


def _result_of(output: GeneratorOutput) -> FortioResult:
    try:
        return read_result(output.json_path)
    except InputFileError as error:
        raise RecordError(
            f"generator {output.name} (exit code {output.exit_code}): {error}. {_last_log_lines(output)}"
        ) from error


def _last_log_lines(output: GeneratorOutput) -> str:
    lines = [line for line in output.text.splitlines() if line.strip()]
    return f"It said: {' | '.join(lines[-3:])}" if lines else "It said nothing."


def _start_of(result: FortioResult) -> int:
    if result.start_unix_ns is None:
        raise RecordError(f"{result.path}: no StartTime, so the schedule of this run is not known")
    return result.start_unix_ns


def _part(output: GeneratorOutput, result: FortioResult, start_ns: int, origin_ns: int, timeout_s: float) -> _Part:
    try:
        log = read_access_log(output.access_log_path)
    except InputFileError as error:
        raise RecordError(f"generator {output.name}: {error}. {_last_log_lines(output)}") from error
    if log.height != result.latency.count:
        raise RecordError(
            f"generator {output.name}: {output.access_log_path} holds {log.height} requests, "
            f"{output.json_path} says {result.latency.count}: they are not of the same whole run; measure again"
        )
    _require_one_clock(output.name, log, result.actual_duration_s)
    schedule = schedule_of(result, output.argv)
    asked = argument(output.argv, "-r")
    resolution = float(asked) if asked else result.resolution_s
    notes = list(crosscheck(result, log, resolution))
    log = failures.explained(log, output.text, timeout_s)
    requests, errors = log.height, int((~log["ok"]).sum())
    frame = with_schedule(log, schedule, start_ns, origin_ns)
    del log  # what the frame has not taken over is gone before quantiles need room
    if output.exit_code != 0:
        notes.append(f"the generator ended with exit code {output.exit_code}. {_last_log_lines(output)}")
    if "falling behind" in output.text:
        line = next(line for line in output.text.splitlines() if "falling behind" in line)
        notes.append(f"fortio said: {line.strip()}; see the late share and the corrected latencies")
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
    told = tuple(f"{output.name}: {note}" for note in notes)
    return _Part(record, frame, schedule, overdue, told, result.connect_mean_s)


def _require_one_clock(name: str, log: pl.DataFrame, lasted_s: float | None) -> None:
    """Refuse starts by a clock that was set on meanwhile: every send behind that would be late, by an hour perhaps.

    Starts are of the wall clock, schedule, latencies and the whole time of the monotonic one. A clock may be slewed by
    half a thousandth (adjtime(3)). One that is set back is refused where the log is read.
    """
    if not lasted_s or not log.height:
        return
    ended_s = (pl.col("latency_s") + (pl.col("start_unix_ns") - pl.col("start_unix_ns").min()) / 1e9).max()
    span_s = log.select(ended_s).item()
    if span_s > _CLOCK_SLACK_S + (1 + _CLOCK_SLEW) * lasted_s:
        raise RecordError(
            f"generator {name}: its requests lie {span_s:.4g} s apart and it ran for {lasted_s:.4g} s: the machine's "
            "clock was set meanwhile; measure again"
        )


def _achieved(
    frame: pl.DataFrame, schedule: Schedule | None, start_s: float, requests: int, duration_s: float
) -> float:
    if schedule is None:
        return requests / duration_s if duration_s > 0 else 0.0
    last = frame["actual_start_s"].max()
    last_s = float(last) - start_s if isinstance(last, int | float) else math.inf
    drawn_out = max(1.0, last_s / schedule.last_send_s)
    return schedule.rps * requests / schedule.planned / drawn_out


def latencies(requests: pl.DataFrame, sample_floor: float) -> tuple[dict[str, float], dict[str, float]]:
    """Mean, largest and quantiles of a run's requests, and the resolution of each quantile."""
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
    """Quantiles of a mixed load's protocols apart: those of the mixture may fall between the two."""
    responses: dict[str, float] = {}
    for protocol in ("http", "grpc"):
        of_it = [part.frame for part in parts if ("-grpc" in part.record.argv) == (protocol == "grpc")]
        values = np.concatenate([successful(_warm(frame, load)).to_numpy() for frame in of_it])
        responses |= {f"latency_{protocol}_{q}_s": value for q, value in quantiles.exact(values, sample_floor).items()}
    return responses


def qualities(parts: Sequence[_Part], load: Load, slices: int = 1) -> dict[str, float]:
    """What is described of a run and never judged: requests, failures, rates, lateness."""
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
        told = [part.connect_s for part in parts if part.connect_s is not None]
        described |= {"connect_mean_s": math.fsum(told) / len(told)} if told else {}
    elif load.closed_loop and load.echoes:
        described["throughput_bytes_s"] = achieved * (1 - described["error_ratio"]) * load.payload_bytes
    if not load.closed_loop:
        described["achieved_ratio"] = achieved / load.mean_rps
        # Imputed sends are late sends too; both stand in the denominator: every send that was due.
        due = sum(part.frame.height for part in parts if part.schedule)
        described["late_ratio"] = sum(part.late.target for part in parts) / due if due else 1.0
        described["generator_late_ratio"] = sum(part.late.generator for part in parts) / due if due else 0.0
    return described


def _notes(
    parts: Sequence[_Part], load: Load, responses: Mapping[str, float], sample_floor: float, requests: pl.DataFrame
) -> list[str]:
    notes = []
    withheld = [q for q in QUANTILES if f"latency_{q}_s" not in responses]
    if withheld:
        needed = requests_needed(QUANTILES[withheld[0]], sample_floor)
        notes.append(
            f"not reported for too few requests: {', '.join(withheld)} "
            f"({withheld[0]} needs {needed}, there are {successful(requests).len()})"
        )
    imputed = int(requests["imputed"].sum())
    if imputed:
        notes.append(f"{imputed} sends never left and are imputed in the corrected latencies")
    if not load.closed_loop and any(part.schedule is None for part in parts):
        notes.append("the schedule of a generator is not known: lateness and corrected latencies leave it out")
    return notes
