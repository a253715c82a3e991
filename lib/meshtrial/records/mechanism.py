"""System calls and context switches a request, by component: what a study counted after its runs, apart from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from meshtrial.errors import RecordError, UsageError
from meshtrial.records.store import read_json, write_json
from meshtrial.typed import of_schema, read

FILE = "mechanism.json"
SCHEMA = "meshtrial.mechanism/1"
READS = ("read", "readv", "recvfrom", "recvmsg", "pread64")
WRITES = ("write", "writev", "sendto", "sendmsg", "pwrite64")


@dataclass(frozen=True)
class ComponentCalls:
    """What one component did.

    Attributes
    ----------
    component, role : str
    calls : mapping of str to int
        System calls by name.
    switches : int or None
        Context switches, counted by the kernel in an untraced stage of the same load.
    """

    component: str
    role: str
    calls: Mapping[str, int]
    switches: int | None

    def of(self, names: tuple[str, ...]) -> int:
        """How many calls of these names."""
        return sum(self.calls.get(name, 0) for name in names)


@dataclass(frozen=True)
class Mechanism:
    """What was counted of one treatment.

    Attributes
    ----------
    load : str
        Label of the load under which it was counted: how many calls a request takes depends on the rate.
    traced, untraced : int
        Requests in the traced stage, and in the one before it in which context switches were counted.
    """

    treatment: str
    load: str
    traced: int
    untraced: int
    components: tuple[ComponentCalls, ...]


def write_mechanism(folder: Path, found: tuple[Mechanism, ...]) -> None:
    """Write what was counted into a study's folder."""
    write_json(folder / FILE, {"schema": SCHEMA, "treatments": [asdict(one) for one in found]})


def read_mechanism(folder: Path) -> tuple[Mechanism, ...]:
    """Read it back; empty where a study counted nothing.

    Raises
    ------
    RecordError
        Where the file is not whole.
    """
    path = folder / FILE
    if not path.is_file():
        return ()
    body = of_schema(read_json(path), SCHEMA, str(path))
    try:
        counted = read(tuple[Mechanism, ...], body.get("treatments"), "treatments")
        if any(min(one.traced, one.untraced) < 1 for one in counted):
            raise UsageError("a count of requests is not above 0")
    except UsageError as error:
        said = f"{path}: not whole ({error}); delete it, and the study stays as it is without it"
        raise RecordError(said) from None
    return counted
