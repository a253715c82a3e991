"""A CSV as programs and spreadsheets write it: columns of text, and numbers with a decimal point.

Opinion: which separator it has, its header shows. Capitals, spaces around names and cells, empty rows and empty columns
mean nothing. A comma is a decimal mark where the table shows that it is one; where it may set thousands apart as well,
the number stays as it is, and its reader refuses it: a wrong guess is wrong by a factor of a thousand.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import polars as pl

from meshtrial.load.files import InputFileError
from meshtrial.typed import shortened

MOST_ROWS = 10_000_000
_SEPARATORS = ",;\t|"
# The line in which a table tells Excel its separator.
_TOLD = re.compile(rf'"?sep=([{_SEPARATORS}])"?\n', re.IGNORECASE)
_EXPONENT = r"(?:[eE][+-]?\d+)?"
_COMMA = re.compile(rf"[+-]?\d*,\d+{_EXPONENT}")
_POINT = re.compile(rf"[+-]?\d*\.\d+{_EXPONENT}")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


def read_sheet(text: str, path: Path, known: Collection[str], number: str) -> pl.DataFrame:
    """The rows that are not empty, all of it text. ``known`` names are found in any capitals.

    In the column ``number`` decimal commas become points.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\n")
    hint = _TOLD.match(text)
    text = text[hint.end() :] if hint else text
    separator = hint[1] if hint else max(_SEPARATORS, key=lambda one: _columns(text, one, known))
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
        told = shortened(separator.join(long), 80)
        reason = f"a row has {len(long)} values for {len(names)} columns ({told})"
        raise InputFileError(path, f"{reason}: quote a value that holds a {separator!r}")
    if len(rows) > MOST_ROWS:
        raise InputFileError(path, f"holds {len(rows)} rows: a table has one a run and response")
    columns = {name: [row[i] if i < len(row) else "" for row in rows] for i, name in enumerate(names)}
    if number in columns:
        columns[number] = _with_points(columns[number], separator)
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))


def known_as(name: str, known: Collection[str]) -> str:
    """The known name that a name is but for capitals; the name where there is none."""
    return name if name in known else next((one for one in known if one.casefold() == name.casefold()), name)


def _columns(text: str, separator: str, known: Collection[str]) -> tuple[int, int]:
    """How many known columns, and how many in all, a separator makes of the header."""
    try:
        names = _rows(text.partition("\n")[0], separator)[0]
    except (csv.Error, IndexError):
        return 0, 0
    return sum(known_as(name, known) in known for name in names), len(names)


def _rows(text: str, separator: str) -> list[list[str]]:
    """The rows that hold something, without the empty cells at their ends."""
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True, strict=True)
    stripped = (_without_empty([cell.strip() for cell in row]) for row in reader)
    return [row for row in stripped if row]


def _without_empty(row: Sequence[str]) -> list[str]:
    filled = [place for place, cell in enumerate(row, start=1) if cell]
    return list(row[: filled[-1]]) if filled else []


def _with_points(numbers: list[str], separator: str) -> list[str]:
    """Spreadsheets separate columns by semicolons where the comma is their decimal mark."""
    commas = {text for text in numbers if _COMMA.fullmatch(text)}
    decimal = separator == ";" or any(not _THOUSANDS.fullmatch(text) for text in commas)
    if not decimal or any(_POINT.fullmatch(text) for text in numbers):
        return numbers
    return [text.replace(",", ".") if text in commas else text for text in numbers]
