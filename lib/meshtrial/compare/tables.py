"""From a tidy table to runs: columns run, block, treatment, response, value and optionally unit.

A study's ``runs.parquet`` is such a table, too: its ``run_id`` is the run, and rows that its inference excluded are
excluded. A CSV may come from a spreadsheet: its header shows the separator, and capitals, spaces around names and
cells, empty rows and empty columns are ignored.

A comma is read as a decimal mark only if the table shows that it is one. If it might also separate thousands, the
number is refused, because a wrong guess is wrong by a factor of a thousand.
"""

import csv
import io
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import polars as pl

from meshtrial.compare.runs import Run
from meshtrial.design.responses import Response, find_response
from meshtrial.errors import UsageError
from meshtrial.load.files import InputFileError, read_bytes, text_in
from meshtrial.load.recorded import impossible
from meshtrial.typed import shortened

NEEDED = ("run", "treatment", "response", "value")
_KNOWN = (*NEEDED, "run_id", "block", "unit", "included", "load")
MOST_ROWS = 10_000_000
_SEPARATORS = ",;\t|"
# The line by which a table sets the separator for Excel.
_SEPARATOR_LINE = re.compile(rf'"?sep=([{_SEPARATORS}])"?\n', re.IGNORECASE)
_EXPONENT = r"(?:[eE][+-]?\d+)?"
_COMMA = re.compile(rf"[+-]?\d*,\d+{_EXPONENT}")
_POINT = re.compile(rf"[+-]?\d*\.\d+{_EXPONENT}")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


def read_table(path: Path, where: Sequence[tuple[str, str]] = ()) -> tuple[dict[str, list[Run]], dict[str, Response]]:
    """Return the runs of every treatment and the responses of a table (CSV, gzip or plain, or Parquet).

    ``where`` selects rows by the value in a column.
    """
    frame = _shaped(_read(path), path, where)
    by_treatment: dict[str, dict[str, dict[str, float]]] = {}
    blocks: dict[tuple[str, str], str | None] = {}
    responses: dict[str, Response] = {}
    for row in frame.iter_rows(named=True):
        response, value = _value(row, path)
        responses.setdefault(response.name, response)
        key = (row["treatment"], row["run"])
        values = by_treatment.setdefault(key[0], {}).setdefault(key[1], {})
        if response.name in values:
            raise InputFileError(
                path,
                f"run {key[1]} of {key[0]} has {response.name} twice; give one number per run and response (average "
                "slices first), or select rows by COLUMN=VALUE",
            )
        values[response.name] = value
        if why := impossible(values, {}):
            raise InputFileError(path, f"run {key[1]} of {key[0]}: {why}")
        if blocks.setdefault(key, row["block"]) != row["block"]:
            raise InputFileError(path, f"run {key[1]} of {key[0]} is in two blocks")
    return {
        treatment: [
            Run(path, "table", values, {}, None, treatment=treatment, name=name, block=blocks[treatment, name])
            for name, values in runs.items()
        ]
        for treatment, runs in by_treatment.items()
    }, responses


def _read(path: Path) -> pl.DataFrame:
    data = read_bytes(path)
    if not data.startswith(b"PAR1"):
        # All columns are read as text, because run 01 and run 1 are different names.
        return read_sheet(text_in(data, path), path, _KNOWN, "value")
    try:
        # A small Parquet file may have a huge number of equal rows, so they are counted first.
        rows = int(pl.scan_parquet(io.BytesIO(data)).select(pl.len()).collect().item())
        if rows > MOST_ROWS:
            raise InputFileError(path, f"has {rows} rows; give one per run and response")
        return pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputFileError(path, f"is a damaged Parquet table ({str(error).splitlines()[0]})") from None


def _column_name(column: str) -> str:
    """Return a column's name for a message; without a header it is data and may be anything."""
    return column if column.isprintable() and len(column) <= 40 else shortened(column, 40)


def _shaped(frame: pl.DataFrame, path: Path, where: Sequence[tuple[str, str]]) -> pl.DataFrame:
    if "run" not in frame.columns and "run_id" in frame.columns:
        frame = frame.rename({"run_id": "run"})
    missing = [column for column in NEEDED if column not in frame.columns]
    if missing:
        has = ", ".join(_column_name(column) for column in frame.columns[:8]) or "no columns"
        raise InputFileError(path, f"has no {', '.join(missing)}; a tidy table has {', '.join(NEEDED)} (found: {has})")
    if "included" in frame.columns:
        included = frame["included"].cast(pl.String).str.to_lowercase()
        for odd in frame["included"].filter(~included.is_in(["true", "false"]).fill_null(False))[:1]:
            raise InputFileError(path, f"included is {odd!r} in one row, not true or false")
        frame = frame.filter(included == "true")
    for name, value in where:
        column = known_as(name, [*frame.columns])
        if column not in frame.columns:
            has = ", ".join(map(_column_name, frame.columns[:20]))
            raise UsageError(f"where {column}={value}: {path} has no such column; it has {has}")
        frame = frame.filter(pl.col(column).cast(pl.String) == value)
    if frame.is_empty():
        raise InputFileError(path, "has no row" + (f" where {' and '.join(map('='.join, where))}" if where else ""))
    if "load" in frame.columns and frame["load"].n_unique() > 1:
        loads = ", ".join(str(load) for load in frame["load"].unique(maintain_order=True))
        raise InputFileError(path, f"has several loads ({loads}), which cannot be compared; select one by load=...")
    for optional in ("block", "unit"):
        if optional not in frame.columns:
            frame = frame.with_columns(pl.lit(None, pl.String).alias(optional))
    texts = ("run", "block", "treatment", "response", "unit")
    frame = frame.select(*(pl.col(name).cast(pl.String) for name in texts), pl.col("value").cast(pl.String))
    return frame.with_columns(pl.when(pl.col(n).str.strip_chars() != "").then(pl.col(n)).alias(n) for n in texts)


def _value(row: Mapping[str, str | None], path: Path) -> tuple[Response, float]:
    for column in ("run", "treatment", "response"):
        if row[column] is None:
            raise InputFileError(path, f"one row has no {column}: {dict(row)}")
    response, factor = find_response(str(row["response"]), row["unit"] or "")
    if factor is None:
        name = row["response"]
        raise InputFileError(path, f"{name} has no unit; call it {name}_ms or {name}_s, or add a column unit")
    text = row["value"] or ""
    try:
        value = float(text) * factor
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        where = f"run {row['run']} of {row['treatment']}"
        raise InputFileError(path, f"{where}: {row['response']} is {row['value']!r}, {_no_number(text)}")
    return response, value


def _no_number(text: str) -> str:
    """Return why a value is refused: it is no number, or has a possible separator of thousands."""
    if re.fullmatch(r"[+-]?\d{1,3}([.,'’\s]\d{3})*[.,'’\s]\d+", text):
        return "which may have a separator of thousands; write it with a decimal point only"
    return "not a number"


def choose(
    by_treatment: Mapping[str, list[Run]], path: Path, baseline: str, treatments: Sequence[str]
) -> dict[str, list[Run]]:
    """Return the baseline and the named treatments, by default all others."""
    chosen = treatments or [name for name in by_treatment if name != baseline]
    for name in (baseline, *chosen):
        if name not in by_treatment:
            raise UsageError(f"{path}: has no treatment {name!r}; it has {', '.join(by_treatment)}")
    if baseline in chosen or len(set(chosen)) < len(chosen):
        raise UsageError(f"a treatment is given twice: {', '.join((baseline, *chosen))}")
    if not chosen:
        raise UsageError(f"{path}: has no treatment except {baseline}; there is nothing to compare it with")
    return {name: list(by_treatment[name]) for name in (baseline, *chosen)}


def read_sheet(text: str, path: Path, known: Collection[str], number: str) -> pl.DataFrame:
    """Return the non-empty rows of a CSV as text. ``known`` column names are matched without regard to case.

    In the column ``number`` decimal commas become points.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\n")
    hint = _SEPARATOR_LINE.match(text)
    text = text[hint.end() :] if hint else text
    separator = hint[1] if hint else max(_SEPARATORS, key=lambda candidate: _count_columns(text, candidate, known))
    try:
        header, *rows = _rows(text, separator) or [[]]
    except csv.Error as error:
        raise InputFileError(path, f"is neither a CSV nor a Parquet table, or is damaged ({error})") from None
    names = [known_as(name, known) or f"column {place}" for place, name in enumerate(header, start=1)]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputFileError(path, f"has two columns called {twice!r}; rename one")
    long = next((row for row in rows if len(row) > len(names)), None)
    if long is not None and not set(known).isdisjoint(names):
        row = shortened(separator.join(long), 80)
        reason = f"one row has {len(long)} values for {len(names)} columns ({row})"
        raise InputFileError(path, f"{reason}; quote values that contain {separator!r}")
    if len(rows) > MOST_ROWS:
        raise InputFileError(path, f"has {len(rows)} rows; give one per run and response")
    columns = {name: [row[i] if i < len(row) else "" for row in rows] for i, name in enumerate(names)}
    if number in columns:
        columns[number] = _with_points(columns[number], separator)
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))


def known_as(name: str, known: Collection[str]) -> str:
    """Return the known name that equals a name without regard to case, else the name."""
    return name if name in known else next((item for item in known if item.casefold() == name.casefold()), name)


def _count_columns(text: str, separator: str, known: Collection[str]) -> tuple[int, int]:
    """Return the number of known columns, and of all, that a separator gives for the header."""
    try:
        names = _rows(text.partition("\n")[0], separator)[0]
    except (csv.Error, IndexError):
        return 0, 0
    return sum(known_as(name, known) in known for name in names), len(names)


def _rows(text: str, separator: str) -> list[list[str]]:
    """Return the rows without empty cells at their end, and without empty rows."""
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True, strict=True)
    stripped = (_without_empty([cell.strip() for cell in row]) for row in reader)
    return [row for row in stripped if row]


def _without_empty(row: Sequence[str]) -> list[str]:
    filled = [place for place, cell in enumerate(row, start=1) if cell]
    return list(row[: filled[-1]]) if filled else []


def _with_points(numbers: list[str], separator: str) -> list[str]:
    """Replace decimal commas; spreadsheets with decimal commas separate columns by semicolons."""
    commas = {text for text in numbers if _COMMA.fullmatch(text)}
    decimal = separator == ";" or any(not _THOUSANDS.fullmatch(text) for text in commas)
    if not decimal or any(_POINT.fullmatch(text) for text in numbers):
        return numbers
    return [text.replace(",", ".") if text in commas else text for text in numbers]
