"""How generators share a load, and which loads fortio can generate; both are known before anything is deployed."""

import math
from fractions import Fraction

from meshtrial.design.load import CapacitySearch, FixedRate, Load, OpenLoad, RestartUnderLoad
from meshtrial.errors import UsageError

# With fewer bytes fortio sends a text of its own.
LEAST_TCP_BYTES = 32


def protocol_of(load: Load, number: int) -> str:
    """Return the protocol of generator ``number``, counted from 1."""
    return load.protocols[(number - 1) % len(load.protocols)]


def split_connections(load: Load) -> tuple[int, ...]:
    """Return the connections of each generator; they add up to those of the load."""
    each, left = divmod(load.connections, load.generators)
    return tuple(each + (i < left) for i in range(load.generators))


def split_rate(load: Load, connections: int, duration_s: float) -> float:
    """Return the rate of a generator with this number of the load's connections, in requests per second.

    It is rounded up by one unit in the last place where rounding down would lose a request. fortio truncates
    rate times duration, and 42.857142857142854 rps times 21 s is 899.9999999999999.
    """
    share = Fraction(load.asked_rps) * connections / load.connections
    rate = float(share)
    if int(rate * duration_s) < int(share * Fraction(duration_s)):
        rate = math.nextafter(rate, math.inf)
    return rate


def require_possible(load: Load) -> None:
    """Raise UsageError for a load that the generator would silently change or cannot generate."""
    if load.streams:
        _require_streams(load)
    if load.idle_connections and (load.streams or load.new_connections or load.replicas > 1):
        raise UsageError(
            f"idle_connections = {load.idle_connections}: are kept open to one copy of the application, by a protocol "
            "that keeps connections between requests; use protocol http1, h2 or grpc, and leave out replicas"
        )
    if not load.keepalive and load.protocol not in ("http1", "tcp"):
        raise UsageError(
            f"keepalive = False with protocol = {load.protocol!r}: fortio closes only HTTP/1.1 connections; "
            "use protocol http1"
        )
    if load.protocol == "mixed" and (load.payload_bytes or isinstance(load, CapacitySearch)):
        raise UsageError(
            "protocol = 'mixed': allows neither payload_bytes (gRPC pings have none) nor a capacity search"
        )
    if load.response_bytes and "grpc" in load.protocols:
        raise UsageError(f"response_bytes = {load.response_bytes} with gRPC: a ping is answered with what it sent")
    least = 0 if load.new_connections else LEAST_TCP_BYTES
    if load.protocol == "tcp" and (load.payload_bytes < least or load.response_bytes or load.headers):
        raise UsageError(
            f"protocol = 'tcp': set payload_bytes, which are sent and echoed, to {LEAST_TCP_BYTES} or more; "
            "response_bytes and headers belong to HTTP"
        )
    if isinstance(load, RestartUnderLoad) and load.around_s > (remaining_s := load.duration_s - load.restart_at_s):
        raise UsageError(
            f"around_s = {load.around_s:g}: must be at most the rest of duration_s after restart_at_s, {remaining_s:g}"
        )
    load = load.part(0)
    if not isinstance(load, OpenLoad):
        return
    for connections in split_connections(load):
        if int(split_rate(load, connections, load.duration_s) * load.duration_s) < 2 * connections:
            needed = 2 * load.connections / load.rps
            raise UsageError(
                f"rps = {load.rps:g} for duration_s = {load.duration_s:g} over connections = {load.connections}: "
                "fortio needs at least 2 requests per connection and would use fewer connections; "
                f"measure for {needed:g} s or more, or lower connections"
            )


def _require_streams(load: Load) -> None:
    """Raise UsageError for a load that streams cannot have, because the server sends their events at a fixed rate."""
    if not isinstance(load, FixedRate):
        remedy = "set capacity=False" if isinstance(load, CapacitySearch) else "use a fixed rate"
        raise UsageError(f"protocol = {load.protocol!r}: the server sends events at a fixed rate; {remedy}")
    unfit = {"payload_bytes": load.payload_bytes > 0, "arrivals": load.arrivals != "uniform"}
    unfit |= {"keepalive": not load.keepalive, "catchup": not load.catchup}
    if given := ", ".join(name for name, is_given in unfit.items() if is_given):
        raise UsageError(
            f"protocol = {load.protocol!r} with {given}: a stream is one request without a body, whose events are due "
            f"evenly; leave {given} out"
        )
