"""A load generator's settings and totals, as far as its file contains them.

Opinion: a setting that a file does not contain is None, never a default, so that no guess is compared.
"""

from dataclasses import dataclass, field
from typing import Any


def compared(label: str, *, blocking: bool = False) -> Any:
    """Declare a setting in which files may differ: its label, and whether a difference forbids a comparison."""
    return field(default=None, metadata={"label": label, "blocking": blocking})


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """The load of one run; None for everything that its file does not contain."""

    generator: str = field(metadata={"label": "load generator", "blocking": True})  # ``fortio``, ``wrk2``, ...
    # `fast` or `std` (fortio's two HTTP clients, never comparable with each other), `grpc`, `tcp` or `udp`.
    client: str | None = compared("client", blocking=True)
    version: str | None = compared("version")
    run_type: str | None = None
    labels: str | None = None
    url: str | None = None
    start_unix_ns: int | None = None  # by the wall clock
    closed_loop: bool | None = compared("closed loop", blocking=True)  # True if it sends as fast as answers arrive
    requested_rps: float | None = compared("rate (rps)", blocking=True)  # None for a closed loop
    requested_duration_s: float | None = compared("duration (s)")  # None for `exactly`, or an endless run
    exactly: int | None = compared("number of calls")
    actual_rps: float | None = None
    actual_duration_s: float | None = None
    threads: int | None = compared("connections", blocking=True)  # each a closed loop of its own
    # Only if their number was constant.
    users: int | None = compared("virtual users", blocking=True)
    requests: int | None = None  # sent in `actual_duration_s`
    sent_share: float | None = None  # of the planned requests; None if it follows from the rate, or is unknown
    uniform: bool | None = compared("uniform")
    jitter: bool | None = compared("jitter")
    catchup: bool | None = compared("catch-up")  # False is fortio's `-nocatchup`
    keepalive: bool | None = compared("keep-alive", blocking=True)
    h2: bool | None = compared("HTTP/2", blocking=True)
    payload_bytes: int | None = compared("payload (bytes)", blocking=True)
    timeout_s: float | None = compared("timeout (s)")
    sockets: int | None = None  # opened, including those of fortio's warm-up call; None for gRPC
    resolution_s: float | None = compared("histogram resolution (s)")  # fortio's `-r`
    body_bytes: float | None = None  # mean size of an answer
