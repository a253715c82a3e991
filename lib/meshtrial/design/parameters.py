"""Settings of a study from any source, read as `design.settings` declares them and checked strictly.

papermill injects a parameter that a notebook does not have and only warns (nteract/papermill#667), so the notebook
itself refuses it. A setting counts as given if a cell that holds nothing but literal assignments has set it: such a
cell is a parameters cell, edited by hand or injected.
"""

import ast
import difflib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from meshtrial.design.migration import current_setting, current_settings
from meshtrial.design.settings import GROUPS, Settings
from meshtrial.errors import UsageError
from meshtrial.typed import read_yaml, shortened

LARGEST = 2**63  # far above anything that a study counts or measures, and the bound of the integers in a table
LONGEST = 1500  # characters; a list of all possible values is shorter
# Paths that `papermill --inject-paths` injects; they are no settings of a study.
_PAPERMILLS = "PAPERMILL_"
_UNLIMITED = msgspec.Meta()

Value: TypeAlias = str | int | float | bool


@dataclass(frozen=True)
class Setting:
    """A field of a declaration: its allowed values and its meaning for a user."""

    name: str
    kind: type
    default: Any  # always accepted, whatever the bounds: an empty list or 0 leaves the value to the profile
    help: str = ""
    allowed: tuple[str, ...] = ()  # the only values; empty where any text is allowed
    limits: msgspec.Meta = _UNLIMITED  # of a number, or of each number of a list
    listed: bool = False  # any number of values, given as text with commas

    def read(self, value: Any) -> Any:
        """Return the converted value; UsageError, which names the setting and what is allowed, if it is wrong."""
        if self.listed:
            return self._read_list(value)
        if self.kind is bool and not isinstance(value, bool):
            raise self._refuse(value, "true or false")
        return value if self.kind is bool else self._read_text(value) if self.kind is str else self._read_number(value)

    def require(self, value: Any) -> None:
        """Raise UsageError if a value of the right type is out of bounds."""
        if self.allowed and value not in self.allowed:
            raise self._refuse(value, " or ".join(repr(item) for item in self.allowed))
        if self.kind in (int, float) and not self.listed and not self._is_within(value):
            raise self._refuse(value, self._range())

    def text(self, value: Any) -> Any:
        """Return a value as plans and notebooks hold it: a list as text."""
        return ",".join(f"{item:.17g}" for item in value) if self.listed else value

    @property
    def meaning(self) -> str:
        """The help text with the allowed values."""
        values = " | ".join(value for value in self.allowed if value)
        return self.help + (f" ({values})" if values else "")

    @property
    def bounds(self) -> str:
        """The bounds of a number in words; empty where there are none."""
        return self._range() if {self.limits.ge, self.limits.gt, self.limits.le} - {None} else ""

    def _read_list(self, value: Any) -> tuple[Any, ...]:
        items = value if isinstance(value, list | tuple) else split_list(value) if isinstance(value, str) else [value]
        if not items and isinstance(value, str) and value:
            raise self._refuse(value, self._expected())
        try:
            numbers = [as_number(item) if isinstance(item, str) else item for item in items]
        except ValueError:
            raise self._refuse(value, self._expected()) from None
        # As for a single value, a 0 that is out of bounds leaves the value to the profile.
        if numbers == [0] and not isinstance(numbers[0], bool) and not self._is_within(0):
            return ()
        return tuple(dict.fromkeys(self._read_number(number) for number in numbers))

    def _read_number(self, value: Any) -> Any:
        # In Python a bool is an int, but True is not a number of blocks.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refuse(value, "a number")
        if not abs(value) < math.inf:
            raise self._refuse(value, "a finite number")
        if self.kind is int and value != int(value):
            raise self._refuse(value, self._expected() if self.listed else "a whole number")
        is_left_to_profile = value == 0 and self.default == 0
        if not self._is_within(value) and not is_left_to_profile:
            raise self._refuse(value, self._expected())
        if abs(value) >= LARGEST:
            raise self._refuse(value, f"below {LARGEST:g}")
        return self.kind(value)

    def _read_text(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            value = ",".join(str(item) for item in value)
        if not isinstance(value, str):
            # -p treatments 200 arrives as a number where a list of one is meant.
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self._refuse(value, "text")
            value = f"{value:g}" if isinstance(value, float) else str(value)
        if len(value) > LONGEST:
            raise self._refuse(value, f"at most {LONGEST} characters")
        self.require(value)
        return value

    def _is_within(self, value: float) -> bool:
        limits = self.limits
        return (
            (limits.ge is None or value >= limits.ge)
            and (limits.gt is None or value > limits.gt)
            and (limits.le is None or value <= limits.le)
            and (limits.multiple_of is None or value % limits.multiple_of == 0)
        )

    def _expected(self) -> str:
        if not self.listed:
            return self._range()
        numbers = "whole numbers" if self.kind is int else "numbers"
        return f"{numbers} with commas, each {self._range()}" if self.bounds else f"{numbers} with commas"

    def _range(self) -> str:
        limits = self.limits
        most = "" if limits.le is None else f"{limits.le:.10g}"
        if limits.gt is not None:
            text = f"more than {limits.gt:g}" + (f", at most {most}" if most else "")
        elif limits.ge is None:
            text = f"at most {most}"
        else:
            text = f"{limits.ge:g} to {most}" if most else f"{limits.ge:g} or more"
        return text + (f", a multiple of {limits.multiple_of}" if limits.multiple_of else "")

    def _refuse(self, value: Any, allowed: str) -> UsageError:
        meaning = f" ({self.help})" if self.help else ""
        return UsageError(f"{self.name} = {shortened(value, 120)}: must be {allowed}{meaning}")


@cache
def settings_of(declaration: Any) -> Mapping[str, Setting]:
    """Return the fields of a Struct or dataclass by name.

    A field may be annotated with its bounds (:class:`msgspec.Meta`), its allowed values (a tuple) and its help text.
    """
    hints = get_type_hints(declaration, include_extras=True)
    fields = msgspec.inspect.type_info(declaration).fields  # type: ignore[attr-defined]
    return {field.name: _setting(field.name, hints[field.name], field.default) for field in fields}


def require_bounds(declared: Any) -> None:
    """Raise UsageError if an instance of a declaration has a value out of bounds."""
    for setting in settings_of(declared.__class__).values():
        setting.require(getattr(declared, setting.name))


def _setting(name: str, hint: Any, default: Any) -> Setting:
    kind, notes = _annotated(hint)
    if listed := get_origin(kind) is tuple:
        kind, of_items = _annotated(get_args(kind)[0])
        notes = (*notes, *of_items)
    noted: dict[type, Any] = {type(note): note for note in notes}
    return Setting(
        name,
        kind if kind in (bool, int, float) else str,
        default,
        noted.get(str, ""),
        noted.get(tuple, ()),
        noted.get(msgspec.Meta, _UNLIMITED),
        listed,
    )


def _annotated(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())


class Taken:
    """The settings of a study: those of its notebook's parameters cell, further ones, and its own defaults."""

    def __init__(
        self,
        cell: Iterable[str],
        further: Iterable[str],
        defaults: Mapping[str, Any] | None = None,
        single: Iterable[str] = (),
    ) -> None:
        declared, own_defaults = settings_of(Settings), defaults or {}
        self.cell = tuple(cell)
        self._single = tuple(single)  # lists of which the study takes one number
        names = {*self.cell, *further}
        self.settings = {
            name: replace(setting, default=own_defaults.get(name, setting.default))
            for name, setting in declared.items()
            if name in names
        }

    def read(self, given: Mapping[str, Any]) -> Settings:
        """Return checked settings, the rest at their defaults; UsageError for an unknown name or a wrong value."""
        values = {name: one.default for name, one in self.settings.items()}
        for name, value in given.items():
            if name not in self.settings:
                raise UsageError(f"parameter {shortened(name)} is not known: {nearest(name, self.settings)}")
            values[name] = self.settings[name].read(value)
            if name in self._single and len(values[name]) > 1:
                raise UsageError(f"{name} = {shortened(value)}: this study takes one number, not a list")
        return Settings(**values)

    def is_default(self, name: str, value: Any) -> bool:
        """Whether this is a setting of the study, and the value its default as a notebook holds it."""
        if name not in self.settings:
            return False
        default = self.settings[name].text(self.settings[name].default)
        return type(value) is type(default) and bool(value == default)

    def plain(self, settings: Settings) -> dict[str, Value]:
        """Return the settings of the study as plain values, as a plan holds them."""
        return {name: one.text(getattr(settings, name)) for name, one in self.settings.items()}

    def groups(self) -> Iterator[tuple[str, list[Setting]]]:
        """Yield headings with their settings: those of the parameters cell, then the further ones by group."""
        yield "In the parameters cell", [self.settings[name] for name in self.cell]
        heading, further = "", dict[str, list[Setting]]()
        for name in settings_of(Settings):
            heading = GROUPS.get(name, heading)
            if name in self.settings and name not in self.cell:
                further.setdefault(heading, []).append(self.settings[name])
        yield from further.items()

    def source(self) -> str:
        """Return the source of the parameters cell of the study's notebook."""
        lines = []
        for one in (self.settings[name] for name in self.cell):
            kind = "str" if one.listed else one.kind.__name__
            default = one.text(one.default)
            value = json.dumps(default) if isinstance(default, str) else repr(default)
            lines.append(f"{one.name}: {kind} = {value}  # {one.meaning}")
        return "\n".join(lines)


def with_design(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given settings together with those of the file that ``design`` names; the given ones win.

    Former names are replaced by present ones.

    UsageError where the file cannot be read.
    """
    given = current_settings(given)
    file = given.pop("design", "")
    if not file:
        return given
    designed = read_yaml(Path(str(file)), str(file), "a mapping of parameter names to values")
    if "design" in designed:
        raise UsageError(f"{file}: design: a design cannot name another; put its settings here")
    return {**current_settings(designed), **given}


def nearest(name: str, known: Iterable[str]) -> str:
    """Return, for a message, the known name that was probably meant, and all known names."""
    allowed = list(known)
    near = difflib.get_close_matches(name, allowed, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"must be one of {', '.join(allowed)}"


def given_in_notebook(sources: Iterable[str], namespace: Mapping[str, Any], taken: Taken) -> dict[str, Any]:
    """Return the settings that a notebook's parameter cells have set.

    `sources` are the executed cells, oldest first (IPython's ``In``), `namespace` the notebook's globals, for the
    values. A line of the parameters cell that still has its default counts as not set, so that a design can set it.
    What papermill injects always counts as set.
    """
    names: dict[str, bool] = {}
    for source in sources:
        assigned = _assigned_literals(source)
        is_whole_cell = set(taken.cell) <= set(map(current_setting, assigned))
        for name in assigned:
            names[name] = names.get(name, False) or not is_whole_cell
    return {
        name: namespace[name]
        for name, is_injected in names.items()
        if name in namespace
        and not name.startswith(_PAPERMILLS)
        and (is_injected or not taken.is_default(current_setting(name), namespace[name]))
    }


def _assigned_literals(source: str) -> list[str]:
    """Return the names that a cell sets if it holds nothing but ``name = literal``; no names otherwise."""
    names = []
    try:
        for statement in ast.parse(source).body:
            match statement:
                case (
                    ast.Assign(targets=[ast.Name(id=name), *_], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    ast.literal_eval(value)
                    names.append(name)
                case _:
                    return []
    except (SyntaxError, ValueError):
        return []
    return names


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of a text with commas: (``a``, ``b``) for ``a, b``."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def as_number(text: str) -> int | float:
    """Return the number that a text holds, whole if it is; ValueError if it holds none."""
    number = float(text)
    return int(number) if number.is_integer() else number
