"""Are predictions for a system of services right? Generated systems are measured with and without a mesh.

The application is a factor: ``none@system-7`` and ``sidecar+mtls@system-7`` are the system of seed 7, sealed in the
plan with its calls and rates, and each system is a family of its own. Predictions from studies of a single hop are
compared with the measurements of these systems. A treatment with a delay that is hidden in one hop is a negative
control: its latency must deviate from the prediction.
"""

from dataclasses import replace

from meshtrial.design.generated import generated, sealed_systems
from meshtrial.design.parameters import Taken
from meshtrial.design.settings import CLUSTER, GENERAL, LOAD, Settings
from meshtrial.design.studies import common
from meshtrial.design.study import Contrast, Study
from meshtrial.errors import UsageError

_WITHOUT = ("payload_bytes", "response_bytes", "headers", "keepalive", "replicas")
SETTINGS = Taken(
    cell=(
        *("profile", "backend", "treatments", "systems", "rps", "blocks", "margin"),
        *("single_hop", "study_dir", "measure", "design"),
    ),
    further=(*GENERAL, *CLUSTER, *(name for name in LOAD if name not in _WITHOUT)),
    single=("connections", "generators"),
)
# One contrast needs six blocks. A p50 needs 200 requests. A system of 20 services with a sidecar each uses
# about half a core at this rate.
PROFILES = {
    "quick": common.Profile(blocks=6, rps=80, connections=4, duration_s=2.8, warmup_s=0.5),
    "standard": common.Profile(blocks=8, rps=80, connections=4, duration_s=20, warmup_s=2),
    "full": common.Profile(blocks=10, rps=80, connections=4, duration_s=180, warmup_s=5),
}
SEEDS = range(1, 21)
TREATMENTS = {
    "local": ("none", "none-aa", "sidecar+mtls"),
    "kubernetes": ("none", "none-aa", "istio+mtls", "istio-ambient", "linkerd"),
}
PRIMARY = ("latency_p50_s", "data_plane_cpu_s_per_request", "path_cpu_s_per_request")


def build(settings: Settings) -> Study:
    """The study that these settings describe."""
    load = common.load_from(settings, PROFILES[settings.profile])
    planes = common.treatments_of(settings.treatments, TREATMENTS[settings.backend])
    if any(plane.app for plane in planes):
        raise UsageError(f"treatments = {settings.treatments!r}: `systems` names the applications; leave out @")
    seeds = tuple(dict.fromkeys(settings.systems)) or tuple(SEEDS)
    names = [f"system-{seed}" for seed in seeds]
    baseline, *others = (plane for plane in planes if not plane.twin)
    twin = replace(baseline.as_twin(), app=names[0])
    first, *more = (replace(plane, app=name) for name in names for plane in (baseline, *others))
    study = common.study_of(
        "prediction",
        settings,
        SETTINGS,
        title="Predicted for a system, and measured",
        question="Are the CPU and the latency that a mesh adds to a system what is predicted from a single hop?",
        app=names[0],
        blocks=PROFILES[settings.profile].blocks,
        loads=(load,),
        treatments=(first, twin, *more),
        primary=PRIMARY,
        contrasts=tuple(
            Contrast(replace(plane, app=name).name, replace(baseline, app=name).name, name)
            for name in names
            for plane in others
        ),
    )
    drawn_for = (load.asked_rps, load.connections, settings.backend == "kubernetes")
    systems = {name: generated(seed, *drawn_for) for name, seed in zip(names, seeds, strict=True)}
    return replace(study, options={**study.options, **sealed_systems(systems)})
