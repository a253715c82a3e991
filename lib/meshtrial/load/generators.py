"""The terms shared by load and testbeds: the target of the generators, one call, and its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from meshtrial.records.schema import ComponentUsage


@dataclass(frozen=True)
class Target:
    """The addresses that the generators call."""

    url: str  # ``http://address:port/path``, or ``address:port`` where the load is gRPC alone
    headers: tuple[tuple[str, str], ...] = ()  # sent with every request (a token, for instance)
    grpc: str = ""  # ``address:port`` of the gRPC calls of a mixed load; empty elsewhere
    # Further addresses, assigned in turn with `url` to the generators if nothing else balances the load.
    copies: tuple[str, ...] = ()

    def asking(self, response_bytes: int) -> Target:
        """Return the target with the size of the answer in its URLs; unchanged for 0."""
        if not response_bytes:
            return self
        query = f"?size={response_bytes}"
        return replace(self, url=self.url + query, copies=tuple(url + query for url in self.copies))

    def arguments(self, call: GeneratorCall) -> tuple[str, ...]:
        """Return the headers and the address of one call as fortio's arguments.

        There is no space after the colon: fortio's HTTP/2 client would send it as part of the value.
        """
        headers = [part for name, value in self.headers for part in ("-H", f"{name}:{value}")]
        urls = (self.url, *self.copies)
        return (*headers, self.grpc if self.grpc and call.grpc else urls[(call.number - 1) % len(urls)])


@dataclass(frozen=True)
class GeneratorCall:
    """One call of a load generator, without file names and target, which the testbed adds."""

    arguments: tuple[str, ...]  # after the program's name
    name: str  # unique within the run; names the files
    number: int = 1  # of the generator, from 1
    program: str = "fortio"  # one that takes fortio's arguments for this load

    @property
    def grpc(self) -> bool:
        """Return whether it sends gRPC."""
        return "-grpc" in self.arguments


def publishable(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command line for the record: without this machine's paths and without tokens."""
    rest = ("Authorization: (run-time token)" if a.startswith("Authorization:") else a for a in argv[1:])
    return (Path(argv[0]).name, *rest)


@dataclass(frozen=True)
class GeneratorOutput:
    """Result of one call: files on this machine, and the process's CPU time."""

    name: str
    argv: tuple[str, ...]
    exit_code: int
    json_path: Path
    access_log_path: Path
    text: str
    usage: ComponentUsage
