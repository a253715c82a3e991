"""A study as one file, for publication: a tar.xz of its folder, from which large files can be left out.

The runs of a study are alike, so compressing them as one stream takes a fraction of what compressing each file takes.
Earlier versions packed into a zip, which is still read.

The archive names what was left out, and every run's ``SHA256SUMS`` still lists it with its checksum. So the owner of
the original folder can show that both are the same study. Records themselves are never changed.
"""

import io
import json
import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self, cast

from meshtrial import paths
from meshtrial.errors import RecordError, UsageError, writing
from meshtrial.records.schema import TEMPORARY

SCHEMA = "meshtrial.packed/1"
SUFFIX = ".tar.xz"
ZIP = ".zip"  # of earlier versions, only read
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
# What the archive modules raise for a truncated, altered or encrypted file, or an unknown compression.
DAMAGED = (tarfile.TarError, lzma.LZMAError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)
_PRESET = 6 | lzma.PRESET_EXTREME
# More than the largest study has, and a higher compression than its files reach.
_MOST_FILES, _MOST_BYTES, _MOST_TIMES = 50_000, 64 * 2**30, 1000
_FEW_BYTES = 2**28  # always accepted
_MOST_READ = 2**26  # of the files that are read whole
_MOST_MEMORY = 2**27  # for decompression; xz's largest preset takes half of it
_LONGEST_NAME = 2**12


@dataclass(frozen=True)
class _Contents:
    """What a packed study would unpack to: its folder ``<study>/<UTC>-<hash>``, its bytes, and what identifies it.

    ``sealing`` has the note and the files of :data:`SEALING`, by their names in the folder.
    """

    home: PurePosixPath
    size: int
    sealing: dict[str, bytes]


def is_packed(path: Path) -> bool:
    """Whether a file's name is that of a packed study."""
    return path.name.endswith((SUFFIX, ZIP))


def pack(folder: Path, target: Path, without: Sequence[str] = ()) -> Path:
    """Write a study's folder, ``<study>/<UTC>-<hash>``, as one file; an existing one is replaced.

    ``without`` lists the :data:`PARTS` that are left out. The same study gives the same bytes.
    """
    if not target.name.endswith(SUFFIX):
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
    note = (json.dumps({"schema": SCHEMA, "left_out": absent}, indent=1) + "\n").encode()
    home = PurePosixPath(folder.parent.name, folder.name)
    partial = target.with_name(target.name + ".partial")
    with writing(target):
        try:
            with (
                lzma.open(partial, "wb", preset=_PRESET) as made,
                tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as archive,
            ):
                archive.addfile(_entry(home / NOTE, len(note)), io.BytesIO(note))
                # Files of one name are alike, so they follow each other.
                for path in sorted(files(folder, absent), key=lambda path: path.name):
                    with path.open("rb") as source:
                        entry = _entry(home / path.relative_to(folder).as_posix(), path.stat().st_size)
                        archive.addfile(entry, source)
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
        half = any(part.startswith(TEMPORARY) for part in inside)  # part of a run that a crash interrupted
        if inside not in ((NOTE,), (LOCK,), (HERE,)) and not half and not is_left_out(of_run, without):
            kept.append(path)
    return kept


def unpack(file: Path, root: Path | None = None, check: Callable[[Path], Sequence[str]] = lambda run: ()) -> Path:
    """Unpack a packed study below `root`, by default that of recorded studies, and return its folder.

    A study that is already unpacked there is left alone. RecordError if the file is not a packed study or is damaged,
    if another study is in its place, or if `check` returns a problem of a run's folder.
    """
    root = paths.studies_root() if root is None else root
    try:
        contents = _contents(file)
        target = root.joinpath(*contents.home.parts)
        if target.exists():
            _require_same(contents, target, file)
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        size, free = contents.size, shutil.disk_usage(target.parent).free
        if size > free:
            raise RecordError(f"{file}: takes {size} bytes, and {target.parent} has {free} left; make room")
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpacking-") as private:
            for name, _, source in _members(file):
                path = Path(private, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
            folder = Path(private, contents.home)
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
        raise RecordError(f"{file}: is not a whole packed study ({error}); fetch it again") from None
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


def _entry(name: PurePosixPath, size: int) -> tarfile.TarInfo:
    """Return a header without owner and time, so that a study gives the same bytes whenever it is packed."""
    entry = tarfile.TarInfo(str(name))
    entry.size = size
    return entry


def _require_same(contents: _Contents, target: Path, file: Path) -> None:
    """Refuse a folder that holds other records than the file, by the files that contain the digests of all runs."""
    held = dict(contents.sealing)
    note = held.pop(NOTE)
    there = [path for pattern in SEALING for path in target.glob(pattern)]
    if held != {path.relative_to(target).as_posix(): path.read_bytes() for path in there}:
        raise RecordError(f"{target}: is another study than the one in {file}; move it away")
    absent = set(left_out(target)) - set(_left_out_of(note, f"{file}: its {NOTE}"))
    if absent:
        named = " and ".join(sorted(absent))
        raise RecordError(f"{target}: was unpacked without {named}, which {file} contains; move the folder away")


def _contents(file: Path) -> _Contents:
    """Read a packed study to its end and unpack nothing; ValueError says why it is none."""
    homes, sealing = set[PurePosixPath](), dict[str, bytes]()
    size = whole = 0
    most = min(_MOST_BYTES, max(_FEW_BYTES, _MOST_TIMES * file.stat().st_size))
    for name, length, source in _members(file):
        homes.add(PurePosixPath(*name.parts[:2]))
        inside = PurePosixPath(*name.parts[2:])
        size += length
        if size > most:
            raise ValueError(f"it would unpack to more than {most} bytes")
        if any(inside.match(one) and len(inside.parts) == len(Path(one).parts) for one in (NOTE, *SEALING)):
            whole += length
            if whole > _MOST_READ:
                raise ValueError(f"its plan and checksums would be {whole} bytes or more")
            sealing[inside.as_posix()] = source.read()
    if len(homes) != 1:
        raise ValueError("its files are not all in one study's folder")
    for needed in (NOTE, "plan.json"):
        if needed not in sealing:
            raise ValueError(f"there is no {needed}")
    return _Contents(homes.pop(), size, sealing)


def _members(file: Path) -> Iterator[tuple[PurePosixPath, int, IO[bytes]]]:
    """Yield name, bytes and content of every file in the archive; the content is read before the next is asked for.

    No name leads out of the folder that it is joined to. ValueError for anything else than files in a study's folder.
    """
    for number, (text, size, source) in enumerate(_zipped(file) if file.name.endswith(ZIP) else _tarred(file)):
        name = PurePosixPath(text)
        if name.is_absolute() or ".." in name.parts or len(name.parts) < 3:
            raise ValueError("its files are not all in one study's folder")
        if number == _MOST_FILES:
            raise ValueError(f"it has more than {_MOST_FILES} files")
        yield name, size, source


def _zipped(file: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    with zipfile.ZipFile(file) as archive:
        for info in [one for one in archive.infolist() if not one.is_dir()]:
            with archive.open(info) as source:  # gives no more bytes than `info` declares
                yield info.filename, info.file_size, source


def _tarred(file: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    with file.open("rb") as compressed:
        stream = io.BufferedReader(_Decompressed(compressed))
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_PlainFile) as archive:
            for member in archive:
                yield member.name, member.size, cast(IO[bytes], archive.extractfile(member))
        # Zeros fill the last record. Only the end shows that the file is whole, because xz has its checksums there.
        stream.read(tarfile.RECORDSIZE)
        if stream.read(1):
            raise ValueError("it contains more than its files")


class _PlainFile(tarfile.TarInfo):
    """The header of a file, or of its name if that is long, as `pack` writes them; tarfile.ReadError for others.

    Nothing else is of use in a study, and tarfile keeps headers of other kinds in memory, whatever their size.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        most = {tarfile.REGTYPE: _MOST_BYTES, tarfile.GNUTYPE_LONGNAME: _LONGEST_NAME}.get(header.type, -1)
        if not 0 <= header.size <= most:
            raise tarfile.ReadError(f"{header.name!r} is not a regular file")
        return header


class _Decompressed(io.RawIOBase):
    """The content of an xz file, in order; unlike lzma.LZMAFile, this limits the memory that the file can ask for."""

    def __init__(self, compressed: IO[bytes]) -> None:
        self._compressed = compressed
        self._decompressor = lzma.LZMADecompressor(memlimit=_MOST_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._decompressor.eof:
            piece = self._compressed.read(io.DEFAULT_BUFFER_SIZE) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not piece:
                raise EOFError("it was cut off")
            if content := self._decompressor.decompress(piece, len(buffer)):
                buffer[: len(content)] = content
                return len(content)
        return 0
