"""What does a single hop cost at which rate, size and number of connections? The records that a prediction needs.

Rates are crossed with nothing: at one rate in the middle, a larger body, more connections and idle connections are
measured as well, each alone. The interpolation between rates is linear in their logarithm, so the rates are a factor of
five to ten apart.
"""

from dataclasses import replace

import msgspec

from meshtrial.design.load import Load
from meshtrial.design.parameters import Taken
from meshtrial.design.settings import CLUSTER, FIRST, GENERAL, HELD, LAST, LOAD, Settings
from meshtrial.design.studies import common
from meshtrial.design.study import Study

SETTINGS = Taken(
    cell=(*FIRST, "protocol", "rates", "connections", "payload_bytes", "duration_s", *LAST),
    further=(*GENERAL, *CLUSTER, *HELD, *(n for n in LOAD if n not in ("rps", "replicas"))),
    defaults={"connections": (10, 100), "payload_bytes": 16_384},
    single=("generators",),
)
# The p50 of a path needs 200 requests in a run.
PROFILES = {
    "quick": common.Profile(blocks=7, rps=0, connections=10, duration_s=6, warmup_s=0.5),
    "standard": common.Profile(blocks=10, rps=0, connections=10, duration_s=20, warmup_s=3),
    "full": common.Profile(blocks=16, rps=0, connections=10, duration_s=120, warmup_s=10),
}
RATES = (1.0, 10.0, 100.0, 500.0, 2000.0)
TREATMENTS = {
    "local": ("none", "none-aa", "sidecar+mtls", "node-proxy"),
    "kubernetes": ("none", "none-aa", "istio+mtls", "istio-ambient", "linkerd"),
}


def build(settings: Settings) -> Study:
    """The study that these settings describe."""
    profile = PROFILES[settings.profile]
    rates = sorted(settings.rates or RATES)
    body, connections = settings.payload_bytes, settings.connections or (profile.connections,)
    alone = msgspec.structs.replace(settings, payload_bytes=0, connections=connections[:1], idle_connections=(0,))
    loads = [
        _with_fewer_connections(common.load_from(msgspec.structs.replace(alone, rps=rate), profile)) for rate in rates
    ]
    # The second highest rate has many requests and is far from the capacity of most machines.
    middle = loads[max(0, len(loads) - 2)]
    loads += [replace(middle, payload_bytes=body)] if body else []
    loads += [replace(middle, connections=number) for number in connections[1:]]
    loads += [replace(middle, idle_connections=number) for number in settings.idle_connections if number]
    return common.study_of(
        "building_blocks",
        settings,
        SETTINGS,
        title="What a single hop costs",
        question="What does each treatment add to a single hop, by rate, size of the body and number of connections?",
        app="echo",
        blocks=profile.blocks if settings.backend == "local" else max(8, profile.blocks),
        loads=tuple(loads),
        treatments=common.treatments_of(settings.treatments, TREATMENTS[settings.backend]),
        primary=("path_cpu_s_per_request",),
    )


def _with_fewer_connections(load: Load) -> Load:
    """Return the load over as many of its connections as have the two requests each that fortio needs."""
    return replace(load, connections=max(1, min(load.connections, int(load.asked_rps * load.duration_s / 2))))
