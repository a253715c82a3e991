"""fortio's access log: one row per request.

Opinion: a truncated log is refused, because the missing lines are the slow requests. fortio opens the file with
O_APPEND, so a reused file name mixes runs. A repeated iteration of a thread, or a thread with two overlapping requests,
is therefore refused too.
Limits: fortio rounds latencies to 1 us. The influx format has no ``iter``: it is numbered by start time within each
thread, which is right only if no send was skipped (not with ``-nocatchup``).
"""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from meshtrial.load.files import GZIP_MAGIC, LONGEST_S, InputFileError, excerpt, read_bytes

_OVERLAP_SLACK_NS = 1_000_000
SCHEMA: dict[str, pl.DataType] = {
    "thread": pl.Int32(),
    "iter": pl.Int64(),
    "start_unix_ns": pl.Int64(),
    "latency_s": pl.Float64(),
    "ok": pl.Boolean(),
    "code": pl.Categorical(),  # needs a quarter of a string's memory
}
_JSON_SCHEMA = {
    "latency": pl.Float64(),
    "timestamp": pl.Int64(),
    "thread": pl.Int32(),
    "iter": pl.Int64(),
    "ok": pl.Boolean(),
    "details": pl.String(),
}
# A line as fortio writes it, and the bytes that are removed to leave its values; one letter of true and false remains.
_USUAL = re.compile(
    rb'\{"latency":[\d.]+,"timestamp":\d+,"thread":\d+,"iter":\d+,"ok":(true|false),"details":"[^"\\]+"\}\n'
)
_SYNTAX = b'abcdeghijklmnopqrstvwxyz{}":'
_SYNTAX_PER_LINE = sum(
    byte in _SYNTAX for byte in b'{"latency":,"timestamp":,"thread":,"iter":,"ok":true,"details":""}'
)
_VALUES = {
    "latency_s": pl.Float64(),
    "start_unix_ns": pl.Int64(),
    "thread": pl.Int32(),
    "iter": pl.Int64(),
    "ok": pl.Categorical(),
    "code": pl.Categorical(),
}
_FEW_THREADS = 2**16  # up to this number, a thread's number has two bytes
# Bytes read at once: ten million requests are a gigabyte, and larger pieces make every allocation a system call.
PIECE_BYTES = 1 << 22
_INFLUX = r'^latency,thread=(\d+),ok=(true|false) value=([0-9.eE+-]+),details="(.*)" (\d+)$'
# Escapes of Go's %q that JSON lacks, matched in pairs so that an escaped backslash stays one.
_GO_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8}|[\s\S])")


def read_access_log(path: Path | str, *, may_overlap: bool = False) -> pl.DataFrame:
    """Read a JSON or influx access log, gzip or plain, sorted by thread and iteration.

    The columns are :data:`SCHEMA`; ``ok`` is true if the fortio version did not write it. With ``may_overlap`` a thread
    may have several calls under way, as a stream has events. InputFileError names file, line and reason.
    """
    path = Path(path)
    frame = _read_usual(path)
    if frame is None:
        frame = _read_any(path)
    impossible = frame.filter(~pl.col("latency_s").is_between(0, LONGEST_S) | (pl.col("thread") < 0))
    if impossible.height:
        raise InputFileError(path, f"contains a latency of {impossible['latency_s'][0]} s, or a thread number below 0")
    if frame["iter"].null_count():
        order = pl.col("start_unix_ns").rank("ordinal").over("thread") - 1
        frame = frame.with_columns(pl.coalesce("iter", order.cast(pl.Int64)).alias("iter"))
    frame = _sorted(frame)
    _refuse_repeated(frame, path)
    if not may_overlap:
        _refuse_overlaps(frame, path)
    return frame


def _read_usual(path: Path) -> pl.DataFrame | None:
    """Read a log whose lines all have the usual form, without a JSON parser; None for every other log."""
    parts = []
    try:
        for piece in _pieces(path):
            if (values := _values(piece)) is None:
                return None
            parts.append(values)
    except (OSError, EOFError, pl.exceptions.PolarsError):
        return None  # `_read_any` reports the reason
    return pl.concat(parts, rechunk=False) if parts else None


def _values(piece: bytes) -> pl.DataFrame | None:
    """Return the values of usual lines by deleting their syntax; None if other bytes were deleted too."""
    if not _USUAL.match(piece) or b"\\" in piece:
        return None
    bare = piece.translate(None, _SYNTAX)
    frame = pl.read_csv(bare, has_header=False, separator=",", quote_char=None, schema=_VALUES)
    good, bad = (int((frame["ok"] == letter).sum()) for letter in "uf")  # false has one letter more
    deleted = frame.height * _SYNTAX_PER_LINE + bad
    if len(piece) - len(bare) != deleted or good + bad != frame.height or any(frame.null_count().row(0)):
        return None
    return frame.with_columns(pl.col("ok") == "u")


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield the file's bytes in pieces of whole lines; EOFError if the last line is truncated or the file is packed."""
    with path.open("rb") as file:
        while block := file.read(PIECE_BYTES):
            if block.startswith(GZIP_MAGIC):
                raise EOFError  # `read_bytes` limits how much is unpacked
            if not block.endswith(b"\n"):
                block += file.readline()
                if not block.endswith(b"\n"):
                    raise EOFError
            yield block


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort by thread and iteration, one column at a time, so that memory never holds two copies of everything."""
    threads = frame["thread"].to_numpy()
    order = np.empty(0, np.uint32)
    if threads.min(initial=0) >= 0 and threads.max(initial=0) < _FEW_THREADS:
        # Each thread's lines are in order already, so a stable (radix) sort by thread alone suffices.
        order = np.argsort(threads.astype(np.uint16), kind="stable").astype(np.uint32)
        thread, iteration = threads[order], frame["iter"].to_numpy()[order]
        if ((thread[1:] == thread[:-1]) & (iteration[1:] < iteration[:-1])).any():
            order = np.empty(0, np.uint32)
        del thread, iteration
    del threads
    by = pl.Series(order) if len(order) else frame.select(pl.arg_sort_by("thread", "iter")).to_series()
    columns = (frame.drop_in_place(name).rechunk().gather(by) for name in SCHEMA)
    return pl.DataFrame(columns).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def _read_any(path: Path) -> pl.DataFrame:
    """Read a log of any form; InputFileError names the first line that has none."""
    data = read_bytes(path)
    if not data.endswith(b"\n"):
        line = data.count(b"\n") + 1
        raise InputFileError(path, f"line {line} is truncated: the access log is incomplete; measure again")
    try:
        frame = _read_influx(data, path) if data.startswith(b"latency,") else _read_json(data, path)
    except (pl.exceptions.PolarsError, RecursionError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputFileError(path, f"is not a complete access log ({reason[:120]})") from None
    return frame.with_columns(pl.col("ok").fill_null(True), pl.col("code").fill_null(""))


def _read_json(data: bytes, path: Path) -> pl.DataFrame:
    try:
        frame = pl.read_ndjson(io.BytesIO(data), schema=_JSON_SCHEMA)
    except pl.exceptions.PolarsError:
        data = _GO_ESCAPE.sub(_json_escape, data)
        _explain(data, path)
        frame = pl.read_ndjson(io.BytesIO(data), schema=_JSON_SCHEMA)
    whole = pl.all_horizontal(pl.col("latency", "timestamp", "thread").is_not_null())
    if not frame.select(whole.all()).item():
        _explain(data, path)
    return frame.rename({"latency": "latency_s", "timestamp": "start_unix_ns", "details": "code"})


def _json_escape(match: re.Match[bytes]) -> bytes:
    body = match[1]
    if body[:1] == b"x":
        return b"\\u00" + body[1:]
    if body[:1] == b"U":
        return json.dumps(chr(int(body[1:], 16)))[1:-1].encode()
    return {b"a": b"\\u0007", b"v": b"\\u000b"}.get(body, match[0])


def _explain(data: bytes, path: Path) -> None:
    """Raise InputFileError for the first line that is not fortio's; slow, so only called for a bad file."""
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            item = json.loads(line)
        except ValueError:
            raise InputFileError(path, f"line {number} is not a line of fortio's access log: {excerpt(line)}") from None
        missing = [k for k in ("latency", "timestamp", "thread") if not isinstance(item, dict) or k not in item]
        if missing:
            raise InputFileError(path, f"line {number} is not fortio's: {', '.join(missing)} missing: {excerpt(line)}")
        if not all(isinstance(item[key], int | float) for key in ("latency", "timestamp", "thread")):
            raise InputFileError(path, f"line {number} is not fortio's: a value is not a number: {excerpt(line)}")


def _read_influx(data: bytes, path: Path) -> pl.DataFrame:
    lines = pl.Series("line", data.decode("utf-8", errors="replace").splitlines())
    groups = lines.str.extract_groups(_INFLUX).struct.unnest()
    bad = groups["1"].is_null().arg_true()
    if len(bad):
        first = int(bad[0])
        raise InputFileError(
            path, f"line {first + 1} is not a line of fortio's influx access log: {excerpt(lines[first])}"
        )
    return groups.select(
        pl.col("1").cast(pl.Int32).alias("thread"),
        pl.lit(None, pl.Int64).alias("iter"),
        pl.col("5").cast(pl.Int64).alias("start_unix_ns"),
        pl.col("3").cast(pl.Float64).alias("latency_s"),
        (pl.col("2") == "true").alias("ok"),
        pl.col("4").alias("code"),
    )


def _refuse_repeated(frame: pl.DataFrame, path: Path) -> None:
    # The frame is sorted, so repeated iterations are adjacent.
    repeated = (pl.col("thread") == pl.col("thread").shift(1)) & (pl.col("iter") == pl.col("iter").shift(1))
    twice = frame.filter(repeated)
    if twice.height:
        thread, iteration = twice.row(0)[:2]
        runs = frame.filter((pl.col("thread") == thread) & (pl.col("iter") == iteration)).height
        raise InputFileError(
            path,
            f"contains {runs} runs (iteration {iteration} of thread {thread} occurs {runs} times, because fortio "
            "appends to an existing file), but one file is one run; give each run a file of its own",
        )


def _refuse_overlaps(frame: pl.DataFrame, path: Path) -> None:
    # A thread sends its next request after the answer, so an overlap means a second run in the file, or a changed
    # clock. The slack allows for a wall clock that is slewed while latencies come from the monotonic one.
    end_ns = pl.col("start_unix_ns") + (pl.col("latency_s") * 1e9).cast(pl.Int64)
    same_thread = pl.col("thread") == pl.col("thread").shift(-1)
    overlap = same_thread & (pl.col("start_unix_ns").shift(-1) - end_ns < -_OVERLAP_SLACK_NS)
    if frame.select(overlap.any()).item():
        thread = frame.filter(overlap)["thread"][0]
        raise InputFileError(
            path,
            f"thread {thread} has two requests at the same time: the file contains several runs, or the clock was set "
            "back during the run; give each run a file of its own",
        )
