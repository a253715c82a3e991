"""Does the instrument detect injected delays of known size, and nothing where nothing was injected?

Every treatment goes through the same relay. It adds nothing in the baseline and its twin, and a known delay to every
request in the others. The delay that it really added is read back from it.
"""

from meshtrial.design.parameters import Taken
from meshtrial.design.settings import FIRST, GENERAL, LAST, LOAD, Settings
from meshtrial.design.studies import common
from meshtrial.design.study import Study

SETTINGS = Taken(
    cell=(*FIRST, "delays_us", "rps", "duration_s", "full", "seed", *LAST),
    further=(*GENERAL, *(name for name in LOAD if name != "replicas")),  # the relay has a single target
    single=("connections", "generators"),
)
PROFILES = {
    "quick": common.Profile(blocks=10, rps=500, connections=4, duration_s=2, warmup_s=0.5),
    "standard": common.Profile(blocks=16, rps=500, connections=4, duration_s=10, warmup_s=2),
    "full": common.Profile(blocks=30, rps=500, connections=4, duration_s=30, warmup_s=3),
}
PRIMARY = ("latency_p50_s",)


def build(settings: Settings) -> Study:
    """The study that these settings describe."""
    profile = PROFILES[settings.profile]
    default = ("relay", "relay-aa", *(f"relay+delay-{us}us" for us in settings.delays_us))
    return common.study_of(
        "calibration",
        settings,
        SETTINGS,
        title="Injected delays, found again",
        question="Which injected delays are seen, and is nothing seen where nothing was injected?",
        app="echo",
        blocks=profile.blocks,
        loads=(common.load_from(settings, profile),),
        treatments=common.treatments_of(settings.treatments, default),
        primary=PRIMARY,
    )
