"""From patterns to runs: results of load generators and access logs, gzip or plain.

Opinion: one file is one run. Only merging makes the files of one folder the generators of one run, and then counts
are summed before a quantile is taken: percentiles are never averaged.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from meshtrial import paths
from meshtrial.compare.formats import read_file
from meshtrial.compare.runs import Run
from meshtrial.errors import UsageError
from meshtrial.load import quantiles
from meshtrial.load.accesslog import CLOCK_S, read_access_log
from meshtrial.load.files import InputFileError
from meshtrial.load.recorded import Recorded, differences, merge_results
from meshtrial.load.result import FortioResult

# Generators of one run share its rate and its connections; everything else that matters must be equal.
_SHARED = ("rate (rps)", "connections")


def read_treatment(
    name: str, patterns: Sequence[str], sample_floor: float, *, merge: bool, fallback: str
) -> tuple[str, list[Run]]:
    """The name and the runs of a treatment; a folder stands for the files in it.

    Without a name it is that of the files' common folder, and without such a folder the fallback. ``merge``: the files
    of one folder are the generators of one run.
    """
    files = [file for pattern in patterns for file in _expand(pattern)]
    if len(set(files)) < len(files):
        twice = next(file for file in files if files.count(file) > 1)
        raise UsageError(f"{paths.shown(twice)}: is named twice")
    folders = {file.parent for file in files}
    if not name:
        common = next(iter(folders)).name if len(folders) == 1 else ""
        name = common or fallback
    if not merge:
        return name, [_run(name, file, read_file(file, sample_floor)) for file in files]
    groups = [[file for file in files if file.parent == folder] for folder in sorted(folders, key=_natural)]
    return name, [_merged(name, group, sample_floor) for group in groups]


def matching(pattern: str) -> list[Path]:
    """What a pattern matches, level by level: a name that is there is taken as it is, whatever its characters."""
    path = _at_home(pattern)
    found = [Path(path.anchor)]
    for part in path.parts[bool(path.anchor) :]:
        found = [inner for folder in found for inner in _called(folder, part)]
    return list(dict.fromkeys(found))


def _called(folder: Path, part: str) -> list[Path]:
    if os.path.exists(folder / part):  # noqa: PTH110 - what no file can be called is not there
        return [folder / part]
    here = [folder] if part == "**" else []
    return here + [folder / name for name in glob.glob(part, root_dir=folder, recursive=True)]  # noqa: PTH207


def _at_home(pattern: str) -> Path:
    return Path(os.path.expanduser(pattern))  # noqa: PTH111 - ~name of nobody is a name like others


def _expand(pattern: str) -> list[Path]:
    path, found = _at_home(pattern), matching(pattern)
    is_name = found == [path]
    if is_name and path.is_dir():
        found = [file for file in path.iterdir() if not file.name.startswith(".")]
    files = found if found == [path] else [file for file in found if file.is_file()]
    if not files:
        wild = any(c in pattern for c in "*?[")
        raise InputFileError(path, "matches no file" if wild or is_name else "there is no such file")
    return sorted(files, key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort key in which run-2 comes before run-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path)) if part]


def _run(treatment: str, file: Path, read: Recorded) -> Run:
    return Run(
        treatment=treatment,
        name=paths.shown(file),
        kind=read.kind,
        values=read.responses,
        bounds=read.bounds,
        sources={file: hashlib.sha256(file.read_bytes()).hexdigest()},
        settings=read.settings,
        start_unix_s=read.start_unix_s,
        requests=_good(read),
        notes=read.notes,
        further=read.further,
    )


def _good(read: Recorded) -> int | None:
    count = read.responses.get("requests")
    return None if count is None else round(count * (1 - read.responses.get("error_ratio", 0.0)))


def _merged(treatment: str, files: Sequence[Path], sample_floor: float) -> Run:
    parts = [read_file(file, sample_floor) for file in files]
    if len(parts) == 1:
        return dataclasses.replace(_run(treatment, files[0], parts[0]), name=paths.shown(files[0].parent))
    kinds = {part.kind for part in parts}
    if len(kinds) > 1:
        raise UsageError(
            f"{paths.shown(files[0].parent)}: holds {' and '.join(sorted(kinds))} of what merging takes for one run; "
            "merge results or access logs, not both (a result and its log are the same requests)"
        )
    results = [part.settings for part in parts if isinstance(part.settings, FortioResult)]
    if not results and parts[0].settings is not None:
        raise UsageError(
            f"{paths.shown(files[0].parent)}: merging is for fortio results and access logs; {parts[0].kind} files "
            "are not merged, let one generator make a run"
        )
    runs = [_run(treatment, file, part) for file, part in zip(files, parts, strict=True)]
    if not results:
        values, bounds = _merged_logs(files, parts, sample_floor)
        settings = None
    else:
        settings = _one_load(results, files[0].parent)
        values, bounds = merge_results(results, sample_floor)
        values |= _totals(parts)
    return Run(
        treatment=treatment,
        name=paths.shown(files[0].parent),
        kind=parts[0].kind,
        values=values,
        bounds=bounds,
        sources={file: digest for run in runs for file, digest in run.sources.items()},
        settings=settings,
        start_unix_s=min((run.start_unix_s for run in runs if run.start_unix_s is not None), default=None),
        requests=sum(run.requests or 0 for run in runs),
        notes=_failed_inside(results),
    )


def _one_load(results: Sequence[FortioResult], folder: Path) -> FortioResult:
    for difference in differences(results):
        if difference.blocking and difference.setting not in _SHARED:
            raise UsageError(f"{paths.shown(folder)}: generators of one run are not alike, {difference}")
    rates = [result.requested_rps for result in results]
    rate = sum(r for r in rates if r is not None) if all(r is not None for r in rates) else None
    actual = [result.actual_rps for result in results]
    return dataclasses.replace(
        results[0],
        requested_rps=rate,
        actual_rps=sum(r for r in actual if r is not None) if all(r is not None for r in actual) else None,
        threads=sum(result.threads for result in results),
    )


def _totals(parts: Iterable[Recorded]) -> dict[str, float]:
    """Counts and rates of all generators together, and the mean over their requests."""
    several = [part.responses for part in parts]
    requests = sum(part["requests"] for part in several)
    failed = sum(part["requests"] * part["error_ratio"] for part in several)
    totals = {"requests": requests, "error_ratio": failed / requests if requests else 1.0}
    good = [(part["requests"] * (1 - part["error_ratio"]), part) for part in several if "latency_mean_s" in part]
    if good:
        totals["latency_mean_s"] = sum(n * part["latency_mean_s"] for n, part in good) / sum(n for n, _ in good)
        totals["latency_max_s"] = max(part["latency_max_s"] for _, part in good)
    if all("achieved_rps" in part for part in several):
        totals["achieved_rps"] = sum(part["achieved_rps"] for part in several)
    return totals


def _merged_logs(
    files: Sequence[Path], parts: Sequence[Recorded], sample_floor: float
) -> tuple[dict[str, float], dict[str, float]]:
    requests = pl.concat([read_access_log(file).filter("ok")["latency_s"] for file in files]).to_numpy()
    values = {f"latency_{q}_s": value for q, value in quantiles.exact(requests, sample_floor).items()}
    return values | _totals(parts), dict.fromkeys(values, CLOCK_S)


def _failed_inside(results: Sequence[FortioResult]) -> tuple[str, ...]:
    failed = sum(result.error_count for result in results)
    return (f"{failed} failed requests are inside the merged quantiles",) if failed else ()
