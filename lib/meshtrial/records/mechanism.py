"""System calls and context switches a request, by component: what a study counted after its runs, apart from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from meshtrial.errors import RecordError
from meshtrial.records.store import read_json, write_json
from meshtrial.typed import SHAPE_ERRORS, mismatch, shortened

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
    data = read_json(path)
    if data.get("schema") != SCHEMA:
        raise RecordError(f"{path}: schema is {shortened(data.get('schema'))}, this version reads {SCHEMA!r}")
    try:
        found = tuple(_mechanism(item) for item in data["treatments"])
        wrong = next(filter(None, map(mismatch, found)), "")
        wrong = wrong or (
            "a count of requests is not above 0" if any(min(m.traced, m.untraced) < 1 for m in found) else ""
        )
    except SHAPE_ERRORS as error:
        wrong = shortened(error, 120)
    if wrong:
        raise RecordError(f"{path}: not whole ({wrong}); delete it, and the study stays as it is without it")
    return found


def _mechanism(item: Mapping[str, Any]) -> Mechanism:
    return Mechanism(**{**item, "components": tuple(ComponentCalls(**one) for one in item["components"])})
