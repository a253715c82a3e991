"""How long after a change do requests obey it? Authorizations, a route's weight and endpoints are changed under load.

A run makes each of its changes there and back, several times, under one open load at a known rate; a response is the
median of a run. Loads with and without further changes are compared. A denial that takes effect late is a security gap.
"""

from dataclasses import replace

from meshtrial.design import changes
from meshtrial.design.load import ChangesUnderLoad
from meshtrial.design.parameters import Taken, split_list
from meshtrial.design.settings import CLUSTER, FIRST, GENERAL, LAST, LOAD, SLICED, Settings
from meshtrial.design.studies import common
from meshtrial.design.study import Study
from meshtrial.errors import UsageError

# The other settings of a load would hide the difference of the two versions, or have nothing to vary.
_WITHOUT = (*SLICED, "duration_s", "keepalive", "response_bytes", "replicas", "generators")
SETTINGS = Taken(
    cell=(*FIRST, "changes", "change_every_s", "cycles", "churn_per_min", "rps", *LAST),
    further=(*GENERAL, *(name for name in LOAD if name not in _WITHOUT), "keepalive", "unused_services", *CLUSTER),
    # A data plane that carries connections and not requests never moves connections that are kept.
    defaults={"keepalive": False},
    single=("connections",),
)
PROFILES = {
    "quick": common.Profile(blocks=7, rps=400, connections=8, duration_s=0, warmup_s=0.5),
    "standard": common.Profile(blocks=10, rps=1000, connections=16, duration_s=0, warmup_s=2),
    "full": common.Profile(blocks=16, rps=1000, connections=16, duration_s=0, warmup_s=5),
}
TREATMENTS = {
    "local": ("xds", "xds-aa", "xds+push-delay-50ms"),
    "kubernetes": ("none", "none-aa", "istio", "linkerd", "kuma+mtls"),
}
# Locally only Envoy and our own control plane take time, on a cluster everything does.
EVERY_S = {"local": 0.5, "kubernetes": 8.0}
CYCLES = {"quick": 2, "standard": 4, "full": 10}
CHURN: dict[str, tuple[float, ...]] = {"local": (0, 600), "kubernetes": (0, 60)}
CHANGES = {"local": tuple(changes.CHANGES), "kubernetes": ("authorization", "endpoints")}
# The first responses of this order whose changes the study makes are primary.
PRIMARY = (
    "propagation_all_endpoints_s",
    "propagation_all_deny_s",
    "propagation_all_weight_s",
    "propagation_all_allow_s",
)
# Locally one app has both versions; on a cluster there are two Deployments behind one Service.
APPS = {"local": "echo", "kubernetes": "two-versions"}


def build(settings: Settings) -> Study:
    """The study that these settings describe."""
    profile, backend = PROFILES[settings.profile], settings.backend
    asked = tuple(dict.fromkeys(split_list(settings.changes))) or CHANGES[backend]
    if unknown := [name for name in asked if name not in CHANGES[backend]]:
        allowed = ", ".join(CHANGES[backend])
        raise UsageError(f"changes = {settings.changes!r}: {unknown[0]!r} is not known; on {backend}: {allowed}")
    every_s, cycles = settings.change_every_s or EVERY_S[backend], settings.cycles or CYCLES[settings.profile]
    # One turn more: the last change needs its time too, and generators may begin shortly after the first turn.
    turns = len(changes.steps(asked, cycles)) + 1
    fields = common.common_fields(settings, profile) | {"duration_s": turns * every_s}
    load = ChangesUnderLoad(
        rps=settings.rps or profile.rps,
        arrivals=settings.arrivals,
        changes=asked,
        change_every_s=every_s,
        change_cycles=cycles,
        **fields,
    )
    churn = settings.churn_per_min or CHURN[backend]
    named = {f"propagation_all_{name}_s" for name in changes.names(asked)}
    return common.study_of(
        "propagation",
        settings,
        SETTINGS,
        title="From a change until requests obey it",
        question="How long after a change do a first and all requests obey it, and how many fail meanwhile?",
        app=APPS[backend],
        blocks=profile.blocks,
        loads=tuple(
            replace(load, churn_per_min=float(rate), unused_services=n)
            for n in settings.unused_services
            for rate in churn
        ),
        treatments=common.treatments_of(settings.treatments, TREATMENTS[backend]),
        primary=tuple(name for name in PRIMARY if name in named)[:3],
        pairs=backend == "kubernetes",
    )
