"""Whether data that came from a file has the types that a dataclass declares; they are not checked by Python itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

# What building a dataclass from foreign data raises, where the data has another shape than it expects.
SHAPE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)


def mismatch(instance: Any) -> str:
    """The first field of a dataclass whose value is not of its declared type, in words; empty where there is none.

    Lists pass for tuples, and whole numbers for numbers with a fraction; a number must be finite.
    """
    for name, hint in _hints(type(instance)).items():  # type: ignore[arg-type]
        value = getattr(instance, name)
        if not _conforms(value, hint):
            return f"{name} is {shortened(value)}"
    return ""


def shortened(value: Any, most: int = 60) -> str:
    """A value as a message shows it, whatever its size."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, lists in lists
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= most else text[: most - 3] + "..."


@lru_cache(maxsize=128)
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _conforms(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint is NoneType or hint is None:
        return value is None
    if origin in (Union, UnionType):
        return any(_conforms(value, one) for one in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return all(_conforms(one, arguments[0]) for one in value)
        return len(value) == len(arguments) and all(map(_conforms, value, arguments))
    if origin is not None and issubclass(origin, Mapping):
        key, held = arguments
        return isinstance(value, Mapping) and all(_conforms(k, key) and _conforms(v, held) for k, v in value.items())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if dataclasses.is_dataclass(hint):
        return isinstance(value, hint) and not mismatch(value)  # type: ignore[arg-type]
    return not isinstance(hint, type) or isinstance(value, hint)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
