"""Parameters of a study: declared once, checked strictly, wherever they come from.

papermill injects a parameter that a notebook does not know and only warns (nteract/papermill#667), so
the notebook itself refuses it. What counts as given: every name that a cell made of nothing but literal
assignments has set, which is what a parameters cell is, edited by hand or injected.
"""

from __future__ import annotations

import ast
import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from meshtrial.errors import UsageError
from meshtrial.typed import shortened

LARGEST = 2**63  # nothing that a study counts or measures comes near it, and beyond it products have no end
LONGEST = 1500  # characters; a list of all that there is takes fewer
# Where the notebook comes from and goes to, with `papermill --inject-paths`: no parameter of a study.
_PAPERMILLS = "PAPERMILL_"

Value: TypeAlias = str | int | float | bool


@dataclass(frozen=True)
class Parameter:
    """One parameter."""

    name: str
    # Its type is the parameter's type. Empty text and 0 mean: as the profile says.
    default: Value
    # One line, shown by `papermill --help-notebook` (behind the name of its group, for papermill knows no groups) and
    # by `meshtrial run STUDY --help`
    help: str
    allowed: tuple[str, ...] = ()  # the only values, where there are such
    # Inclusive bounds of a number
    low: float | None = None
    high: float | None = None

    def read(self, value: Any) -> Any:
        """Convert and check one value; the refusal names the parameter and what is allowed."""
        kind = type(self.default)
        if kind is str and isinstance(value, list | tuple):
            value = ",".join(str(item) for item in value)
        if kind is bool:
            if not isinstance(value, bool):
                raise self._refuse(value, "true or false")
            return value
        if kind in (int, float):
            # bool is an int in Python, and True is no number of blocks.
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self._refuse(value, "a number")
            if not abs(value) < math.inf:
                raise self._refuse(value, "a finite number")
            if kind is int and value != int(value):
                raise self._refuse(value, "a whole number")
            if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
                raise self._refuse(value, self._range())
            if abs(value) >= LARGEST:
                raise self._refuse(value, f"below {LARGEST:g}")
            return kind(value)
        if not isinstance(value, str):
            # -p rates 200 arrives as a number where a list of one is meant.
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self._refuse(value, "text")
            value = f"{value:g}" if isinstance(value, float) else str(value)
        if len(value) > LONGEST:
            raise self._refuse(value, f"at most {LONGEST} characters")
        if self.allowed and value not in self.allowed:
            raise self._refuse(value, " or ".join(repr(item) for item in self.allowed))
        return value

    def _range(self) -> str:
        if self.low is None:
            return f"at most {self.high:g}"
        return f"{self.low:g} or more" if self.high is None else f"{self.low:g} to {self.high:g}"

    def _refuse(self, value: Any, allowed: str) -> UsageError:
        return UsageError(f"{self.name} = {shortened(value, 120)}: must be {allowed} ({self.help})")


def read_parameters(declared: Iterable[Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Check what was given against what is declared; defaults fill the rest. An unknown name is refused."""
    known = {parameter.name: parameter for parameter in declared}
    for name in given:
        if name not in known:
            raise UsageError(f"parameter {shortened(name)} is not known: {nearest(name, known)}")
    return {name: parameter.read(given.get(name, parameter.default)) for name, parameter in known.items()}


def nearest(name: str, known: Iterable[str]) -> str:
    """For a message: the known name that was probably meant, and all of them."""
    allowed = list(known)
    near = difflib.get_close_matches(name, allowed, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"must be one of {', '.join(allowed)}"


def given_in_notebook(sources: Iterable[str], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a notebook's parameter cells have set.

    `sources` are the executed cells, oldest first (IPython's ``In``), `namespace` the notebook's globals, for the
    values.
    """
    names: dict[str, None] = {}
    for source in sources:
        names |= dict.fromkeys(_assigned_literals(source))
    return {name: namespace[name] for name in names if name in namespace and not name.startswith(_PAPERMILLS)}


def grouped(source: str) -> list[tuple[str, list[str]]]:
    """The groups of a parameters cell: each heading, a comment on a line of its own, and the names below it."""
    groups: list[tuple[str, list[str]]] = []
    for line in source.splitlines():
        if line.startswith("# "):
            groups.append((line.removeprefix("# "), []))
        elif groups:
            groups[-1][1].extend(_assigned_literals(line))
    return groups


def _assigned_literals(source: str) -> list[str]:
    """Names set by a cell that holds nothing but ``name = literal``; none for any other cell."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return []
    names = []
    for statement in body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            target, value = statement.target, statement.value
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            target, value = statement.targets[0], statement.value
        else:
            return []
        if value is None or not _is_literal(value):
            return []
        names.append(target.id)
    return names


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def split_list(text: str) -> tuple[str, ...]:
    """``a, b`` to (``a``, ``b``)."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def read_number_list(name: str, text: str, check: Callable[[float], bool], allowed: str) -> tuple[float, ...]:
    """A list of numbers given as text; UsageError naming the parameter."""
    numbers = []
    for item in split_list(text):
        try:
            number = float(item)
        except ValueError:
            raise UsageError(f"{name}: {item!r} is not a number; must be {allowed}") from None
        if not abs(number) < LARGEST or not check(number):
            raise UsageError(f"{name}: {item[:60]}: must be {allowed}")
        numbers.append(number)
    if text and not numbers:
        raise UsageError(f"{name} = {shortened(text)}: must be {allowed}")
    return tuple(numbers)
