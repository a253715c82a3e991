"""What does the ambient architecture cost against no mesh, and against a pair of sidecars?

Locally a node-proxy pair (HTTP/2 CONNECT over mutual TLS) stands for the architecture; it is a reference
data plane built from Envoy. On a cluster the treatments are real meshes. The application is a factor: treatments such
as ``node-proxy@details`` are run inside the blocks, each against its own app without a mesh. So are the connection's
life and the protocol, each as a family of its own.
"""

from dataclasses import replace

from meshtrial.design.load import Load
from meshtrial.design.parameters import Taken, split_list
from meshtrial.design.settings import CALLED, CLUSTER, FIRST, GENERAL, LAST, LOAD, Settings
from meshtrial.design.studies import common
from meshtrial.design.study import Contrast, Study, Treatment
from meshtrial.errors import UsageError

CONNECTIONS = {"keep-alive": True, "close": False}
SETTINGS = Taken(
    cell=(*FIRST, "app", "protocol", "rps", "connections", "duration_s", *LAST),
    further=(*GENERAL, *CLUSTER, *LOAD, *CALLED, "closed_loop", "connection"),
    single=("unused_services",),
)
# quick: 2000 rps for 5.1 s are 10 200 requests, enough for a p99 with 100 requests beyond it. Four slices made the
# intervals of p50, p90 and CPU 0.7 times as wide, and left those of p99 unchanged.
PROFILES = {
    "quick": common.Profile(
        blocks=10, rps=2000, connections=10, duration_s=5.1, warmup_s=0.6, slices=4, slice_warmup_s=0.25
    ),
    "standard": common.Profile(blocks=16, rps=2000, connections=10, duration_s=20, warmup_s=3),
    "full": common.Profile(blocks=16, rps=1000, connections=10, duration_s=600, warmup_s=30),
}
# On a cluster the kubelets' readings take seconds for each slice.
ON_CLUSTER = {**PROFILES, "quick": replace(PROFILES["quick"], slices=1, slice_warmup_s=1.0)}
TREATMENTS = {
    "local": ("none", "none-aa", "node-proxy", "sidecar+mtls"),
    "kubernetes": ("none", "none-aa", "istio-ambient", "istio+mtls"),
}
PRIMARY = ("latency_p50_s", "latency_p99_s", "path_cpu_s_per_request")


def build(settings: Settings) -> Study:
    """The study that these settings describe."""
    profile = (PROFILES if settings.backend == "local" else ON_CLUSTER)[settings.profile]
    treatments = common.treatments_of(settings.treatments, TREATMENTS[settings.backend])
    return common.study_of(
        "ambient_vs_no_mesh",
        settings,
        SETTINGS,
        title="The ambient architecture against no mesh",
        question="What do node proxies, and a pair of sidecars, add to latency, CPU and memory?",
        app=settings.app,
        blocks=profile.blocks,
        loads=common.crossed(loads_of(common.load_from(settings, profile), settings.connection), settings, profile),
        treatments=treatments,
        primary=PRIMARY,
        contrasts=contrasts_of(treatments),
    )


def loads_of(load: Load, connection: str) -> tuple[Load, ...]:
    """Return the load once for every requested life of a connection."""
    asked = split_list(connection)
    if not asked:
        return (load,)
    strange = [name for name in asked if name not in CONNECTIONS]
    if strange or not load.keepalive:
        why = "keepalive = False says otherwise; leave it out" if not strange else f"not {', '.join(strange)}"
        raise UsageError(f"connection = {connection!r}: must be one of {', '.join(CONNECTIONS)}; {why}")
    return tuple(replace(load, keepalive=CONNECTIONS[name]) for name in dict.fromkeys(asked))


def contrasts_of(treatments: tuple[Treatment, ...]) -> tuple[Contrast, ...]:
    """Return every data plane against the baseline on the same app, and the apps against each other.

    With a single app the default applies: every treatment against the baseline.
    """
    baseline = common.baseline_of(treatments)
    others = [t for t in treatments if t != baseline and not t.twin]
    if all(treatment.app == baseline.app for treatment in others):
        return ()
    plain = {t.app: t for t in treatments if not t.twin and replace(t, app="") == replace(baseline, app="")}

    def compared_with(treatment: Treatment) -> Treatment:
        same_app = plain.get(treatment.app, baseline)
        return baseline if same_app == treatment else same_app

    return tuple(Contrast(t.name, compared_with(t).name) for t in others)
