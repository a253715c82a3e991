"""What a load generator says of the load that it was asked for, and of what became of it.

Opinion: what a file does not say is None, never a default, so that nobody compares a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def compared(label: str, *, blocking: bool = False) -> Any:
    """A field in which files may differ: what a reader calls it, and whether a difference forbids the comparison."""
    return field(default=None, metadata={"label": label, "blocking": blocking})


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """The load of one run, as far as its file says.

    Attributes
    ----------
    generator : str
        ``fortio``, ``nighthawk``, ``wrk2``, ...
    client : str or None
        ``fast`` or ``std`` (fortio's two HTTP clients: never comparable with each other), ``grpc``,
        ``tcp``, ``udp``, or None where the file does not say.
    start_unix_ns : int or None
        Wall clock at which it began.
    closed_loop : bool or None
        True where it sent as fast as answers came.
    requested_rps : float or None
        None for a closed loop or where the file does not say.
    requested_duration_s : float or None
        None for an exact number of calls (``exactly``) or a run until interrupted.
    threads : int or None
        Connections, each a closed loop of its own.
    users : int or None
        Virtual users, where their number was the same all along.
    requests : int or None
        All that were sent in ``actual_duration_s``.
    sent_share : float or None
        Of what should have been sent; None where the asked rate tells it, or nothing does.
    resolution_s : float or None
        ``-r`` of fortio, where the file says it.
    catchup : bool or None
        False is fortio's ``-nocatchup``.
    body_bytes : float or None
        Mean size of the answers.
    """

    generator: str = field(metadata={"label": "load generator", "blocking": True})
    client: str | None = compared("client", blocking=True)
    version: str | None = compared("version")
    run_type: str | None = None
    labels: str | None = None
    url: str | None = None
    start_unix_ns: int | None = None
    closed_loop: bool | None = compared("closed loop", blocking=True)
    requested_rps: float | None = compared("rate (rps)", blocking=True)
    requested_duration_s: float | None = compared("duration (s)")
    exactly: int | None = compared("number of calls")
    actual_rps: float | None = None
    actual_duration_s: float | None = None
    threads: int | None = compared("connections", blocking=True)
    users: int | None = compared("virtual users", blocking=True)
    requests: int | None = None
    sent_share: float | None = None
    uniform: bool | None = compared("uniform")
    jitter: bool | None = compared("jitter")
    catchup: bool | None = compared("catch-up")
    keepalive: bool | None = compared("keep-alive", blocking=True)
    h2: bool | None = compared("HTTP/2", blocking=True)
    payload_bytes: int | None = compared("payload (bytes)", blocking=True)
    timeout_s: float | None = compared("timeout (s)")
    sockets: int | None = None
    resolution_s: float | None = compared("histogram resolution (s)")
    body_bytes: float | None = None
