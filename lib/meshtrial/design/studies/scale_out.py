"""What does a mesh cost as it grows: three tiers, 30 to 600 endpoints, each with its own sidecar?

The rate is the same at every size by default, so that endpoints are the only thing that grows; with
``rate_per_replica`` it grows with them, as in the study that took 64 rented nodes and 100 requests a second for
each load generator. One machine holds a fraction of that: the title says "reduced rate". On a cluster the roles are
three Deployments, each load-generator pod sends its own share, and the mesh is a real one.

``unused_services`` are crossed with the sizes: what a service costs the proxies that never call it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshtrial.design.parameters import Parameter, read_number_list
from meshtrial.design.studies import common
from meshtrial.design.study import MOST_UNUSED, Load, Study
from meshtrial.errors import UsageError

TIERS, MOST_REPLICAS = 3, 200
ORIGINAL_RATE_PER_REPLICA = 100.0
_FROM_LOAD = ("connections", "duration_s", "warmup_s", "arrivals", "catchup", "timeout_s")

PARAMETERS: tuple[Parameter, ...] = (
    *common.GENERAL,
    *common.CLUSTER,
    Parameter("sizes", "", "comma-separated endpoints, multiples of 3 up to 600; empty is as the profile says"),
    Parameter(
        "order",
        "randomised",
        "of the sizes; growing keeps one deployment",
        allowed=("randomised", "ascending", "growing"),
    ),
    Parameter("rates", "", "comma-separated requests a second, each at every size; empty is as the profile says"),
    Parameter(
        "rate_per_replica", 0.0, "requests a second for each load-generator endpoint, instead of rates; 0 is off"
    ),
    *(parameter for parameter in common.LOAD if parameter.name in _FROM_LOAD),
    Parameter("hold_ms", 100.0, "how long the client and the server each hold a request", low=0, high=1000),
    Parameter(
        "unused_services", "0", "comma-separated numbers of services that nobody calls, each at every size and rate"
    ),
    Parameter(
        "spread", 2, "local: endpoints that one sidecar sends to; 0 is all, which one machine cannot", low=0, high=200
    ),
)


@dataclass(frozen=True)
class ScaleProfile:
    """What a profile sets; connections are the least, rounded up to a multiple of the replicas."""

    blocks: int
    sizes: str
    rates: str
    connections: int
    duration_s: float
    warmup_s: float


# quick: six blocks are the least in which one contrast can be called, and three sizes the least that show a bend; 600
# requests are enough for a p50. standard: 10 000, for a p99. The warm-up sends two requests over each connection
# (fortio's trial is one), which opens both connections that spread = 2 has. Connections take a generator's time before
# and after the load: with 200, both took 60 s of a block of 82 s, where 36 s were asked for (two cores).
PROFILES = {
    "quick": ScaleProfile(6, "30,150,300", "200", 100, 3, 0.5),
    "standard": ScaleProfile(8, "30,90,150,300,450,600", "200", 200, 51, 5),
    "full": ScaleProfile(10, "30,75,150,225,300,450,600", "100,200,400", 400, 300, 30),
}
# With and without the configuration of what a proxy does not call (Istio: its Sidecar resource).
TREATMENTS = {"local": ("sidecar+mtls", "sidecar+mtls+scoped"), "kubernetes": ("istio+mtls", "istio+mtls+scoped")}
PRIMARY = {"quick": ("latency_beyond_holds_p50_s", "path_cpu_s_per_request")}
PRIMARY_LONG = ("latency_beyond_holds_p50_s", "latency_beyond_holds_p99_s", "path_cpu_s_per_request")


def build(values: Mapping[str, Any]) -> Study:
    """The study that these parameters describe."""
    profile = PROFILES[values["profile"]]
    loads = loads_of(values, profile)
    most = TIERS * max(load.replicas for load in loads)
    full_mesh, scoped = TREATMENTS[values["backend"]]
    default = ("none", "none-aa", full_mesh) + ((scoped,) if values["profile"] != "quick" else ())
    reduced = any(load.rps < ORIGINAL_RATE_PER_REPLICA * load.replicas for load in loads)
    return common.study_of(
        "scale_out",
        values,
        title=f"Scale-out to {most} endpoints" + (", at a reduced rate" if reduced else ""),
        question="How do CPU, memory, latency and the cost of configuration grow with the number of endpoints?",
        app="tiers",
        blocks=profile.blocks,
        loads=loads,
        treatments=common.treatments_of(values["treatments"], default),
        primary=PRIMARY.get(values["profile"], PRIMARY_LONG),
        order=values["order"],
    )


def loads_of(values: Mapping[str, Any], profile: ScaleProfile) -> tuple[Load, ...]:
    """One load for every size and rate, sizes ascending."""
    allowed = f"multiples of {TIERS} from {TIERS} to {TIERS * MOST_REPLICAS}, at least two of them"
    sizes = read_number_list("sizes", values["sizes"] or profile.sizes, _is_size, allowed)
    unused = _unused(values)
    if len(set(sizes)) < 2 and len(unused) < 2:
        raise UsageError(f"sizes = {values['sizes']!r}: must be {allowed}")
    each = values["rate_per_replica"]
    if each and values["rates"]:
        raise UsageError("rates and rate_per_replica: give one of them, the other follows from it")
    rates = read_number_list("rates", values["rates"] or profile.rates, lambda rate: rate > 0, "numbers above 0")
    replicas = [int(size) // TIERS for size in sorted(set(sizes))]
    pairs = [(n, each * n) for n in replicas] if each else [(n, rate) for n in replicas for rate in rates]
    return tuple(replace(_load(n, rate, values, profile), unused_services=u) for n, rate in pairs for u in unused)


def _unused(values: Mapping[str, Any]) -> tuple[int, ...]:
    """Each number of services that nobody calls, once, ascending."""
    allowed = f"whole numbers from 0 to {MOST_UNUSED}, e.g. 0,200,1000"
    good = lambda number: number == int(number) and 0 <= number <= MOST_UNUSED  # noqa: E731
    found = read_number_list("unused_services", values["unused_services"], good, allowed)
    if len(set(found)) > 1 and values["order"] == "growing":
        raise UsageError("order = 'growing': keeps one deployment all along; take one number of unused_services")
    return tuple(sorted({int(number) for number in found})) or (0,)


def _load(replicas: int, rps: float, values: Mapping[str, Any], profile: ScaleProfile) -> Load:
    """Every endpoint gets the same number of connections, and each connection has time to wait out the holds."""
    round_trip_s = 2 * values["hold_ms"] / 1e3 + 0.1
    least = max(values["connections"] or profile.connections, math.ceil(round(1.5 * rps * round_trip_s, 6)))
    return Load(
        rps=rps,
        connections=math.ceil(least / replicas) * replicas,
        duration_s=values["duration_s"] or profile.duration_s,
        warmup_s=values["warmup_s"] or profile.warmup_s,
        arrivals=values["arrivals"],
        catchup=values["catchup"],
        timeout_s=values["timeout_s"],
        replicas=replicas,
        # One process and a fan-out here; there a pod for each endpoint, which sends through its own sidecar.
        generators=replicas if values["backend"] == "kubernetes" else 1,
    )


def _is_size(size: float) -> bool:
    return size == int(size) and size % TIERS == 0 and TIERS <= size <= TIERS * MOST_REPLICAS
