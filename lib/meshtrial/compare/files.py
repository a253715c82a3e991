"""From patterns to runs: results of load generators and access logs, gzip or plain.

Opinion: one file is one run. Only merging makes the files of one folder the generators of one run. Their requests, or
counts of them, are then summed before a quantile is taken: percentiles are never averaged, and files that hold nothing
else are not merged.
"""

import dataclasses
import glob
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtrial import paths
from meshtrial.compare.formats import read_file
from meshtrial.compare.formats.latencies import Pool, Poolable, Requests, pooled
from meshtrial.compare.runs import Run
from meshtrial.errors import UsageError
from meshtrial.load.accesslog import CLOCK_S, read_access_log
from meshtrial.load.files import InputFileError
from meshtrial.load.recorded import Recorded, differences, merge_results
from meshtrial.load.result import FortioResult
from meshtrial.load.settings import LoadSettings

# Generators of one run share these; every other setting that matters must be equal.
_SHARED = {"rate (rps)": "requested_rps", "connections": "threads", "virtual users": "users"}


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
        raise UsageError(f"{paths.display_path(twice)}: is named twice")
    folders = {file.parent for file in files}
    if not name:
        common = next(iter(folders)).name if len(folders) == 1 else ""
        name = common or fallback
    if not merge:
        return name, [run_of(name, file, sample_floor) for file in files]
    groups = [[file for file in files if file.parent == folder] for folder in sorted(folders, key=_natural)]
    return name, [merged_run(name, group, sample_floor) for group in groups]


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


def run_of(treatment: str, file: Path, sample_floor: float) -> Run:
    """The run that a file holds."""
    return _run(treatment, paths.display_path(file), [file], read_file(file, sample_floor))


def merged_run(treatment: str, files: Sequence[Path], sample_floor: float) -> Run:
    """The run whose generators left these files of one folder."""
    parts = [read_file(file, sample_floor) for file in files]
    folder = files[0].parent
    merged = parts[0] if len(parts) == 1 else _merged(folder, parts, sample_floor)
    return _run(treatment, paths.display_path(folder), files, merged)


def _run(treatment: str, name: str, files: Sequence[Path], read: Recorded) -> Run:
    requests = read.responses.get("requests")
    return Run(
        treatment=treatment,
        name=name,
        kind=read.kind,
        values=read.responses,
        bounds=read.bounds,
        sources={file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
        settings=read.settings,
        start_unix_s=read.start_unix_s,
        requests=None if requests is None else round(requests * (1 - read.responses.get("error_ratio", 0.0))),
        notes=read.notes,
        further=read.further,
    )


def _merged(folder: Path, parts: Sequence[Recorded], sample_floor: float) -> Recorded:
    kinds = {part.kind for part in parts}
    results = [part.settings for part in parts if isinstance(part.settings, FortioResult)]
    if len(kinds) > 1 or 0 < len(results) < len(parts):
        listed = " and ".join(sorted(kinds))
        raise UsageError(
            f"{paths.display_path(folder)}: holds files of different forms ({listed}); merge files of one form "
            "(a result and its log are the same requests)"
        )
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    if results:
        failed = sum(result.error_count for result in results)
        notes = {f"{failed} failed requests are inside the merged quantiles": None} if failed else {}
        counts = [result.latency.count - result.error_count for result in results]
    else:
        pools = [_pool(part, folder) for part in parts]
        counts = [pool.count for pool in pools]
    settings = _one_load(folder, [part.settings for part in parts if part.settings is not None])
    values, bounds = merge_results(results, sample_floor) if results else pooled(pools, sample_floor)
    return Recorded(
        folder,
        parts[0].kind,
        values | _totals([part.responses for part in parts], counts),
        bounds,
        settings,
        min((part.start_unix_s for part in parts if part.start_unix_s is not None), default=None),
        tuple(notes),
        parts[0].further,
    )


def _pool(part: Recorded, folder: Path) -> Pool:
    if isinstance(part, Poolable):
        return part.pool
    if part.settings is None:  # an access log, which alone says nothing of the load
        return Requests(read_access_log(part.path).filter("ok")["latency_s"].to_numpy(), CLOCK_S)
    raise UsageError(
        f"{paths.display_path(folder)}: {part.kind} files cannot be merged: they hold percentiles, but neither "
        "requests nor counts of them; merge a form that keeps these (docs/reference/formats.md), or let one generator "
        "make a run"
    )


def _one_load(folder: Path, loads: Sequence[LoadSettings]) -> LoadSettings | None:
    """The load of all generators together; None where their files say nothing of it."""
    for difference in differences(loads):
        if difference.blocking and difference.setting not in _SHARED:
            raise UsageError(f"{paths.display_path(folder)}: generators of one run are not alike, {difference}")
    if not loads:
        return None
    totals: dict[str, Any] = {}
    for name in (*_SHARED.values(), "actual_rps"):
        known = [value for load in loads if (value := getattr(load, name)) is not None]
        totals[name] = sum(known) if len(known) == len(loads) else None
    # What dropped nothing says nothing of it.
    shares = [1.0 if load.sent_share is None else load.sent_share for load in loads]
    share = len(shares) / sum(1 / share for share in shares)
    return dataclasses.replace(loads[0], **totals, sent_share=None if share == 1 else share)


def _totals(parts: Sequence[Mapping[str, float]], counts: Sequence[int]) -> dict[str, float]:
    """Counts and rates of all generators together, and the mean over the requests behind each one's latencies."""
    requests = sum(part["requests"] for part in parts)
    totals = {"requests": requests}
    if all("error_ratio" in part for part in parts):
        failed = sum(part["requests"] * part["error_ratio"] for part in parts)
        totals["error_ratio"] = failed / requests if requests else 1.0
    weighed = [(part, n) for part, n in zip(parts, counts, strict=True) if n and "latency_mean_s" in part]
    if weighed:
        summed = sum(part["latency_mean_s"] * n for part, n in weighed)
        totals["latency_mean_s"] = summed / sum(n for _, n in weighed)
    if largest := [part["latency_max_s"] for part in parts if "latency_max_s" in part]:
        totals["latency_max_s"] = max(largest)
    if all("achieved_rps" in part for part in parts):
        totals["achieved_rps"] = sum(part["achieved_rps"] for part in parts)
    return totals
