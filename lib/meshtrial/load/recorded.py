"""Given results as responses of one run each: fortio or Nighthawk JSON, and fortio access logs.

Opinion: a histogram quantile has its bucket as a bound, so that a caller can flag a bucket that is wider than the
margin. Settings that differ between files are listed by name before anything is compared.
Limits: without an access log there is no corrected latency. If a histogram is not on fortio's edges, its failed
requests remain in its quantiles, and a note reports this.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from meshtrial.design.responses import QUANTILES
from meshtrial.errors import UsageError
from meshtrial.load import histogram, quantiles
from meshtrial.load.files import CLOCK_S, LONGEST_S, InputFileError, read_bytes
from meshtrial.load.result import ExportedHistogram, FortioResult, LoadSettings, read_result

LONGEST_RUN_S = 1e8  # three years, longer than any run
_FASTEST_RPS = 1e8  # more than a generator on one machine sends
_SLACK = 1e-6
# Settings that cannot be negative.
_COUNTED = ("actual_duration_s", "requested_rps", "requested_duration_s", "requests", "threads", "users", "body_bytes")


@dataclass(frozen=True)
class Recorded:
    """One file, read as one run; InputFileError for numbers that are impossible or contradict each other."""

    path: Path
    kind: str  # ``fortio``, ``nighthawk``, ``access log``, or another generator's form
    responses: Mapping[str, float]  # these and their bounds as in ``ingest.Measurement``
    bounds: Mapping[str, float]
    settings: LoadSettings | None  # the load, for fortio its whole result; None for an access log
    start_unix_s: float | None = None  # None if the file does not contain it
    notes: tuple[str, ...] = ()
    # How to get further percentiles into such a file; empty if it already has all that its requests allow.
    further: str = ""

    def __post_init__(self) -> None:
        reason = impossible(self.responses, self.bounds) or (
            _impossible_setting(self.settings) if self.settings else ""
        )
        if reason:
            raise InputFileError(self.path, reason)


def impossible(responses: Mapping[str, float], bounds: Mapping[str, float]) -> str:
    """Return why these cannot be the numbers of one run, given their bounds; empty if they can."""
    for name, value in responses.items():
        if name.startswith("latency_") and not 0 <= value <= LONGEST_S:
            return f"contains a latency of {value:g} s"
    requests, failed, rate = (responses.get(name) for name in ("requests", "error_ratio", "achieved_rps"))
    if failed is not None and not 0 <= failed <= 1:
        return f"reports {failed:g} times as many failed requests as requests in total"
    if rate is not None and not 0 <= rate <= _FASTEST_RPS:
        return f"contains a rate of {rate:g} requests per second"
    if requests and rate and requests / rate > LONGEST_RUN_S:
        return f"contains {requests:g} requests at {rate:g} per second, which would take years"
    largest = responses.get("latency_max_s", math.inf)
    for key in (*QUANTILES, "mean"):
        name = f"latency_{key}_s"
        bound = bounds.get(name, 0.0) + bounds.get("latency_max_s", 0.0)
        if largest < (responses.get(name, 0.0) - bound) * (1 - _SLACK):
            return f"its maximum is smaller than its {key}, so it is damaged or was edited"
    below, least = "", 0.0
    for key in QUANTILES:
        name = f"latency_{key}_s"
        if name in responses:
            bound = bounds.get(name, 0.0)
            if responses[name] + bound < least * (1 - _SLACK):
                return f"its {key} is smaller than its {below}, so it is damaged or was edited"
            below, least = key, max(least, responses[name] - bound)
    return ""


def _impossible_setting(settings: LoadSettings) -> str:
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            return f"contains a number that is too large: its {field.name} would be {value}"
        if field.name in _COUNTED and value is not None and value < 0:
            return f"contains {value:g} as its {field.name}"
    lasted = settings.actual_duration_s
    return f"has a duration of {lasted:g} s" if lasted is not None and lasted > LONGEST_RUN_S else ""


@dataclass(frozen=True)
class Difference:
    """A setting in which files differ."""

    setting: str
    values: tuple[str, ...]  # distinct, in order of the files
    blocking: bool  # True if latencies are not comparable across it

    def __str__(self) -> str:
        return f"{self.setting} differs: {', '.join(self.values)}"


def read_recorded(path: Path | str, sample_floor: float) -> Recorded:
    """Read a result or an access log, distinguished by how it starts; InputFileError names file and reason."""
    path = Path(path)
    start = read_bytes(path)[:64].lstrip()
    if start.startswith((b"latency,", b'{"latency"')):
        return _from_log(path, sample_floor)
    return _from_result(read_result(path), sample_floor)


def differences(results: Sequence[LoadSettings]) -> tuple[Difference, ...]:
    """Return settings that differ between files; a file without a setting is compatible with any value."""
    differing = []
    for setting in (field for field in fields(LoadSettings) if field.metadata):
        values = (getattr(result, setting.name) for result in results)
        distinct = tuple(_in_words(value) for value in dict.fromkeys(values) if value is not None)
        if len(distinct) > 1:
            differing.append(Difference(setting.metadata["label"], distinct, setting.metadata["blocking"]))
    return tuple(sorted(differing, key=lambda difference: not difference.blocking))


def merge_results(results: Sequence[FortioResult], sample_floor: float) -> tuple[dict[str, float], dict[str, float]]:
    """Return pooled quantiles of several generators of ONE run, and their bounds, from the sum of their counts.

    Raise UsageError if the histograms' resolutions differ.
    """
    return histogram_quantiles(histogram.merge(results).export(), sample_floor)


def _from_log(path: Path, sample_floor: float) -> Recorded:
    from meshtrial.load.accesslog import read_access_log  # needs polars, which results do not

    log = read_access_log(path)
    good = log.filter("ok")["latency_s"].to_numpy()
    starts = log["start_unix_ns"].to_numpy()
    last_end_s = float(np.max((starts - starts.min()) / 1e9 + log["latency_s"].to_numpy()))
    responses = {f"latency_{q}_s": value for q, value in quantiles.exact(good, sample_floor).items()}
    bounds = dict.fromkeys(responses, CLOCK_S)
    if good.size:
        responses |= {"latency_mean_s": float(good.mean()), "latency_max_s": float(good.max())}
    responses |= {
        "requests": float(log.height),
        "error_ratio": 1.0 - good.size / log.height,
        "achieved_rps": log.height / last_end_s if last_end_s > 0 else 0.0,
    }
    return Recorded(path, "access log", responses, bounds, None, float(starts.min()) / 1e9)


def _from_result(result: FortioResult, sample_floor: float) -> Recorded:
    notes: list[str] = []
    good = result.latency
    if result.errors is not None and result.errors.count:
        try:
            whole = histogram.rebuild(result.latency, result.resolution_s)
            good = histogram.subtract(whole, histogram.rebuild(result.errors, whole.resolution_s)).export()
        except UsageError as error:
            notes.append(f"the quantiles include failed requests: {error}")
    elif result.error_count:
        notes.append("the quantiles include failed requests: this fortio version does not separate them")
    responses, bounds = histogram_quantiles(good, sample_floor)
    if good.count:
        responses |= {"latency_mean_s": good.mean_s, "latency_max_s": good.max_s}
    responses |= {
        "requests": float(result.latency.count),
        "error_ratio": result.error_count / result.latency.count if result.latency.count else 1.0,
    }
    if result.actual_rps is not None:
        responses["achieved_rps"] = result.actual_rps
    start = None if result.start_unix_ns is None else result.start_unix_ns / 1e9
    return Recorded(result.path, result.generator, responses, bounds, result, start, tuple(notes))


def histogram_quantiles(data: ExportedHistogram, sample_floor: float) -> tuple[dict[str, float], dict[str, float]]:
    """Return quantiles that the sample floor allows, and the width of each one's bucket, in seconds."""
    responses: dict[str, float] = {}
    bounds: dict[str, float] = {}
    for name, q in QUANTILES.items():
        if quantiles.reportable(data.count, q, sample_floor):
            estimate = histogram.quantile(data, q)
            responses[f"latency_{name}_s"] = estimate.value_s
            bounds[f"latency_{name}_s"] = estimate.width_s
    return responses, bounds


def _in_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
