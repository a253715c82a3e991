"""What does a mesh cost as it grows: three tiers, 30 to 600 endpoints, each with its own sidecar?

By default the rate is the same at every size, so that only the endpoints grow. With ``rate_per_replica`` it grows with
them, as in the study on 64 rented nodes with 100 requests per second for each load generator. One machine carries a
fraction of that, and the title then contains "reduced rate". On a cluster the roles are three Deployments, each
load-generator pod sends its own share, and the mesh is a real one.

``unused_services`` are crossed with the sizes, for the cost of a service to proxies that never call it.
"""

import math
from dataclasses import replace

from meshtrial.design.load import FixedRate, Load
from meshtrial.design.parameters import Taken
from meshtrial.design.settings import CLUSTER, FIRST, GENERAL, LAST, TIERS, Settings
from meshtrial.design.studies import common
from meshtrial.design.study import Study
from meshtrial.errors import UsageError

ORIGINAL_RATE_PER_REPLICA = 100.0
_OF_LOAD = ("warmup_s", "arrivals", "catchup", "timeout_s")

SETTINGS = Taken(
    cell=(*FIRST, "sizes", "rates", "connections", "duration_s", "hold_ms", *LAST),
    further=(*GENERAL, *CLUSTER, *_OF_LOAD, "order", "rate_per_replica", "spread", "unused_services"),
    single=("connections",),
)


# quick: one contrast needs six blocks, and a bend three sizes; 600 requests are enough for a p50. standard: 10 000, for
# a p99. The warm-up sends two requests over each connection (fortio's trial is one), which opens both connections of
# spread = 2. Opening and closing connections takes time as well: with 200 of them the generator took 60 s of a block of
# 82 s, although 36 s of load were asked for (two cores).
PROFILES = {
    "quick": common.Profile(blocks=6, rps=0, connections=100, duration_s=3, warmup_s=0.5),
    "standard": common.Profile(blocks=8, rps=0, connections=200, duration_s=51, warmup_s=5),
    "full": common.Profile(blocks=10, rps=0, connections=400, duration_s=300, warmup_s=30),
}
SIZES = {
    "quick": (30, 150, 300),
    "standard": (30, 90, 150, 300, 450, 600),
    "full": (30, 75, 150, 225, 300, 450, 600),
}
RATES = {"quick": (200.0,), "standard": (200.0,), "full": (100.0, 200.0, 400.0)}
# With and without the configuration of services that a proxy does not call (in Istio by the Sidecar resource).
TREATMENTS = {"local": ("sidecar+mtls", "sidecar+mtls+scoped"), "kubernetes": ("istio+mtls", "istio+mtls+scoped")}
PRIMARY = {"quick": ("latency_net_p50_s", "path_cpu_s_per_request")}
PRIMARY_LONG = ("latency_net_p50_s", "latency_net_p99_s", "path_cpu_s_per_request")


def build(settings: Settings) -> Study:
    """The study that these settings describe."""
    loads = loads_of(settings)
    most = TIERS * max(load.replicas for load in loads)
    full_mesh, scoped = TREATMENTS[settings.backend]
    default = ("none", "none-aa", full_mesh) + ((scoped,) if settings.profile != "quick" else ())
    reduced = any(load.asked_rps < ORIGINAL_RATE_PER_REPLICA * load.replicas for load in loads)
    return common.study_of(
        "scale_out",
        settings,
        SETTINGS,
        title=f"Scale-out to {most} endpoints" + (", at a reduced rate" if reduced else ""),
        question="How do CPU, memory, latency and the cost of configuration grow with the number of endpoints?",
        app="tiers",
        blocks=PROFILES[settings.profile].blocks,
        loads=loads,
        treatments=common.treatments_of(settings.treatments, default),
        primary=PRIMARY.get(settings.profile, PRIMARY_LONG),
        order=settings.order,
    )


def loads_of(settings: Settings) -> tuple[Load, ...]:
    """Return one load for every size and rate, sizes ascending."""
    sizes, unused = sorted({*(settings.sizes or SIZES[settings.profile])}), sorted({*settings.unused_services})
    if len(sizes) < 2 and len(unused) < 2:
        raise UsageError(f"sizes = {settings.sizes}: must be two or more, or unused_services must")
    if len(unused) > 1 and settings.order == "growing":
        raise UsageError(
            "order = 'growing': keeps one deployment for all sizes; set a single number of unused_services"
        )
    each = settings.rate_per_replica
    if each and settings.rates:
        raise UsageError("rates and rate_per_replica: give one of them, the other follows from it")
    replicas = [size // TIERS for size in sizes]
    rates = settings.rates or RATES[settings.profile]
    pairs = [(n, each * n) for n in replicas] if each else [(n, rate) for n in replicas for rate in rates]
    return tuple(replace(_load(n, rate, settings), unused_services=u) for n, rate in pairs for u in unused)


def _load(replicas: int, rps: float, settings: Settings) -> Load:
    """Every endpoint gets the same number of connections, and each connection has time to wait for the holds."""
    round_trip_s = 2 * settings.hold_ms / 1e3 + 0.1
    fields = common.common_fields(settings, PROFILES[settings.profile])
    least = max(fields["connections"], math.ceil(round(1.5 * rps * round_trip_s, 6)))
    fields["connections"] = math.ceil(least / replicas) * replicas
    # One process with a fan-out here; on a cluster a pod for each endpoint, which sends through its own sidecar.
    fields["generators"] = replicas if settings.backend == "kubernetes" else 1
    return FixedRate(rps=rps, arrivals=settings.arrivals, **fields | {"replicas": replicas})
