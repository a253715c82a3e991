"""What are the parts of a sidecar's cost? Bytes through two proxies, reading HTTP, and each feature.

Every part is measured separately: the pair of TCP proxies against no mesh, the plain sidecars against that pair, each
feature against the plain sidecars. The whole, with all features at once, is measured as well. Its difference from the
sum of the parts is the remainder, which gets an interval too.
"""

from dataclasses import dataclass

from meshtrial.design.parameters import Taken
from meshtrial.design.settings import FIRST, GENERAL, LAST, LOAD, Settings
from meshtrial.design.studies import common
from meshtrial.design.study import Contrast, Study, Treatment
from meshtrial.errors import UsageError

SETTINGS = Taken(
    cell=(*FIRST, "protocol", "rps", "connections", "duration_s", *LAST),
    further=(*GENERAL, *(name for name in LOAD if name != "replicas"), "trace_sampling"),
    single=("connections", "generators"),
)
# Six contrasts need eight blocks, so two may fail.
PROFILES = {
    "quick": common.Profile(blocks=10, rps=500, connections=10, duration_s=3, warmup_s=0.5),
    "standard": common.Profile(blocks=16, rps=500, connections=10, duration_s=24, warmup_s=3),
    "full": common.Profile(blocks=16, rps=500, connections=10, duration_s=600, warmup_s=30),
}
TREATMENTS = (
    *("none", "none-aa", "tcp-pair", "sidecar", "sidecar+mtls", "sidecar+jwt", "sidecar+observability"),
    "sidecar+mtls+jwt+observability",
)
PRIMARY = ("latency_p50_s", "path_cpu_s_per_request")
BYTES, PLAIN = "tcp-pair", "sidecar"


@dataclass(frozen=True)
class Chain:
    """The contrasts whose differences are the parts and the whole."""

    steps: tuple[tuple[str, Contrast], ...]  # a name for readers, and the contrast
    whole: Contrast


def build(settings: Settings) -> Study:
    """The study that these settings describe."""
    if settings.backend != "local":
        raise UsageError("decomposition: its parts are processes of this machine; leave backend at local")
    profile = PROFILES[settings.profile]
    treatments = common.treatments_of(settings.treatments, TREATMENTS)
    chain = chain_of(treatments)
    return common.study_of(
        "decomposition",
        settings,
        SETTINGS,
        title="What a sidecar's cost is made of",
        question="Which part of a sidecar's latency and CPU is bytes, HTTP, and each feature, and do the parts add up?",
        app="echo",
        blocks=profile.blocks,
        loads=(common.load_from(settings, profile),),
        treatments=treatments,
        primary=PRIMARY,
        contrasts=(*(contrast for _, contrast in chain.steps), chain.whole),
    )


def chain_of(treatments: tuple[Treatment, ...]) -> Chain:
    """Return the parts and the whole: baseline, both plain stages, each feature separately, all at once."""
    plain = [t for t in treatments if not t.twin]
    names = {t.name for t in plain}
    baseline = plain[0].name
    whole = max(plain, key=lambda t: len(t.features))
    alone = [f"{PLAIN}+{feature}" for feature in whole.features]
    wanted = list(dict.fromkeys([BYTES, PLAIN, *alone, f"{PLAIN}+{'+'.join(whole.features)}"]))
    missing = [name for name in wanted if name not in names]
    strange = names - {baseline, *wanted}
    if missing or strange or len(whole.features) < 2:
        why = f"lacks {', '.join(missing)}" if missing else f"{', '.join(sorted(strange))} is no part of the whole"
        if len(whole.features) < 2 and not missing:
            why = "the whole needs two features or more, e.g. sidecar+mtls+jwt"
        raise UsageError(f"treatments: {why}; a decomposition has {', '.join((baseline, *wanted))}")
    steps = [("bytes through two proxies", Contrast(BYTES, baseline)), ("reading HTTP", Contrast(PLAIN, BYTES))]
    steps += [(feature, Contrast(name, PLAIN)) for feature, name in zip(whole.features, alone, strict=True)]
    return Chain(tuple(steps), Contrast(whole.name, baseline))
