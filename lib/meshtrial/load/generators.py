"""What the generators call, how they are called, and what comes back: the terms between load and testbeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from meshtrial.records.schema import ComponentUsage


@dataclass(frozen=True)
class Target:
    """What the generators call."""

    url: str  # ``http://address:port/path``, or ``address:port`` where the load is gRPC alone
    headers: tuple[tuple[str, str], ...] = ()  # sent with every request (a token, for instance)
    grpc: str = ""  # ``address:port`` of the gRPC calls of a mixed load; empty elsewhere
    # Further addresses that take turns with `url`, generator by generator, where nothing else balances.
    copies: tuple[str, ...] = ()

    def asking(self, response_bytes: int) -> Target:
        """The same, with the size of the answer in its URLs; as it is for 0."""
        if not response_bytes:
            return self
        query = f"?size={response_bytes}"
        return replace(self, url=self.url + query, copies=tuple(url + query for url in self.copies))

    def arguments(self, call: GeneratorCall) -> tuple[str, ...]:
        """Headers and address for one call, as fortio takes them.

        No space behind the colon: fortio's HTTP/2 client sends it as part of the value, which no policy accepts.
        """
        headers = [part for name, value in self.headers for part in ("-H", f"{name}:{value}")]
        urls = (self.url, *self.copies)
        return (*headers, self.grpc if self.grpc and call.grpc else urls[(call.number - 1) % len(urls)])


@dataclass(frozen=True)
class GeneratorCall:
    """One fortio invocation to be made: its arguments behind the program name, without file names."""

    arguments: tuple[str, ...]  # all but ``-json``, ``-access-log-file`` and the target, which the testbed adds
    name: str  # unique within the run; names the files
    number: int = 1  # the generator's, from 1

    @property
    def grpc(self) -> bool:
        """Whether it sends gRPC."""
        return "-grpc" in self.arguments


def publishable(argv: Sequence[str]) -> tuple[str, ...]:
    """A generator's command line as a record keeps it: no path of this machine, and no token, were it worthless."""
    rest = ("Authorization: (run-time token)" if a.startswith("Authorization:") else a for a in argv[1:])
    return (Path(argv[0]).name, *rest)


@dataclass(frozen=True)
class GeneratorOutput:
    """What came back of one call: files on this machine, and the process's own CPU time."""

    name: str
    argv: tuple[str, ...]
    exit_code: int
    json_path: Path
    access_log_path: Path
    text: str
    usage: ComponentUsage
