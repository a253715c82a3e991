"""Connections that are open beside the load without requests, and the proof that they were open through the proxy.

A load generator that is silent keeps them. It counts as load generator, and ends with the deployment.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.load import fortio
from meshtrial.load.generators import Target
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import sockets
from meshtrial.testbed.local.deployment import Spec, Started, command
from meshtrial.testbed.local.fleet import Fleet
from meshtrial.testbed.local.sockets import Endpoint

NAME = "idle connections"
_OPEN_S = 60.0  # within which all of them must be open


def beside(start: Callable[[Spec, Fleet], Started]) -> Callable[[Spec, Fleet], Started]:
    """Return a function that starts a data plane and then opens the idle connections of the load, if it has any."""

    def started(spec: Spec, fleet: Fleet) -> Started:
        plane = start(spec, fleet)
        call, number = fortio.idle(spec.load), spec.load.idle_connections
        if call is None:
            return plane
        fleet.note_version(call.program)
        at = _entry(plane.target)
        holder = fleet.start(NAME, "load generator", command(call, plane.target), [])
        if not waiting.until(lambda: open_at(fleet, at) >= number or not holder.alive(), _OPEN_S, 0.05):
            raise TestbedError(
                f"{NAME}: {open_at(fleet, at)} of {number} were open after {_OPEN_S:g} s; raise the limit of open "
                f"files (ulimit -n), or hold fewer: {holder.tail()}"
            )

        def prove(phase: str, _: int) -> list[Proof]:
            held = open_at(fleet, at)
            return [Proof(NAME, phase, held >= number, f"at least {number} open", f"{held} open")]

        return replace(plane, provers=[*plane.provers, prove])

    return started


def open_at(fleet: Fleet, endpoint: Endpoint) -> int:
    """Return how many connections are open there: by the proxy's own gauge, or by the kernel if there is no proxy."""
    proxy = fleet.proxy_at(endpoint)
    if proxy is None:
        return sockets.established(endpoint)
    gauge = "listener.{}_{}.downstream_cx_active".format(*endpoint)
    return proxy.stats(f"^{re.escape(gauge)}$").get(gauge, 0)


def _entry(target: Target) -> Endpoint:
    """Return the address that the generators call."""
    parts = urlsplit(target.url if "//" in target.url else f"//{target.url}")
    return str(parts.hostname), int(parts.port or 0)
