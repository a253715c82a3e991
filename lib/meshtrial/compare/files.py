"""From file patterns to runs: results of load generators and access logs, gzip or plain.

One file is one run. With merging, the files of one folder are load generators of one run: their requests, or counts of
requests, are combined before a quantile is taken. Percentiles are never averaged, so files with nothing else are not
merged.
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
from meshtrial.load.files import CLOCK_S, InputFileError
from meshtrial.load.recorded import Recorded, differences, merge_results
from meshtrial.load.result import FortioResult, LoadSettings

# Load generators of one run share these; all other relevant settings must be equal.
_SHARED = {"rate (rps)": "requested_rps", "connections": "threads", "virtual users": "users"}


def read_treatment(
    name: str, patterns: Sequence[str], sample_floor: float, *, merge: bool, fallback: str
) -> tuple[str, list[Run]]:
    """Return name and runs of a treatment; a folder stands for the files in it.

    An empty name becomes that of the files' common folder, else the fallback. With ``merge`` the files of one folder
    are load generators of one run.
    """
    files = [file for pattern in patterns for file in _expand(pattern)]
    if len(set(files)) < len(files):
        twice = next(file for file in files if files.count(file) > 1)
        raise UsageError(f"{paths.display_path(twice)}: is given twice")
    folders = {file.parent for file in files}
    if not name:
        common = next(iter(folders)).name if len(folders) == 1 else ""
        name = common or fallback
    if not merge:
        return name, [run_of(name, paths.display_path(file), [file], sample_floor) for file in files]
    groups = {folder: [file for file in files if file.parent == folder] for folder in sorted(folders, key=_natural)}
    return name, [run_of(name, paths.display_path(at), group, sample_floor) for at, group in groups.items()]


def matching(pattern: str) -> list[Path]:
    """Return what a pattern matches, level by level; an existing name is not treated as a pattern."""
    path = _at_home(pattern)
    matches = [Path(path.anchor)]
    for part in path.parts[bool(path.anchor) :]:
        matches = [inner for folder in matches for inner in _inside(folder, part)]
    return list(dict.fromkeys(matches))


def _inside(folder: Path, part: str) -> list[Path]:
    if os.path.exists(folder / part):  # noqa: PTH110 - false for an impossible name
        return [folder / part]
    itself = [folder] if part == "**" else []
    return itself + [folder / name for name in glob.glob(part, root_dir=folder, recursive=True)]  # noqa: PTH207


def _at_home(pattern: str) -> Path:
    return Path(os.path.expanduser(pattern))  # noqa: PTH111 - ~name of no user is an ordinary name


def _expand(pattern: str) -> list[Path]:
    path, matches = _at_home(pattern), matching(pattern)
    is_name = matches == [path]
    if is_name and path.is_dir():
        matches = [file for file in path.iterdir() if not file.name.startswith(".")]
    files = matches if matches == [path] else [file for file in matches if file.is_file()]
    if not files:
        is_pattern = any(c in pattern for c in "*?[")
        raise InputFileError(path, "matches no file" if is_pattern or is_name else "there is no such file")
    return sorted(files, key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that puts run-2 before run-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path)) if part]


def run_of(treatment: str, name: str, files: Sequence[Path], sample_floor: float) -> Run:
    """Return the run in a file, or of several load generators in the files of one folder."""
    parts = [read_file(file, sample_floor) for file in files]
    read = parts[0] if len(parts) == 1 else _merged(files[0].parent, parts, sample_floor)
    sources = {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    recorded = {field.name: getattr(read, field.name) for field in dataclasses.fields(Recorded)}
    return Run(**recorded, treatment=treatment, name=name, sources=sources)


def _merged(folder: Path, parts: Sequence[Recorded], sample_floor: float) -> Recorded:
    kinds = {part.kind for part in parts}
    results = [part.settings for part in parts if isinstance(part.settings, FortioResult)]
    if len(kinds) > 1 or 0 < len(results) < len(parts):
        listed = " and ".join(sorted(kinds))
        raise UsageError(
            f"{paths.display_path(folder)}: has files of different formats ({listed}); merge files of one format "
            "(a result and its log contain the same requests)"
        )
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    if results:
        failed = sum(result.error_count for result in results)
        notes = {f"the merged quantiles include {failed} failed requests": None} if failed else {}
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
    if isinstance(part, Poolable) and part.pool is not None:
        return part.pool
    if part.settings is None:  # only an access log contains no settings
        from meshtrial.load.accesslog import read_access_log  # needs polars, which results do not

        return Requests(read_access_log(part.path).filter("ok")["latency_s"].to_numpy(), CLOCK_S)
    raise UsageError(
        f"{paths.display_path(folder)}: {part.kind} files cannot be merged because they contain only percentiles; "
        "use a format with requests or counts (docs/reference/formats.md), or one load generator per run"
    )


def _one_load(folder: Path, loads: Sequence[LoadSettings]) -> LoadSettings | None:
    """Return the load of all generators together; None if their files do not contain it."""
    for difference in differences(loads):
        if difference.blocking and difference.setting not in _SHARED:
            raise UsageError(f"{paths.display_path(folder)}: load generators of one run differ, {difference}")
    if not loads:
        return None
    totals: dict[str, Any] = {}
    for name in (*_SHARED.values(), "actual_rps"):
        known = [value for load in loads if (value := getattr(load, name)) is not None]
        totals[name] = sum(known) if len(known) == len(loads) else None
    # Files without dropped requests have no share.
    shares = [1.0 if load.sent_share is None else load.sent_share for load in loads]
    share = len(shares) / sum(1 / share for share in shares)
    return dataclasses.replace(loads[0], **totals, sent_share=None if share == 1 else share)


def _totals(parts: Sequence[Mapping[str, float]], counts: Sequence[int]) -> dict[str, float]:
    """Return counts and rates of all generators together, and their mean latency weighted by ``counts``."""
    requests = sum(part["requests"] for part in parts)
    totals = {"requests": requests}
    if all("error_ratio" in part for part in parts):
        failed = sum(part["requests"] * part["error_ratio"] for part in parts)
        totals["error_ratio"] = failed / requests if requests else 1.0
    weighted = [(part, n) for part, n in zip(parts, counts, strict=True) if n and "latency_mean_s" in part]
    if weighted:
        total_s = sum(part["latency_mean_s"] * n for part, n in weighted)
        totals["latency_mean_s"] = total_s / sum(n for _, n in weighted)
    if largest := [part["latency_max_s"] for part in parts if "latency_max_s" in part]:
        totals["latency_max_s"] = max(largest)
    if all("achieved_rps" in part for part in parts):
        totals["achieved_rps"] = sum(part["achieved_rps"] for part in parts)
    return totals
