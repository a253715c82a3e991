"""Meshes against each other and against none, at several rates.

At each rate the contrasts with none are one family, and all pairs of meshes another.

Locally the treatments are reference data planes; on a cluster they are Istio, Linkerd, Kuma and Consul. A rate that a
treatment cannot keep is reported as saturated, not as a latency. Every treatment's capacity is searched as well, as a
family of its own.
"""

import msgspec

from meshtrial.design.load import CapacitySearch, Load
from meshtrial.design.parameters import Taken
from meshtrial.design.settings import CALLED, CLUSTER, FIRST, GENERAL, LAST, LOAD, Settings
from meshtrial.design.studies import common
from meshtrial.design.study import Study
from meshtrial.errors import UsageError

SETTINGS = Taken(
    cell=(*FIRST, "app", "rates", "objective", "connections", "duration_s", *LAST),
    further=(*GENERAL, *CLUSTER, "capacity", *(name for name in LOAD if name != "rps"), *CALLED),
    single=("unused_services",),
)
# At 200 rps a p50 with 100 requests beyond it needs one second. Equivalence of three pairs needs six blocks.
PROFILES = {
    "quick": common.Profile(blocks=7, rps=0, connections=10, duration_s=1.1, warmup_s=0.3),
    "standard": common.Profile(blocks=10, rps=0, connections=10, duration_s=12, warmup_s=3),
    "full": common.Profile(blocks=16, rps=0, connections=10, duration_s=600, warmup_s=60),
}
RATES: dict[str, tuple[float, ...]] = {
    "quick": (200, 1000),
    "standard": (20, 200, 2000, 12000),
    "full": (20, 200, 2000),
}
# A search has about eight steps. Two generators, so that the capacity found is not that of one generator's core.
STEP_S = {"quick": 0.4, "standard": 2.0, "full": 10.0}
SEARCH_WARMUP_S = {"quick": 0.3, "standard": 1.0, "full": 10.0}
GENERATORS = 2
TREATMENTS = {
    "local": ("none", "none-aa", "sidecar", "sidecar+mtls", "node-proxy"),
    "kubernetes": ("none", "none-aa", "istio+mtls", "istio-ambient", "linkerd", "kuma+mtls", "consul+l7"),
}
PRIMARY = {"quick": ("latency_p50_s", "path_cpu_s_per_request")}
PRIMARY_LONG = ("latency_p50_s", "latency_p99_s", "path_cpu_s_per_request")
CAPACITY = "capacity_rps"
MESHES = (
    "Meshes against each other and against none",
    "What does each mesh add to latency, CPU and memory, at which rate, and how much does it carry?",
)
VERSIONS = (
    "Versions of a data plane against each other",
    "What does each version change in latency, CPU and memory, at which rate, and how much does it carry?",
)


def build(settings: Settings) -> Study:
    """The study that these settings describe."""
    profile = PROFILES[settings.profile]
    rates = settings.rates or RATES[settings.profile]
    at_rates = [common.load_from(msgspec.structs.replace(settings, rps=float(rate)), profile) for rate in rates]
    loads: list[Load] = [*common.crossed(at_rates, settings, profile)]
    primary = PRIMARY.get(settings.profile, PRIMARY_LONG)
    if settings.objective and not settings.capacity:
        raise UsageError(f"objective = {settings.objective!r}: is for the capacity search; leave capacity on")
    if settings.capacity:
        search = {"duration_s": STEP_S[settings.profile], "warmup_s": SEARCH_WARMUP_S[settings.profile]}
        # At one rate, each number of connections once.
        loads += dict.fromkeys(
            CapacitySearch.like(
                load,
                objective=settings.objective,
                generators=min(GENERATORS, load.connections),
                generators_vary=False,
                **search,
            )
            for load in loads[: len(loads) // len(rates)]
        )
        # At most three are primary: where p99 is one of them, the CPU becomes exploratory.
        primary = (*primary[:2], CAPACITY)
    treatments = common.treatments_of(settings.treatments, TREATMENTS[settings.backend])
    title, question = VERSIONS if all(treatment.version for treatment in treatments) else MESHES
    return common.study_of(
        "mesh_comparison",
        settings,
        SETTINGS,
        title=title,
        question=question,
        app=settings.app,
        blocks=profile.blocks if settings.backend == "local" else max(8, profile.blocks),
        loads=tuple(loads),
        treatments=treatments,
        primary=primary,
        pairs=True,
    )
