"""fortio's arguments for a load, spelt out in full for each generator.

Opinion: an open rate, staggered over the connections (``-uniform``), an access log of every request, and a histogram
resolution that fits the tail. No option is left to a default, which another version may change. The measured call logs
a line for every request without an answer (``-loglevel Error``), because only the log gives the reason. If there could
be too many lines to keep, it logs none (``Critical``). "Falling behind" is printed at either level.

HTTP/1.1 uses fortio's own fast client, h2 Go's standard one. Their latencies differ by more than most meshes do, so
runs of the two are never compared. A mixed load uses both: its generators alternate, HTTP/1.1 first and gRPC second,
each with its share of connections and rate.
Events of streams are received by our own event-streams, which takes fortio's arguments and writes its files.
Limits: several generators are each staggered inside, not against each other.
"""

from dataclasses import replace
from decimal import Decimal

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.design import shares
from meshtrial.design.load import FixedRate, Load, OpenLoad, SlicedLoad
from meshtrial.load.failures import MOST_LOGGED
from meshtrial.load.generators import GeneratorCall

DEFAULT_RESOLUTION_S = 1e-5  # fits a p99.9 below 10 ms
COARSEST_RESOLUTION_S = 1.0
HEADER_BYTES = 64
_FAST_CLIENT_BUFFER_KIB = 128
_FOR_EVER_S = 86_400.0
_YEAR_S = 365 * 86_400.0


def calls(
    load: Load, phase: str, *, slice_index: int = 0, resolution_s: float = DEFAULT_RESOLUTION_S
) -> tuple[GeneratorCall, ...]:
    """Return the calls of all generators for ``warmup`` or ``measure``; empty for a warm-up of 0 s.

    Connections are split as evenly as possible and the rate in proportion, so every connection sends at the same rate.
    The duration of each slice is ``load.duration_s``. The calls' names, unique within the run, contain the slice's or
    ramp step's ``slice_index``, which starts at 0. The option ``-r`` is ``resolution_s``, from :func:`resolution_for`.
    Raise UsageError if fortio would silently use fewer connections, or cannot do what the load asks.
    """
    shares.require_possible(load)
    parts, load = load.parts, load.part(slice_index)
    duration = load.warmup_s if phase == "warmup" else load.call_s
    if duration == 0:
        return ()
    stem = phase if parts == 1 else f"{phase}-{slice_index + 1}"
    return tuple(
        GeneratorCall(
            arguments=_arguments(
                replace(load, protocol=shares.protocol_of(load, number)),
                *(phase, duration, connections, resolution_s, name := f"{stem}-g{number}"),
            ),
            name=name,
            number=number,
            program=_program(load),
        )
        for number, connections in enumerate(shares.split_connections(load), start=1)
    )


def trickle(load: Load) -> GeneratorCall | None:
    """Return a call of a few requests per second on one connection, to keep an idle deployment warm; None for none."""
    if not isinstance(load, SlicedLoad) or not load.trickle_rps:
        return None
    return _quiet(load, load.trickle_rps, 1, _FOR_EVER_S, "trickle")


def idle(load: Load) -> GeneratorCall | None:
    """Return a call that opens the idle connections of a load and keeps them open; None if it has none.

    They are opened one after another, so that proxies do not pool a connection to the application for each. One request
    opens a connection, and only the first has a second one. Over each, three are due in a year, because
    fortio keeps a connection only if two or more are due over it.
    """
    number = load.idle_connections
    if not number:
        return None
    call = _quiet(replace(load, keepalive=True), 3 * number / _YEAR_S, number, _YEAR_S, "idle-connections")
    return replace(call, arguments=("-sequential-warmup", *call.arguments))


def _quiet(load: Load, rps: float, connections: int, duration_s: float, name: str) -> GeneratorCall:
    """Return a call that sends a load's requests over few or idle connections, and is ended early."""
    few = FixedRate.like(load, rps=rps, connections=connections, generators=1, protocol=load.protocols[0])
    arguments = _arguments(few, "warmup", duration_s, connections, DEFAULT_RESOLUTION_S, name)
    return GeneratorCall(arguments, name, program=_program(load))


def resolution_for(latencies_s: ArrayLike) -> float:
    """Return the smallest power of ten r with the expected p99.9 below 1000 r, from the warm-up's latencies.

    Above 1000 r fortio's buckets are half an order of magnitude wide; below r there is only one bucket.
    """
    values = np.asarray(latencies_s, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        return DEFAULT_RESOLUTION_S
    expected = float(np.quantile(values, 0.999))
    exponent = -6
    while 10.0 ** (exponent + 3) <= expected and 10.0**exponent < COARSEST_RESOLUTION_S:
        exponent += 1
    return float(f"1e{exponent}")


def _program(load: Load) -> str:
    return "event-streams" if load.streams else "fortio"


def _arguments(
    load: Load, phase: str, duration_s: float, connections: int, resolution_s: float, name: str
) -> tuple[str, ...]:
    rate = shares.split_rate(load, connections, duration_s)
    arguments = ["-qps", plain(rate), "-c", str(connections), "-t", seconds(duration_s)]
    headers: list[str] = []
    for number in range(1, load.headers + 1):
        header = f"x-meshtrial-{number:03d}:"
        headers += ["-H", header + "m" * (HEADER_BYTES - len(header))]
    if load.streams:
        arguments += ["-r", plain(resolution_s), "-timeout", seconds(load.timeout_s), *headers]
        arguments += ["-grpc"] if load.only_grpc else []
        return (*arguments, "-size", str(load.response_bytes), "-labels", name)
    if isinstance(load, OpenLoad):
        arguments.append("-uniform")
        if load.arrivals == "jitter":
            arguments.append("-jitter")
        if not load.catchup:
            arguments.append("-nocatchup")
    arguments += ["-r", plain(resolution_s), "-timeout", seconds(load.timeout_s)]
    if load.protocol == "grpc":
        arguments += ["-grpc", "-ping"]
    elif load.protocol == "h2":
        arguments += ["-h2", "-stdclient"]
    if not load.keepalive:
        arguments.append("-keepalive=false")
    arguments += headers
    if load.payload_bytes:
        arguments += ["-payload-size", str(load.payload_bytes)]
    if load.payload_bytes or load.response_bytes:
        needed = max(load.payload_bytes, load.response_bytes) // 1024 + 64
        if (load.protocol == "http1" or load.new_connections) and needed > _FAST_CLIENT_BUFFER_KIB:
            # The fast client reads into a fixed buffer: larger answers would fail or arrive truncated.
            arguments += ["-httpbufferkb", str(needed)]
    few = 0 < load.asked_rps * duration_s <= MOST_LOGGED
    level = "Warning" if phase == "warmup" else "Error" if few else "Critical"
    # The default label is the host's name, which must not be published.
    arguments += ["-allow-initial-errors", "-log-errors=false", "-loglevel", level, "-labels", name]
    return tuple(arguments)


def seconds(value: float) -> str:
    """Format seconds as an exact Go duration without an exponent: ``2.5s``."""
    return plain(value) + "s"


def plain(value: float) -> str:
    """Format a number as the shortest decimal that reads back as the same number, without an exponent."""
    text = format(Decimal(repr(float(value))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
