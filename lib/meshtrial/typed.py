"""Dataclasses from data that came from a file, as strictly as msgspec reads them and with the value in the sentence.

Refused besides: a name that a dataclass does not have (msgspec passes over it), and a number that no column can hold.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from meshtrial.decoding import NotTextError, text_of
from meshtrial.errors import MeshtrialError, RecordError, UsageError

T = TypeVar("T")
# What using foreign data raises, where the data has another shape than is expected.
SHAPE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)

_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_BOUNDS = {">=": "{} or more", ">": "more than {}", "<=": "at most {}", "<": "less than {}"}


def read(kind: type[T], data: Any, root: str = "") -> T:
    """Make a dataclass, or a tuple of them, from plain data; lists pass for tuples, whole numbers for fractions.

    UsageError for what is missing, not known, or of another type than declared: where it is, and the value there.
    ``root`` is what the data is called in a message, where it is a part of something.
    """
    try:
        made = msgspec.convert(data, kind)
        _refuse_rest(made, data, root)
    except msgspec.ValidationError as error:
        raise UsageError(_sentence(str(error), data, root)) from None
    except RecursionError:
        raise UsageError(f"{root or 'it'} holds lists in lists without an end") from None
    return made


def read_yaml(path: Path, where: str, holds: str = "a mapping") -> dict[str, Any]:
    """A mapping from a YAML file; UsageError where it is none, or cannot be read, by what the file is called."""
    try:
        written = path.expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"{where}: cannot be read ({error.strerror})") from None
    except (ValueError, RuntimeError) as error:  # a null byte in the path, the home of a user who is not there
        raise UsageError(f"{shortened(where)}: is no path that can be read ({error})") from None
    data = parse_yaml(written, where)
    if not isinstance(data, dict):
        raise UsageError(f"{where}: must hold {holds}")
    for name in data:
        if not isinstance(name, str):  # YAML reads 1, on and 2026-01-01 as what they are not meant to be
            raise UsageError(f"{where}: {shortened(name)} is not a name; put it in quotes")
    return data


def parse_yaml(data: bytes, where: str, *, several: bool = False) -> Any:
    """What a document of YAML says, of several documents a list; UsageError where it is none."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = text_of(data)
        return list(yaml.load_all(text, loader)) if several else yaml.load(text, loader)
    except NotTextError as error:
        raise UsageError(f"{where}: {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # dates and digits that are none
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark else ""
        why = " ".join(str(getattr(error, "problem", "") or error).split())[:200]
        tab = ", such as a tab: indent with spaces" if "cannot start any token" in why and b"\t" in data else ""
        raise UsageError(f"{where}: is not YAML ({place}{why}{tab})") from None


def of_schema(data: Mapping[str, Any], schema: str, where: str) -> dict[str, Any]:
    """What a document says besides its schema, which has to be this one."""
    if data.get("schema") != schema:
        raise RecordError(f"{where}: schema is {shortened(data.get('schema'))}, this version reads {schema!r}")
    return {key: value for key, value in data.items() if key != "schema"}


def reason(error: Exception) -> str:
    """Why foreign data could not be used, from whatever its use raised, for a sentence of its reader."""
    return str(error)[:200] if isinstance(error, MeshtrialError) else shortened(error, 120)


def shortened(value: Any, most: int = 60) -> str:
    """A value as a message shows it, whatever its size."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, lists in lists
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= most else text[: most - 3] + "..."


def _sentence(refusal: str, data: Any, root: str) -> str:
    """What msgspec says of a field, with its value and in words that need no Python."""
    found = re.search(r"`\$([^`]*)`$", refusal)
    path = found[1].partition("[...]")[0] if found else ""  # the dots are some key of a mapping
    for index, name in re.findall(r"\[(\d+)\]|(\w+)", path):
        data = data[int(index)] if index else data[name]
    place = (root + path).lstrip(".") or "it"
    if missing := re.search(r"missing required field `(\w+)`", refusal):
        return f"{place} has no {missing[1]}"
    expected = re.match(r"Expected `([^`]*)`", refusal) if "`key`" not in refusal and "[...]" not in refusal else None
    if bound := re.match(r"Expected `(?:int|float)` (<=?|>=?) (\S+)", refusal):
        return f"{place} is {shortened(data)}, not {_BOUNDS[bound[1]].format(bound[2])}"
    kinds = [_EXPECTED.get(kind, kind) for kind in expected[1].split(" | ")] if expected else []
    return f"{place} is {shortened(data)}" + (f", not {' or '.join(kinds)}" if kinds else "")


def _refuse_rest(made: Any, data: Any, place: str) -> None:
    if isinstance(data, dict):
        is_mapping = isinstance(made, dict)
        known = [] if is_mapping else [field.name for field in dataclasses.fields(made)]
        for name in data:
            if not is_mapping and name not in known:
                begin = f"{place}: " if place else ""
                raise UsageError(f"{begin}{shortened(name)} is not known; known are {', '.join(known)}")
        for name, value in data.items():
            if not _is_plain(value):
                inner = made[name] if is_mapping else getattr(made, name)
                _refuse_rest(inner, value, f"{place}.{name}" if place else str(name))
    elif isinstance(data, list | tuple):
        for index, (inner, value) in enumerate(zip(made, data, strict=True)):
            if not _is_plain(value):
                _refuse_rest(inner, value, f"{place}[{index}]")
    elif not _is_plain(data):
        raise UsageError(f"{place or 'it'} is {shortened(data)}")


def _is_plain(value: Any) -> bool:
    """Whether there is nothing in it, and a column can hold it."""
    if isinstance(value, int):
        return abs(value) < 2**63
    return math.isfinite(value) if isinstance(value, float) else not isinstance(value, (dict, list, tuple))
