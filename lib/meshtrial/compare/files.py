"""From patterns to runs: results of load generators and access logs, gzip or plain.

Opinion: one file is one run. Only merging makes the files of one folder the generators of one run.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path

from meshtrial import paths
from meshtrial.compare.generators import merged_run, run_of
from meshtrial.compare.runs import Run
from meshtrial.errors import UsageError
from meshtrial.load.files import InputFileError


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
