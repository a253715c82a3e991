"""The latencies of a file as responses, each with its resolution.

A file contains every request, or counts in buckets, or percentiles that the tool computed itself. The first two kinds
are read like fortio's. A percentile of the third kind is used unchanged, with the resolution of its printed digits.

A percentile of several load generators is computed from their requests or counts, never from their percentiles. The
bucket edges of two files hardly ever agree. The pooled quantile is then known to lie between two edges, and their
distance is its resolution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshtrial.compare.formats.source import Source, several_runs
from meshtrial.design.responses import PERCENTILES, QUANTILES
from meshtrial.load import quantiles
from meshtrial.load.files import LONGEST_S, Fields, InputFileError
from meshtrial.load.recorded import Recorded, histogram_quantiles, impossible
from meshtrial.load.result import Bucket, ExportedHistogram, LoadSettings

_SLACK = 1e-6
_ROUNDED = 1e-3  # histograms round the values that they count, but not their minimum and maximum


@dataclass(frozen=True)
class Latencies:
    """The latencies of one run."""

    values: Mapping[str, float]  # by response, in seconds
    bounds: Mapping[str, float]  # resolution in seconds
    failed_inside: bool = False  # whether failed requests are included
    pool: Pool | None = None  # their source; None if the file has only percentiles


@dataclass(frozen=True)
class Poolable(Recorded):
    """A run and what several load generators are merged by; None if its file has only percentiles."""

    pool: Pool | None = field(kw_only=True)


@dataclass(frozen=True)
class Reading:
    """A number of a file in seconds, with the resolution of its digits."""

    value_s: float
    width_s: float = 0.0


@dataclass(frozen=True)
class Summary:
    """The minimum, mean and maximum of latencies, if the file has them."""

    smallest: Reading | None = None
    mean: Reading | None = None
    largest: Reading | None = None


def summary(fields: Fields, names: tuple[str, str, str], unit_s: float) -> Summary:
    """Return minimum, mean and maximum of a file, given their names there."""
    return Summary(*(reading(fields, name, unit_s) for name in names))


def reading(fields: Fields, name: str, unit_s: float) -> Reading | None:
    """Return a number of a file in seconds; None if it is missing."""
    value = fields.number(name)
    return None if value is None else Reading(value * unit_s)


def readings(fields: Fields, called: str, unit_s: float) -> dict[str, Reading]:
    """Return a file's percentiles by their keys in the registry; ``called`` is a format such as ``p({})``."""
    names = {key: called.format(q.label.removeprefix("p")) for key, q in PERCENTILES.items()}
    return {key: known for key, name in names.items() if (known := reading(fields, name, unit_s)) is not None}


def of_requests(
    source: Source, latencies_s: Sequence[float], good: Sequence[bool], sample_floor: float, resolution_s: float
) -> Latencies:
    """Return exact quantiles of the good requests; no quantiles if there are none."""
    every: NDArray[Any] = np.asarray(latencies_s, dtype=np.float64)
    _require_sound(source, every)
    kept = every[np.asarray(good, dtype=bool)]
    pool = Requests(kept, resolution_s)
    if not kept.size:
        return Latencies({}, {}, pool=pool)
    values = {f"latency_{q}_s": value for q, value in quantiles.exact(kept, sample_floor).items()}
    bounds = dict.fromkeys(values, resolution_s)
    values |= {"latency_mean_s": float(kept.mean()), "latency_max_s": float(kept.max())}
    return Latencies(values, bounds, pool=pool)


def refuse_repeated(source: Source, ends: Sequence[float], latencies_s: Sequence[float]) -> None:
    """Raise InputFileError if every request occurs several times, with the same end and latency."""
    distinct = len(set(zip(ends, latencies_s, strict=True)))
    if 0 < 2 * distinct <= len(ends):
        times = len(ends) // distinct
        raise several_runs(source.path, times, f"each of {distinct} requests occurs {times} times")


def of_counts(
    source: Source,
    ends_s: Sequence[float],
    counts: Sequence[int],
    sample_floor: float,
    first_s: float | None = None,
    *,
    smallest_s: float | None = None,
    largest_s: float | None = None,
) -> Latencies:
    """Return quantiles of counts in consecutive buckets, given the end of each.

    The last bucket may have no end; no quantile is taken from it then. The first begins at ``first_s``; by default it
    has a single value, its end. InputFileError if a bucket lies beyond a known minimum or maximum.
    """
    endless = bool(ends_s) and math.isinf(ends_s[-1])
    _require_sound(source, np.asarray(ends_s[:-1] if endless else ends_s, dtype=np.float64))
    start = ends_s[0] if first_s is None else first_s
    buckets = []
    for end, count in zip(ends_s, counts, strict=True):
        if count < 0 or end < start * (1 - _SLACK):
            raise InputFileError(source.path, f"its counts contradict each other ({count} up to {end:g} s)")
        if count:
            buckets.append(Bucket(start, max(start, end), count))
        start = end
    pool = Counts.of(buckets)
    if not buckets:
        return Latencies({}, {}, pool=pool)
    for name, beyond in (
        ("minimum", smallest_s is not None and buckets[0].end_s < smallest_s * (1 - _ROUNDED)),
        ("maximum", largest_s is not None and buckets[-1].start_s > largest_s * (1 + _ROUNDED)),
    ):
        if beyond:
            raise InputFileError(source.path, f"its counts lie beyond its {name}; it is damaged or was edited")
    low = max(buckets[0].start_s, smallest_s or 0.0)
    high = buckets[-1].end_s if largest_s is None else min(buckets[-1].end_s, largest_s)
    exported = ExportedHistogram(pool.count, low, high, low, None, tuple(buckets))
    values, bounds = histogram_quantiles(exported, sample_floor)
    kept = {name: value for name, value in values.items() if math.isfinite(value)}
    return Latencies(kept, {name: bounds[name] for name in kept}, failed_inside=True, pool=pool)


def of_percentiles(
    source: Source,
    percentiles: Mapping[str, Reading],
    good: int | None,
    sample_floor: float,
    bounds: Summary = Summary(),
    *,
    failed_inside: bool = True,
) -> Latencies:
    """Return percentiles (``p50``, ``p999``) that the tool computed and the sample floor allows.

    ``good`` is the number of requests behind them; None if the file does not contain it, then all are returned.
    InputFileError if they contradict each other, or the minimum, mean and maximum in ``bounds``.
    """
    if good == 0:  # numbers for no requests are no latencies
        return Latencies({}, {})
    known = {key: percentiles[key] for key in QUANTILES if key in percentiles}
    known |= {key: one for key, one in (("mean", bounds.mean), ("max", bounds.largest)) if one is not None}
    values = {f"latency_{key}_s": reading.value_s for key, reading in known.items()}
    widths = {f"latency_{key}_s": reading.width_s for key, reading in known.items() if reading.width_s}
    if reason := impossible(values, widths):
        raise InputFileError(source.path, reason)
    if (least := bounds.smallest) is not None:
        _require_sound(source, np.array([least.value_s]))
        for key, reading in known.items():
            if reading.value_s < (least.value_s - least.width_s - reading.width_s) * (1 - _SLACK):
                reason = f"its {key} is smaller than its minimum, so it is damaged or was edited"
                raise InputFileError(source.path, reason)
    few = {key for key, q in QUANTILES.items() if good is not None and not quantiles.reportable(good, q, sample_floor)}
    kept = [f"latency_{key}_s" for key in known if key not in few]
    widths = {name: widths[name] for name in kept if name in widths}
    return Latencies({name: values[name] for name in kept}, widths, failed_inside)


def recorded_requests(
    source: Source,
    kind: str,
    latencies_s: Sequence[float],
    good: Sequence[bool],
    settings: LoadSettings,
    sample_floor: float,
    resolution_s: float,
    *notes: str,
) -> Poolable:
    """Return the run of a file with every request."""
    latencies = of_requests(source, latencies_s, good, sample_floor, resolution_s)
    requests, failed = len(latencies_s), list(good).count(False)
    return recorded(source, kind, latencies, settings, requests=requests, failed=failed, notes=notes)


def recorded(
    source: Source,
    kind: str,
    latencies: Latencies,
    settings: LoadSettings,
    *,
    requests: int | None,
    failed: int | None,
    notes: Sequence[str] = (),
    further: str = "",
) -> Poolable:
    """Return the run; ``requests`` and ``failed`` are None if the file does not contain them.

    ``notes`` explain its latencies, ``further`` how to get further percentiles. InputFileError for impossible counts.
    """
    if requests is not None and requests <= 0:
        raise InputFileError(source.path, f"has {requests} requests; the run made none")
    if failed is not None and (failed < 0 or (requests is not None and failed > requests)):
        raise InputFileError(source.path, f"has {failed} failed requests of {requests}")
    responses = dict(latencies.values)
    if requests is not None:
        responses["requests"] = float(requests)
        if failed is not None:
            responses["error_ratio"] = failed / requests
    if settings.actual_rps is not None:
        responses["achieved_rps"] = settings.actual_rps
    notes = [*notes]
    if failed and latencies.failed_inside:
        notes.append("the quantiles include failed requests, which the file does not separate")
    start = None if settings.start_unix_ns is None else settings.start_unix_ns / 1e9
    told = (settings, start, tuple(notes), further)
    return Poolable(source.path, kind, responses, latencies.bounds, *told, pool=latencies.pool)


def _require_sound(source: Source, latencies_s: NDArray[Any]) -> None:
    wrong = latencies_s[~((latencies_s >= 0) & (latencies_s <= LONGEST_S))]
    if wrong.size:
        raise InputFileError(source.path, f"has a latency of {wrong[0]:g} s")


@dataclass(frozen=True)
class Requests:
    """The latencies of all good requests of a file."""

    latencies_s: NDArray[Any]
    resolution_s: float

    @property
    def count(self) -> int:
        """Number of requests."""
        return len(self.latencies_s)


@dataclass(frozen=True)
class Counts:
    """Lower and upper limits of the number of requests up to each edge; edges are increasing."""

    edges_s: NDArray[Any]
    at_least: NDArray[Any]
    at_most: NDArray[Any]
    count: int  # including those beyond the last edge

    @classmethod
    def of(cls, buckets: Sequence[Bucket]) -> Counts:
        """Return the counts of consecutive buckets; the last may have no end."""
        up_to: dict[float, int] = {}
        count = 0
        for bucket in buckets:
            # A bucket of one value begins just below it.
            up_to.setdefault(min(bucket.start_s, math.nextafter(bucket.end_s, 0.0)), count)
            count += bucket.count
            up_to[bucket.end_s] = count
        up_to.pop(math.inf, None)
        edges = sorted(up_to)
        counts = np.array([up_to[edge] for edge in edges])
        return cls(np.array(edges), counts, counts, count)

    def narrowed(self, at_most: Mapping[float, int]) -> Counts:
        """Return the counts with further upper limits: edge to number of requests."""
        edges = np.unique([*self.edges_s, *at_most])
        known = np.array([at_most.get(edge, self.count) for edge in edges])
        return Counts(edges, _least(self, edges), np.minimum(known, _most(self, edges)), self.count)


Pool = Requests | Counts


def pooled(parts: Sequence[Pool], sample_floor: float) -> tuple[dict[str, float], dict[str, float]]:
    """Return the quantiles of all parts together that the sample floor allows, and their resolutions, in seconds.

    All parts are of one kind; results are by response.
    """
    requests = [part for part in parts if isinstance(part, Requests)]
    counts = [part for part in parts if isinstance(part, Counts) and part.count]
    known: dict[str, tuple[float, float]] = {}
    if requests:
        width = max(part.resolution_s for part in requests)
        values = quantiles.exact(np.concatenate([part.latencies_s for part in requests]), sample_floor)
        known = {key: (value, width) for key, value in values.items()}
    for key, q in QUANTILES.items() if counts else ():
        if quantiles.reportable(sum(part.count for part in counts), q, sample_floor) and (at := _between(counts, q)):
            known[key] = at
    named = {f"latency_{key}_s": at for key, at in known.items()}
    return {name: value for name, (value, _) in named.items()}, {name: width for name, (_, width) in named.items()}


def _between(parts: Sequence[Counts], q: float) -> tuple[float, float] | None:
    """Return the interpolated quantile and the distance of the edges around it; None beyond a part's last edge."""
    edges = np.unique(np.concatenate([part.edges_s for part in parts]))
    # Lower and upper limits of the number of requests up to an edge, and a linear interpolation.
    least, most = (sum(take(part, edges) for part in parts) for take in (_least, _most))
    likely = sum(np.interp(edges, part.edges_s, part.at_most, left=0) for part in parts)
    rank = q * sum(part.count for part in parts) * (1 - 1e-12)
    above = np.flatnonzero(least >= rank)
    if not len(above):
        return None
    high = edges[above[0]]
    low = max(edges[most < rank], default=0.0)
    value = np.interp(rank, likely, edges)
    return float(np.clip(value, low, high)), float(high - low)


def _least(part: Counts, edges: NDArray[Any]) -> Any:
    before = np.searchsorted(part.edges_s, edges, side="right") - 1
    return np.append(part.at_least, 0)[before]  # none before the first edge


def _most(part: Counts, edges: NDArray[Any]) -> Any:
    after = np.searchsorted(part.edges_s, edges, side="left")
    return np.append(part.at_most, part.count)[after]
