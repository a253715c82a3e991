"""What does each feature of a sidecar cost: mTLS, observability, JWT, OPA?

Every feature is compared with the treatment that has all but it, and with no mesh. Each treatment proves
before and after every run that its feature really is on.
"""

from meshtrial.design.parameters import Taken
from meshtrial.design.settings import CALLED, CLUSTER, FIRST, GENERAL, LAST, LOAD, Settings
from meshtrial.design.studies import common
from meshtrial.design.study import Contrast, Study, Treatment
from meshtrial.errors import UsageError

SETTINGS = Taken(
    cell=(*FIRST, "app", "protocol", "rps", "connections", "duration_s", *LAST),
    further=(*GENERAL, *CLUSTER, *LOAD, *CALLED, "trace_sampling"),
    single=("unused_services",),
)
# Eight treatments in under eight minutes leave 3 s per run: 1500 requests, enough for p90 but not for p99. Eleven
# contrasts need nine blocks, so two may fail. Every treatment keeps this rate on two cores; at 800 rps the one with the
# policy server fell behind in every fourth run. Four slices made the intervals of p50, p90 and CPU 0.55 to 0.65 times
# as wide in the same time (two cores).
PROFILES = {
    "quick": common.Profile(
        blocks=11, rps=500, connections=10, duration_s=3, warmup_s=0.5, slices=4, slice_warmup_s=0.25
    ),
    "standard": common.Profile(blocks=16, rps=500, connections=10, duration_s=24, warmup_s=3, slices=4),
    "full": common.Profile(blocks=16, rps=500, connections=10, duration_s=600, warmup_s=30),
}
# On a cluster a block takes a minute besides its load, for a mesh and seven deployments. So runs are longer and blocks
# fewer there: in half an hour the eight blocks that nine contrasts need, each with enough requests for a p99. The
# kubelets' readings take two seconds per slice, so there are three slices: the load was 64 % of six deployments' time.
ON_CLUSTER = {
    "quick": common.Profile(blocks=8, rps=500, connections=10, duration_s=21, warmup_s=1, slices=3),
    "standard": common.Profile(blocks=16, rps=500, connections=10, duration_s=48, warmup_s=3, slices=4),
    "full": PROFILES["full"],
}
_COMMON = ("none", "none-aa", "{s}", "{s}+mtls", "{s}+mtls+observability", "{s}+mtls+jwt")
TREATMENTS = {
    ("local", "quick"): (*_COMMON, "{s}+mtls+jwt-cache", "{s}+mtls+opa"),
    ("local", "standard"): (*_COMMON, "{s}+mtls+jwt-cache", "{s}+mtls+opa", "{s}+mtls+opa-log"),
    ("kubernetes", "quick"): (*_COMMON, "{s}+mtls+opa"),
}
PRIMARY = {"quick": ("latency_p50_s", "latency_p90_s", "path_cpu_s_per_request")}
PRIMARY_LONG = ("latency_p50_s", "latency_p99_s", "path_cpu_s_per_request")
# Features whose parent has another feature in their place; every other parent simply lacks the last feature.
PARENT = {"opa-log": "opa", "pqc": "x25519"}


def build(settings: Settings) -> Study:
    """The study that these settings describe."""
    profile = (PROFILES if settings.backend == "local" else ON_CLUSTER)[settings.profile]
    backend, length = settings.backend, "quick" if settings.profile == "quick" else "standard"
    mesh = "sidecar" if backend == "local" else "istio"
    default = TREATMENTS.get((backend, length), TREATMENTS[backend, "quick"])
    treatments = common.treatments_of(settings.treatments, tuple(name.format(s=mesh) for name in default))
    return common.study_of(
        "feature_impact",
        settings,
        SETTINGS,
        title="The impact of a sidecar's features",
        question="What do mTLS, observability, JWT and OPA each add to latency, CPU and memory?",
        app=settings.app,
        blocks=profile.blocks,
        loads=common.crossed([common.load_from(settings, profile)], settings, profile),
        treatments=treatments,
        primary=PRIMARY.get(settings.profile, PRIMARY_LONG),
        contrasts=contrasts_of(treatments),
    )


def contrasts_of(treatments: tuple[Treatment, ...]) -> tuple[Contrast, ...]:
    """Return every treatment against its parent, and against no mesh unless that is the parent itself."""
    baseline = common.baseline_of(treatments)
    others = [t for t in treatments if t != baseline and not t.twin]
    if not others:
        raise UsageError("treatments: has only the baseline; add at least one, as in none,sidecar,sidecar+mtls")
    contrasts: list[Contrast] = []
    for treatment in others:
        parent = parent_of(treatment, treatments)
        if parent is not None and parent != baseline:
            contrasts.append(Contrast(treatment.name, parent.name))
        contrasts.append(Contrast(treatment.name, baseline.name))
    return tuple(contrasts)


def parent_of(treatment: Treatment, treatments: tuple[Treatment, ...]) -> Treatment | None:
    """The treatment that lacks just this one's last feature, if the study has it."""
    if not treatment.features:
        return None
    *rest, last = treatment.features
    instead = PARENT.get(last)
    wanted = tuple(rest) + ((instead,) if instead else ())
    parent = (treatment.dataplane, treatment.version, wanted, treatment.app)
    return next((t for t in treatments if (t.dataplane, t.version, t.features, t.app) == parent), None)
