"""What does a mesh cost as it grows: three tiers, 30 to 600 endpoints, each with its own sidecar?

The rate is the same at every size by default, so that endpoints are the only thing that grows; with
``rate_per_replica`` it grows with them, as in the study that took 64 rented nodes and 100 requests a second for
each load generator. One machine holds a fraction of that: the title says "reduced rate". On a cluster the roles are
three Deployments, each load-generator pod sends its own share, and the mesh is a real one.

``unused_services`` are crossed with the sizes: what a service costs the proxies that never call it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from meshtrial.design.parameters import Taken
from meshtrial.design.settings import CLUSTER, GENERAL, TIERS, Settings
from meshtrial.design.studies import common
from meshtrial.design.study import Load, Study
from meshtrial.errors import UsageError

ORIGINAL_RATE_PER_REPLICA = 100.0
_OF_LOAD = ("connections", "duration_s", "warmup_s", "arrivals", "catchup", "timeout_s")

SETTINGS = Taken(
    cell=(
        *("profile", "backend", "treatments", "sizes", "rates", "connections", "duration_s", "hold_ms"),
        *("blocks", "margin", "study_dir", "run_missing", "design"),
    ),
    further=(*GENERAL, *CLUSTER, *_OF_LOAD, "order", "rate_per_replica", "spread", "unused_services"),
    single=("connections",),
)


@dataclass(frozen=True)
class ScaleProfile:
    """What a profile sets; connections are the least, rounded up to a multiple of the replicas."""

    blocks: int
    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    connections: int
    duration_s: float
    warmup_s: float


# quick: six blocks are the least in which one contrast can be called, and three sizes the least that show a bend; 600
# requests are enough for a p50. standard: 10 000, for a p99. The warm-up sends two requests over each connection
# (fortio's trial is one), which opens both connections that spread = 2 has. Connections take a generator's time before
# and after the load: with 200, both took 60 s of a block of 82 s, where 36 s were asked for (two cores).
PROFILES = {
    "quick": ScaleProfile(6, (30, 150, 300), (200,), 100, 3, 0.5),
    "standard": ScaleProfile(8, (30, 90, 150, 300, 450, 600), (200,), 200, 51, 5),
    "full": ScaleProfile(10, (30, 75, 150, 225, 300, 450, 600), (100, 200, 400), 400, 300, 30),
}
# With and without the configuration of what a proxy does not call (Istio: its Sidecar resource).
TREATMENTS = {"local": ("sidecar+mtls", "sidecar+mtls+scoped"), "kubernetes": ("istio+mtls", "istio+mtls+scoped")}
PRIMARY = {"quick": ("latency_beyond_holds_p50_s", "path_cpu_s_per_request")}
PRIMARY_LONG = ("latency_beyond_holds_p50_s", "latency_beyond_holds_p99_s", "path_cpu_s_per_request")


def build(settings: Settings) -> Study:
    """The study that these settings describe."""
    profile = PROFILES[settings.profile]
    loads = loads_of(settings, profile)
    most = TIERS * max(load.replicas for load in loads)
    full_mesh, scoped = TREATMENTS[settings.backend]
    default = ("none", "none-aa", full_mesh) + ((scoped,) if settings.profile != "quick" else ())
    reduced = any(load.rps < ORIGINAL_RATE_PER_REPLICA * load.replicas for load in loads)
    return common.study_of(
        "scale_out",
        settings,
        SETTINGS,
        title=f"Scale-out to {most} endpoints" + (", at a reduced rate" if reduced else ""),
        question="How do CPU, memory, latency and the cost of configuration grow with the number of endpoints?",
        app="tiers",
        blocks=profile.blocks,
        loads=loads,
        treatments=common.treatments_of(settings.treatments, default),
        primary=PRIMARY.get(settings.profile, PRIMARY_LONG),
        order=settings.order,
    )


def loads_of(settings: Settings, profile: ScaleProfile) -> tuple[Load, ...]:
    """One load for every size and rate, sizes ascending."""
    sizes, unused = sorted({*(settings.sizes or profile.sizes)}), sorted({*settings.unused_services})
    if len(sizes) < 2 and len(unused) < 2:
        raise UsageError(f"sizes = {settings.sizes}: must be two or more, or unused_services must")
    if len(unused) > 1 and settings.order == "growing":
        raise UsageError("order = 'growing': keeps one deployment all along; take one number of unused_services")
    each = settings.rate_per_replica
    if each and settings.rates:
        raise UsageError("rates and rate_per_replica: give one of them, the other follows from it")
    replicas = [size // TIERS for size in sizes]
    rates = settings.rates or profile.rates
    pairs = [(n, each * n) for n in replicas] if each else [(n, float(rate)) for n in replicas for rate in rates]
    return tuple(replace(_load(n, rate, settings, profile), unused_services=u) for n, rate in pairs for u in unused)


def _load(replicas: int, rps: float, settings: Settings, profile: ScaleProfile) -> Load:
    """Every endpoint gets the same number of connections, and each connection has time to wait out the holds."""
    round_trip_s = 2 * settings.hold_ms / 1e3 + 0.1
    least = max((*settings.connections, profile.connections)[0], math.ceil(round(1.5 * rps * round_trip_s, 6)))
    return Load(
        rps=rps,
        connections=math.ceil(least / replicas) * replicas,
        duration_s=settings.duration_s or profile.duration_s,
        warmup_s=settings.warmup_s or profile.warmup_s,
        arrivals=settings.arrivals,
        catchup=settings.catchup,
        timeout_s=settings.timeout_s,
        replicas=replicas,
        # One process and a fan-out here; there a pod for each endpoint, which sends through its own sidecar.
        generators=replicas if settings.backend == "kubernetes" else 1,
    )
