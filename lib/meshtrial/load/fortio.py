"""fortio's arguments for a load: what is asked of each generator, spelt out in full.

Opinion: an open rate, staggered over the connections (``-uniform``), an access log for every request,
and a histogram resolution fit for the tail; nothing is left to a default that another version may change.
The measured call logs a line for every request that failed without an answer (``-loglevel Error``), which is where
the reason stands; where more requests are due than can be kept, or nobody knows how many, it logs none
(``Critical``). "Falling behind" is printed either way.

HTTP/1.1 runs on fortio's own fast client, h2 on Go's standard one: their latencies differ by more than
most meshes do, so an h1 run and an h2 run are never compared with each other. A mixed load is both at once: its
generators take turns, HTTP/1.1 first and gRPC second, each with its share of connections and rate.
Limits: several generators are each staggered inside, not against each other.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.design import shares
from meshtrial.design.load import FixedRate, Load, OpenLoad, SlicedLoad
from meshtrial.errors import UsageError
from meshtrial.load.failures import MOST_LOGGED
from meshtrial.load.generators import GeneratorCall
from meshtrial.load.gotime import plain, seconds

PHASES = ("warmup", "measure")
DEFAULT_RESOLUTION_S = 1e-5  # p99.9 below 10 ms: good for a first look
COARSEST_RESOLUTION_S = 1.0
HEADER_BYTES = 64
_FAST_CLIENT_BUFFER_KIB = 128
_FOR_EVER_S = 86_400.0


def calls(
    load: Load, phase: str, *, slice_index: int = 0, resolution_s: float = DEFAULT_RESOLUTION_S
) -> tuple[GeneratorCall, ...]:
    """Arguments for every generator of one phase; a warm-up of 0 s makes no call.

    Connections are split as evenly as they go, the rate in the same proportion, so that every connection sends at the
    same rate. ``load.duration_s`` is the length of each slice. ``slice_index``, from 0, of a slice or of a ramp's step
    is part of the names, which are unique within the run. ``resolution_s`` is ``-r``, from :func:`resolution_for`.
    UsageError where fortio would silently lower the number of connections, or cannot do what is asked.
    """
    if phase not in PHASES:
        raise UsageError(f"phase {phase!r}: must be {' or '.join(PHASES)}")
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
        )
        for number, connections in enumerate(shares.split_connections(load), start=1)
    )


def trickle(load: Load) -> GeneratorCall | None:
    """A few requests a second over one connection until it is stopped, so that what stands stays warm; None of none."""
    if not isinstance(load, SlicedLoad) or not load.trickle_rps:
        return None
    few = FixedRate.like(load, rps=load.trickle_rps, connections=1, generators=1, protocol=load.protocols[0])
    return GeneratorCall(_arguments(few, "warmup", _FOR_EVER_S, 1, DEFAULT_RESOLUTION_S, "trickle"), "trickle")


def resolution_for(latencies_s: ArrayLike) -> float:
    """Smallest power of ten r with the expected p99.9 below 1000 r, from the warm-up's latencies.

    Above 1000 r fortio's buckets are half an order of magnitude wide, below r there is only one.
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


def _arguments(
    load: Load, phase: str, duration_s: float, connections: int, resolution_s: float, name: str
) -> tuple[str, ...]:
    rate = shares.split_rate(load, connections, duration_s)
    arguments = ["-qps", plain(rate), "-c", str(connections), "-t", seconds(duration_s)]
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
    for number in range(1, load.headers + 1):
        name_of = f"x-meshtrial-{number:03d}:"
        arguments += ["-H", name_of + "m" * (HEADER_BYTES - len(name_of))]
    if load.payload_bytes:
        arguments += ["-payload-size", str(load.payload_bytes)]
    if load.payload_bytes or load.response_bytes:
        needed = max(load.payload_bytes, load.response_bytes) // 1024 + 64
        if (load.protocol == "http1" or load.new_connections) and needed > _FAST_CLIENT_BUFFER_KIB:
            # The fast client reads into a fixed buffer: an echo that does not fit is half errors, half torn.
            arguments += ["-httpbufferkb", str(needed)]
    few = 0 < load.asked_rps * duration_s <= MOST_LOGGED
    level = "Warning" if phase == "warmup" else "Error" if few else "Critical"
    # The default label is the host's name, which has no place in a published record.
    arguments += ["-allow-initial-errors", "-log-errors=false", "-loglevel", level, "-labels", name]
    return tuple(arguments)
