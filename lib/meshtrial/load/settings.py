"""What a load generator says of the load that it was asked for, and of what became of it.

Opinion: what a file does not say is None, never a default, so that nobody compares a guess.
"""

from dataclasses import dataclass, field
from typing import Any


def compared(label: str, *, blocking: bool = False) -> Any:
    """A field in which files may differ: what a reader calls it, and whether a difference forbids the comparison."""
    return field(default=None, metadata={"label": label, "blocking": blocking})


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """The load of one run, as far as its file says; None where it does not."""

    generator: str = field(metadata={"label": "load generator", "blocking": True})  # ``fortio``, ``wrk2``, ...
    # `fast` or `std` (fortio's two HTTP clients: never comparable with each other), `grpc`, `tcp`, `udp`
    client: str | None = compared("client", blocking=True)
    version: str | None = compared("version")
    run_type: str | None = None
    labels: str | None = None
    url: str | None = None
    start_unix_ns: int | None = None  # wall clock at which it began
    closed_loop: bool | None = compared("closed loop", blocking=True)  # sent as fast as answers came
    requested_rps: float | None = compared("rate (rps)", blocking=True)  # None for a closed loop
    requested_duration_s: float | None = compared("duration (s)")  # None for `exactly`, or until interrupted
    exactly: int | None = compared("number of calls")
    actual_rps: float | None = None
    actual_duration_s: float | None = None
    threads: int | None = compared("connections", blocking=True)  # each a closed loop of its own
    # Where their number was the same all along.
    users: int | None = compared("virtual users", blocking=True)
    requests: int | None = None  # all that were sent in `actual_duration_s`
    sent_share: float | None = None  # of what should have been; None where the asked rate tells it, or nothing does
    uniform: bool | None = compared("uniform")
    jitter: bool | None = compared("jitter")
    catchup: bool | None = compared("catch-up")  # False is fortio's `-nocatchup`
    keepalive: bool | None = compared("keep-alive", blocking=True)
    h2: bool | None = compared("HTTP/2", blocking=True)
    payload_bytes: int | None = compared("payload (bytes)", blocking=True)
    timeout_s: float | None = compared("timeout (s)")
    sockets: int | None = None  # opened, those of fortio's warm-up call included; None for gRPC
    resolution_s: float | None = compared("histogram resolution (s)")  # fortio's `-r`
    body_bytes: float | None = None  # mean size of the answers
