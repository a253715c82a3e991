"""System calls and context switches per request, by component, which a study counts after its runs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from meshtrial.errors import RecordError, UsageError
from meshtrial.records.store import MECHANISM, read_json, seal, write_json
from meshtrial.typed import of_schema, read

FILE = MECHANISM
SCHEMA = "meshtrial.mechanism/1"
READS = ("read", "readv", "recvfrom", "recvmsg", "pread64")
WRITES = ("write", "writev", "sendto", "sendmsg", "pwrite64")


@dataclass(frozen=True)
class ComponentCalls:
    """The counts of one component."""

    component: str
    role: str
    calls: Mapping[str, int]  # system calls by name
    switches: int | None  # context switches, counted by the kernel in an untraced stage of the same load

    def of(self, names: tuple[str, ...]) -> int:
        """Return the number of calls of these names."""
        return sum(self.calls.get(name, 0) for name in names)


@dataclass(frozen=True)
class Mechanism:
    """The counts of one treatment."""

    treatment: str
    load: str  # label of the load of the counts: the number of calls per request depends on the rate
    # Requests in the traced stage, and in the stage before it, in which context switches were counted
    traced: int
    untraced: int
    components: tuple[ComponentCalls, ...]


def write_mechanism(folder: Path, mechanisms: tuple[Mechanism, ...]) -> None:
    """Write the counts into a study's folder."""
    write_json(folder / FILE, {"schema": SCHEMA, "treatments": [asdict(one) for one in mechanisms]})
    seal(folder, FILE)


def read_mechanism(folder: Path) -> tuple[Mechanism, ...]:
    """Return a study's counts; empty if it has none.

    RecordError if the file is incomplete.
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
        raise RecordError(f"{path}: incomplete ({error}); restore it from a backup") from None
    return counted
