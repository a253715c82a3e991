"""A study as one file, for publication: a zip of its folder, from which large files can be left out.

The zip names what was left out, and every run's ``SHA256SUMS`` still lists it with its checksum. So the owner of the
original folder can show that both are the same study. Records themselves are never changed.
"""

import json
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from meshtrial import paths
from meshtrial.errors import RecordError, UsageError, writing
from meshtrial.records.schema import TEMPORARY

SCHEMA = "meshtrial.packed/1"
SUFFIX = ".zip"
NOTE = "packed.json"
# Never packed, for this machine only: the lock, and the paths of the files that the plan names.
LOCK, HERE = ".lock", ".here.json"
# Files whose digests identify a study: its plan is sealed, and SHA256SUMS lists every file of a run.
SEALING = ("plan.json", "environment.json", "runs/[!.]*/SHA256SUMS")
# The parts that can be left out, each with a test for its files in a run. Verdicts and most figures do not need them.
PARTS: dict[str, Callable[[str], bool]] = {
    "requests": "latency.parquet".__eq__,
    "logs": lambda name: name.startswith("logs/"),
}
# A zip's oldest date, so that a study gives the same bytes whenever it is packed.
_DATE = (1980, 1, 1, 0, 0, 0)
# What zipfile raises for a truncated, altered or encrypted file, or an unknown compression.
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)
# More bytes than the largest study has, and a higher compression than its files reach. `pack` makes no zip that
# declares more, and zipfile never reads more of a file than the zip declares.
_MOST_BYTES, _MOST_TIMES = 64 * 2**30, 100
_FEW_BYTES = 2**28  # always accepted
_MOST_READ = 2**26  # of a file that is read whole


def pack(folder: Path, target: Path, without: Sequence[str] = ()) -> Path:
    """Write a study's folder, ``<study>/<UTC>-<hash>``, as one zip file; an existing one is replaced.

    ``without`` lists the :data:`PARTS` that are left out.
    """
    if target.suffix != SUFFIX:
        raise UsageError(f"{target}: the name of a packed study ends in {SUFFIX}")
    for name in without:
        if name not in PARTS:
            raise UsageError(f"--without {name}: must be one of {', '.join(PARTS)}")
    if not (folder / "verdicts.json").is_file():
        raise RecordError(
            f"{folder}: has no verdicts yet; `meshtrial report {paths.word(folder)}` makes them from the records"
        )
    # A link would include the file of this machine that it points to.
    if links := sorted(path for path in folder.rglob("*") if path.is_symlink()):
        raise RecordError(f"{links[0]}: is a link, and a packed study contains only files; remove it")
    absent = sorted({*without, *left_out(folder)})
    note = json.dumps({"schema": SCHEMA, "left_out": absent}, indent=1) + "\n"
    home = PurePosixPath(folder.parent.name, folder.name)
    partial = target.with_name(target.name + ".partial")
    try:
        with writing(target):
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
                made.writestr(_entry(home / NOTE), note)
                for path in files(folder, absent):
                    entry = _entry(home / path.relative_to(folder).as_posix())
                    entry.file_size = path.stat().st_size
                    with path.open("rb") as source, made.open(entry, "w") as packed:
                        shutil.copyfileobj(source, packed)
            partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def files(folder: Path, without: Sequence[str] = ()) -> list[Path]:
    """Return the files of a study's folder that are packed, sorted."""
    kept = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder).parts
        of_run = "/".join(inside[2:]) if inside[0] == "runs" else ""
        half = any(part.startswith(TEMPORARY) for part in inside)  # of a run that a crash cut off
        if inside not in ((NOTE,), (LOCK,), (HERE,)) and not half and not is_left_out(of_run, without):
            kept.append(path)
    return kept


def unpack(file: Path, root: Path | None = None, check: Callable[[Path], Sequence[str]] = lambda run: ()) -> Path:
    """Unpack a packed study below `root`, by default that of recorded studies, and return its folder.

    A study that is already unpacked there is left alone. RecordError if the file is not a packed study or is damaged,
    if another study is in its place, or if `check` returns a problem of a run's folder.
    """
    root = paths.studies_root() if root is None else root
    damaged = f"{file}: is not a whole packed study"
    try:
        with zipfile.ZipFile(file) as packed:
            home = _home(packed, file, damaged)
            target = root.joinpath(*home.parts)
            if target.exists():
                _require_same(packed, home, target, file)
                return target
            target.parent.mkdir(parents=True, exist_ok=True)
            size, free = _size(packed), shutil.disk_usage(target.parent).free
            if size > free:
                raise RecordError(f"{file}: takes {size} bytes, and {target.parent} has {free} left; make room")
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpacking-") as private:
                packed.extractall(private)
                folder = Path(private).joinpath(*home.parts)
                wrong = [line for run in sorted(folder.glob("runs/[!.]*")) for line in check(run)]
                if wrong:
                    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
                    raise RecordError(
                        f"{file}: differs from what was recorded: {wrong[0].replace(f'{private}/', '')}{more}"
                    )
                try:
                    folder.rename(target)
                except OSError:  # another process was first
                    if not target.is_dir():
                        raise
            return target
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file") from None
    except DAMAGED as error:
        raise RecordError(f"{damaged} ({error}); fetch it again") from None
    except OSError as error:
        raise RecordError(f"{file}: cannot be unpacked into {root} ({error.strerror or error})") from None


def left_out(folder: Path) -> tuple[str, ...]:
    """Return the :data:`PARTS` that a study's folder lacks because it was packed without them."""
    try:
        return _left_out_of((folder / NOTE).read_bytes(), f"{folder / NOTE}")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise RecordError(f"{folder / NOTE}: cannot be read ({error}); unpack the study again") from None


def _left_out_of(data: bytes, called: str) -> tuple[str, ...]:
    try:
        note = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{called}: cannot be read ({error}); unpack the study again") from None
    names = note.get("left_out") if isinstance(note, dict) and note.get("schema") == SCHEMA else None
    if not isinstance(names, list) or not all(isinstance(name, str) and name in PARTS for name in names):
        raise RecordError(f"{called}: is not of the form {SCHEMA}; unpack the study again")
    return tuple(names)


def is_left_out(name: str, parts: Sequence[str]) -> bool:
    """Whether a file of a run, by its name in ``SHA256SUMS``, belongs to one of these parts."""
    return any(PARTS[part](name) for part in parts)


def _entry(name: PurePosixPath) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(str(name), _DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def _require_same(packed: zipfile.ZipFile, home: PurePosixPath, target: Path, file: Path) -> None:
    """Refuse a folder that holds other records than the file, by the files that contain the digests of all runs."""
    held = {name: packed.read(info) for name, info in _read_whole(packed, home).items()}
    note = held.pop(NOTE)
    there = [path for pattern in SEALING for path in target.glob(pattern)]
    if held != {path.relative_to(target).as_posix(): path.read_bytes() for path in there}:
        raise RecordError(f"{target}: is another study than the one in {file}; move it away")
    absent = set(left_out(target)) - set(_left_out_of(note, f"{file}: its {NOTE}"))
    if absent:
        named = " and ".join(sorted(absent))
        raise RecordError(f"{target}: was unpacked without {named}, which {file} contains; move the folder away")


def _read_whole(packed: zipfile.ZipFile, home: PurePosixPath) -> dict[str, zipfile.ZipInfo]:
    """Return the files that identify a study by digest, and its note, each by its name in the study."""
    inside = {PurePosixPath(info.filename).relative_to(home): info for info in packed.infolist()}
    patterns = [PurePosixPath(pattern) for pattern in (NOTE, *SEALING)]
    return {
        name.as_posix(): info
        for name, info in inside.items()
        if any(name.match(str(pattern)) and len(name.parts) == len(pattern.parts) for pattern in patterns)
    }


def _size(packed: zipfile.ZipFile) -> int:
    return sum(info.file_size for info in packed.infolist())


def _home(packed: zipfile.ZipFile, file: Path, damaged: str) -> PurePosixPath:
    """The one folder ``<study>/<UTC>-<hash>`` that holds everything."""
    names = [PurePosixPath(info.filename) for info in packed.infolist()]
    homes = {PurePosixPath(*name.parts[:2]) for name in names}
    unsafe = any(name.is_absolute() or ".." in name.parts for name in names)
    if len(homes) != 1 or unsafe or any(len(name.parts) < 3 for name in names):
        raise RecordError(f"{damaged} (its files are not all in one study's folder)")
    size = _size(packed)
    if size > _MOST_BYTES:
        raise RecordError(f"{damaged} (it would unpack to more than {_MOST_BYTES // 2**30} GiB)")
    if size > max(_FEW_BYTES, _MOST_TIMES * file.stat().st_size):
        raise RecordError(f"{damaged} (it would unpack to {_MOST_TIMES} times its size or more)")
    (home,) = homes
    whole = _read_whole(packed, home)
    for name, info in whole.items():
        if info.file_size > _MOST_READ:
            raise RecordError(f"{damaged} ({name} would be {info.file_size} bytes)")
    for needed in (NOTE, "plan.json"):
        if needed not in whole:
            raise RecordError(f"{damaged} (there is no {needed})")
    return home
