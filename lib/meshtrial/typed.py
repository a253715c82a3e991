"""Read dataclasses from the data of a file as strictly as msgspec, with the wrong value in the message.

Also refused are names that a dataclass does not have, which msgspec ignores, and numbers that no column can hold.
"""

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
# Errors of code that uses foreign data of an unexpected shape.
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

_LONGEST_LABEL = 500  # characters of a file's name in a message


def read(kind: type[T], data: Any, root: str = "") -> T:
    """Return a dataclass, or a tuple of them, from plain data; lists are accepted as tuples, integers as floats.

    UsageError names the place and value of anything that is missing, unknown or of the wrong type. ``root`` is the
    name of the data in a message, if it is a part of something.
    """
    try:
        value = msgspec.convert(data, kind)
        _refuse_rest(value, data, root)
    except msgspec.ValidationError as error:
        raise UsageError(_message(str(error), data, root)) from None
    except RecursionError:
        raise UsageError(f"{root or 'it'} contains endlessly nested lists") from None
    return value


def read_yaml(path: Path, where: str, holds: str = "a mapping") -> dict[str, Any]:
    """Return the mapping in a YAML file; UsageError, beginning with ``where``, if it is none or cannot be read."""
    try:
        written = path.expanduser().read_bytes()
    except OSError as error:
        label = where if len(where) <= _LONGEST_LABEL else shortened(where)
        raise UsageError(f"{label}: cannot be read ({error.strerror})") from None
    except (ValueError, RuntimeError) as error:  # a null byte in the path, the home of an unknown user
        raise UsageError(f"{shortened(where)}: is not a readable path ({error})") from None
    data = parse_yaml(written, where)
    if not isinstance(data, dict):
        raise UsageError(f"{where}: must contain {holds}")
    for name in data:
        if not isinstance(name, str):  # YAML reads 1, on and 2026-01-01 as other types
            raise UsageError(f"{where}: {shortened(name)} is not a name; put it in quotes")
    return data


def parse_yaml(data: bytes, where: str, *, several: bool = False) -> Any:
    """Return the data of a YAML document, or a list for several documents; UsageError if it is invalid."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = text_of(data)
        return list(yaml.load_all(text, loader)) if several else yaml.load(text, loader)
    except NotTextError as error:
        raise UsageError(f"{where}: {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also invalid dates and numbers
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark else ""
        why = " ".join(str(getattr(error, "problem", "") or error).split())[:200]
        tab = ", such as a tab: indent with spaces" if "cannot start any token" in why and b"\t" in data else ""
        raise UsageError(f"{where}: is not YAML ({place}{why}{tab})") from None


def of_schema(data: Mapping[str, Any], schema: str, where: str) -> dict[str, Any]:
    """Return a document without its schema; RecordError unless it has this one."""
    if data.get("schema") != schema:
        raise RecordError(f"{where}: schema is {shortened(data.get('schema'))}, this version reads {schema!r}")
    return {key: value for key, value in data.items() if key != "schema"}


def reason(error: Exception) -> str:
    """Return a short reason from any error that the use of foreign data raised."""
    return str(error)[:200] if isinstance(error, MeshtrialError) else shortened(error, 120)


def shortened(value: Any, most: int = 60) -> str:
    """Return a value for a message, shortened to ``most`` characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, lists in lists
        return f"an unprintable {type(value).__name__}"
    return text if len(text) <= most else text[: most - 3] + "..."


def _message(refusal: str, data: Any, root: str) -> str:
    """Return msgspec's error on a field with its value, in words that need no knowledge of Python."""
    match = re.search(r"`\$([^`]*)`$", refusal)
    path = match[1].partition("[...]")[0] if match else ""  # the dots stand for any key of a mapping
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


def _refuse_rest(value: Any, data: Any, place: str) -> None:
    if isinstance(data, dict):
        is_mapping = isinstance(value, dict)
        known = [] if is_mapping else [field.name for field in dataclasses.fields(value)]
        for name in data:
            if not is_mapping and name not in known:
                begin = f"{place}: " if place else ""
                raise UsageError(f"{begin}{shortened(name)} is not known; choose one of {', '.join(known)}")
        for name, item in data.items():
            if not _is_plain(item):
                inner = value[name] if is_mapping else getattr(value, name)
                _refuse_rest(inner, item, f"{place}.{name}" if place else str(name))
    elif isinstance(data, list | tuple):
        for index, (inner, item) in enumerate(zip(value, data, strict=True)):
            if not _is_plain(item):
                _refuse_rest(inner, item, f"{place}[{index}]")
    elif not _is_plain(data):
        raise UsageError(f"{place or 'it'} is {shortened(data)}")


def _is_plain(value: Any) -> bool:
    """Return whether a value contains no other values, and a column can hold it."""
    if isinstance(value, int):
        return abs(value) < 2**63
    return math.isfinite(value) if isinstance(value, float) else not isinstance(value, (dict, list, tuple))
