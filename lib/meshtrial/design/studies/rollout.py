"""The cost of a restart under load: of the application, of its proxies, of a mesh's control plane.

Every restart is a treatment. It is compared with the same treatment without the restart, and a restart behind a data
plane with the same restart without one. Failed requests are counted; latencies are from the schedule, in a window that
begins with the restart.
"""

from dataclasses import replace

from meshtrial.design.load import RestartUnderLoad
from meshtrial.design.parameters import Taken
from meshtrial.design.settings import CLUSTER, FIRST, GENERAL, LAST, LOAD, SLICED, Settings
from meshtrial.design.studies import common
from meshtrial.design.study import Contrast, Study, Treatment
from meshtrial.errors import UsageError

SETTINGS = Taken(
    cell=(*FIRST, "app", "rps", "connections", "duration_s", "restart_at_s", *LAST),
    further=(*GENERAL, *CLUSTER, *(n for n in LOAD if n not in SLICED), "protocol", "unused_services", "around_s"),
    single=("connections", "generators", "unused_services"),
)
# Four contrasts need eight blocks, so one may fail. A p90 of the restart's window needs 1000 requests in it.
PROFILES = {
    "quick": common.Profile(blocks=9, rps=500, connections=10, duration_s=5, warmup_s=0.5),
    "standard": common.Profile(blocks=16, rps=1000, connections=10, duration_s=24, warmup_s=3),
    "full": common.Profile(blocks=16, rps=1000, connections=10, duration_s=120, warmup_s=10),
}
TREATMENTS = {
    "local": ("none", "none-aa", "none+restart-app", "sidecar", "sidecar+restart-app", "sidecar+restart-proxies"),
    "kubernetes": ("none", "none-aa", "none+restart-app", "istio", "istio+restart-app", "istio+restart-control-plane"),
}
PRIMARY = ("failed_requests", "longest_gap_s", "latency_restart_window_p90_s")
AT, AROUND = 1 / 3, 1 / 2
# Pods take longer to start and to end.
LEAST_S = {"local": 0.0, "kubernetes": 45.0}


def build(settings: Settings) -> Study:
    """The study that these settings describe."""
    profile = PROFILES[settings.profile]
    profile = replace(profile, duration_s=max(profile.duration_s, LEAST_S[settings.backend]))
    treatments = common.treatments_of(settings.treatments, TREATMENTS[settings.backend])
    fields = common.common_fields(settings, profile)
    load = RestartUnderLoad(
        rps=settings.rps or profile.rps,
        arrivals=settings.arrivals,
        restart_at_s=settings.restart_at_s or AT * fields["duration_s"],
        around_s=settings.around_s or AROUND * fields["duration_s"],
        **fields,
    )
    return common.study_of(
        "rollout",
        settings,
        SETTINGS,
        title="What a restart under load costs",
        question="How many requests fail when a part is restarted under load, and how long do the others wait?",
        app=settings.app,
        blocks=profile.blocks,
        loads=(load,),
        treatments=treatments,
        primary=PRIMARY,
        contrasts=contrasts_of(treatments),
        restarts=True,
    )


def contrasts_of(treatments: tuple[Treatment, ...]) -> tuple[Contrast, ...]:
    """Return each restart against the same treatment without it, and against the same restart of the baseline."""
    plain = [treatment for treatment in treatments if not treatment.twin]
    baseline, restarted = plain[0], [treatment for treatment in plain if treatment.restart]
    if baseline.restart:
        raise UsageError(f"treatments: the baseline {baseline.name} is restarted; list it without first")
    if not restarted:
        raise UsageError(f"treatments: nothing is restarted; add for example {baseline.name}+restart-app")
    contrasts = []
    for treatment in restarted:
        calm = replace(treatment, restart="")
        if calm not in plain:
            raise UsageError(f"treatments: {treatment.name} is compared with {calm.name}, which is missing")
        contrasts.append(Contrast(treatment.name, calm.name))
        same = replace(baseline, restart=treatment.restart)
        if treatment != same and same in plain:
            contrasts.append(Contrast(treatment.name, same.name))
    return tuple(contrasts)
