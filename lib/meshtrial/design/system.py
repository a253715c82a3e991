"""A system of services whose costs are predicted: services, calls between them, and paths of a user's requests.

A system file is YAML, or the table of its calls as CSV. A caller and a callee are joined by one call; requests of
several kinds between them are one rate with the sizes of the most frequent kind.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import yaml
from msgspec import Meta

from meshtrial import typed
from meshtrial.decoding import NotTextError, text_of
from meshtrial.design.parameters import as_number, require_bounds
from meshtrial.errors import UsageError

T = TypeVar("T")
# Protocols with which proxies are measured. A mixed load has two of them, so it describes no single call.
CALL_PROTOCOLS = ("http1", "h2", "grpc", "tcp")
_ARROW = ">"

# Bounds for a real system, wider than those of a load generator.
Count = Annotated[int, Meta(ge=1, le=100_000)]
Bytes = Annotated[int, Meta(ge=0, le=2**40)]


@dataclass(frozen=True)
class Service:
    """A service of the system."""

    name: str
    replicas: Count = 1  # its pods, each with a proxy of its own in a mesh with sidecars
    cpu_us: Annotated[float, Meta(gt=0, le=1e9)] | None = None  # the application's own CPU per request that it answers
    outside: bool = False  # whether it has no proxy, so that its calls pass that of the callee only

    def __post_init__(self) -> None:
        # The bounds of an optional field are checked when it is read.
        if not self.name or _ARROW in self.name:
            raise UsageError(f"name = {typed.shortened(self.name)}: must be a name without {_ARROW!r}")


@dataclass(frozen=True)
class Call:
    """The calls of one service to another."""

    caller: str
    callee: str
    rps: Annotated[float, Meta(gt=0, le=1e9)]  # over all replicas
    protocol: Annotated[str, CALL_PROTOCOLS] = "http1"
    connections: Count = 1  # over all replicas
    request_bytes: Bytes = 0  # sizes of the bodies
    response_bytes: Bytes = 0

    def __post_init__(self) -> None:
        require_bounds(self)

    @property
    def pair(self) -> tuple[str, str]:
        """Caller and callee."""
        return self.caller, self.callee


class CallStep(NamedTuple):
    """A step of a path: one call, whose answer is awaited."""

    caller: str
    callee: str


@dataclass(frozen=True)
class Parallel:
    """A step of a path: sequences of steps that begin together, of which the slowest is awaited."""

    branches: tuple[tuple[Step, ...], ...]


Step: TypeAlias = CallStep | Parallel


@dataclass(frozen=True)
class System:
    """Services, their calls, and paths by name.

    A service that is only named in calls is added with one replica. UsageError for two calls with the same caller and
    callee, and for a path that is not a tree of the system's calls.
    """

    services: Mapping[str, Service]
    calls: tuple[Call, ...]
    paths: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.calls:
            raise UsageError("calls is empty; name at least one caller and callee")
        pairs: set[tuple[str, str]] = set()
        for index, call in enumerate(self.calls):
            if call.pair in pairs:
                arrow = _ARROW.join(call.pair)
                raise UsageError(f"calls[{index}]: {arrow} was already given; write one call with the sum of the rates")
            pairs.add(call.pair)
        named = {name: Service(name) for pair in pairs for name in pair}
        if unused := sorted(set(self.services) - set(named)):
            raise UsageError(f"services.{unused[0]}: no call names this service; add its calls or remove it")
        ordered = [*self.services, *(name for call in self.calls for name in call.pair)]
        object.__setattr__(self, "services", {name: self.services.get(name, named[name]) for name in ordered})
        for name, steps in self.paths.items():
            _check_path(f"paths.{name}", steps, pairs, named.keys())

    @property
    def by_pair(self) -> dict[tuple[str, str], Call]:
        """The calls by caller and callee."""
        return {call.pair: call for call in self.calls}

    def to_yaml(self) -> str:
        """Return the text of a system file, which `read_system` reads as this system."""
        services = {name: _changed(one, "name") for name, one in self.services.items()}
        written = {
            "services": {name: one for name, one in services.items() if one},
            "calls": [_changed(call) for call in self.calls],
            "paths": {name: _written(steps) for name, steps in self.paths.items()},
        }
        filled = {name: part for name, part in written.items() if part}
        return yaml.safe_dump(filled, sort_keys=False, default_flow_style=None, width=120)


def calls_of(steps: Sequence[Step]) -> Iterator[tuple[str, str]]:
    """Yield caller and callee of each call of a path, in the order in which they are written."""
    for step in steps:
        if isinstance(step, CallStep):
            yield step
        else:
            for branch in step.branches:
                yield from calls_of(branch)


def read_system(path: Path) -> System:
    """Read a system file, YAML or CSV by its ending; UsageError names file, place and value of a mistake."""
    where = str(path)
    is_csv = path.suffix.lower() == ".csv"
    try:
        return _read_csv(path) if is_csv else system_of(typed.read_yaml(path, where, "a mapping with calls"))
    except UsageError as error:
        raise UsageError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


@dataclass(frozen=True)
class _Written:
    """The data of a system file; its parts are read one by one, so that a message names the part."""

    calls: tuple[dict[str, Any], ...]
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    paths: dict[str, tuple[Any, ...]] = field(default_factory=dict)


def system_of(data: Mapping[str, Any]) -> System:
    """Read the data of a system file; UsageError names the place and value of a mistake."""
    written = typed.read(_Written, data)
    services = {
        name: _part(Service, {"name": name, **given}, f"services.{name}") for name, given in written.services.items()
    }
    calls = tuple(_part(Call, call, f"calls[{index}]") for index, call in enumerate(written.calls))
    paths = {name: _steps(steps, f"paths.{name}") for name, steps in written.paths.items()}
    return System(services, calls, paths)


def _read_csv(path: Path) -> System:
    """Read the table of calls; a cell that is no number stays text, which is then refused as such."""
    try:
        rows = csv.DictReader(io.StringIO(text_of(path.expanduser().read_bytes())), skipinitialspace=True)
        columns = [name.strip() for name in rows.fieldnames or ()]
        rows.fieldnames = columns
        lines = [(rows.line_num, row) for row in rows]  # numbers change as rows are read
    except OSError as error:
        raise UsageError(f"cannot be read ({error.strerror})") from None
    except (NotTextError, csv.Error) as error:
        raise UsageError(f"is not a CSV table ({error})") from None
    known = [one.name for one in dataclasses.fields(Call)]
    for name in ("caller", "callee", "rps"):
        if name not in columns:
            raise UsageError(f"has no column {name}; a table of calls has the columns {', '.join(known)}")
    calls = []
    for line, row in lines:
        if None in row or None in row.values():
            raise UsageError(f"line {line}: must have {len(columns)} values, one for each column")
        given = {name: _cell(name, value.strip()) for name, value in row.items() if value.strip()}
        calls.append(_part(Call, given, f"line {line}"))
    return System({}, tuple(calls))


def _cell(column: str, text: str) -> Any:
    try:
        return text if column in ("caller", "callee", "protocol") else as_number(text)
    except ValueError:
        return text


def _part(kind: type[T], data: Mapping[str, Any], place: str) -> T:
    """Read a part of the file; every message begins with its place."""
    try:
        return typed.read(kind, data, place)
    except UsageError as error:
        message = str(error)
        has_unit = isinstance(data.get("rps"), str) and "rps" in message
        message += ": write requests per second, without a unit" if has_unit else ""
        raise UsageError(message if message.startswith(place) else f"{place}: {message}") from None


def _steps(data: Any, place: str) -> tuple[Step, ...]:
    if not isinstance(data, list | tuple) or not data:
        raise UsageError(f"{place} is {typed.shortened(data)}, not a list of steps")
    return tuple(_step(step, f"{place}[{index}]") for index, step in enumerate(data))


def _step(data: Any, place: str) -> Step:
    if isinstance(data, str):
        ends = [end.strip() for end in data.split(_ARROW)]
        if len(ends) == 2 and all(ends):
            return CallStep(*ends)
    elif isinstance(data, Mapping) and [*data] == ["parallel"] and isinstance(data["parallel"], list | tuple):
        branches = data["parallel"]
        return Parallel(tuple(_steps(one, f"{place}.parallel[{index}]") for index, one in enumerate(branches)))
    raise UsageError(f"{place} is {typed.shortened(data)}, not a call such as a{_ARROW}b or a list of lists `parallel`")


def _check_path(place: str, steps: Sequence[Step], pairs: Set[tuple[str, str]], services: Set[str]) -> None:
    """Raise UsageError unless a path's calls are calls of the system, without a cycle, and all from one beginning."""
    if not steps:
        raise UsageError(f"{place}: has no steps")
    graph: TopologicalSorter[str] = TopologicalSorter()
    taken = list(calls_of(steps))
    for pair in taken:
        for name in pair:
            if name not in services:
                raise UsageError(f"{place}: service {name!r} is in no call; add the call or correct the name")
        if pair not in pairs:
            raise UsageError(f"{place}: {_ARROW.join(pair)} is no call of this system; add it to calls")
        graph.add(pair[1], pair[0])
    try:
        graph.prepare()
    except CycleError as error:
        raise UsageError(f"{place}: the calls {_ARROW.join(error.args[1])} form a cycle; a path is a tree") from None
    called = {callee for _, callee in taken}
    if len(starts := dict.fromkeys(caller for caller, _ in taken if caller not in called)) > 1:
        raise UsageError(f"{place}: begins at {' and at '.join(starts)}; add the calls that join them")


def _changed(one: Service | Call, *left_out: str) -> dict[str, Any]:
    """Return the fields without those that have their default."""
    values = ((each, getattr(one, each.name)) for each in dataclasses.fields(one) if each.name not in left_out)
    return {each.name: value for each, value in values if value != each.default}


def _written(steps: Sequence[Step]) -> list[Any]:
    return [
        _ARROW.join(step)
        if isinstance(step, CallStep)
        else {"parallel": [_written(branch) for branch in step.branches]}
        for step in steps
    ]
