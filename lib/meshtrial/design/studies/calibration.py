"""Does the instrument see what is there, and nothing else? Injected delays of known size on this very machine.

Every treatment goes through the same relay; the relay adds nothing in the baseline and its twin, and a known
delay to every request in the others. What it really added is read back from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshtrial.design.parameters import Parameter, read_number_list
from meshtrial.design.studies import common
from meshtrial.design.study import Study

PARAMETERS: tuple[Parameter, ...] = (
    *common.GENERAL,
    *(parameter for parameter in common.LOAD if parameter.name != "replicas"),  # the relay has one target
    Parameter("delays_us", "20,50,100,200,500", "injected delays in whole microseconds; empty is A/A alone"),
    Parameter("full", False, "true runs the simulation at full size, up to 4000 studies per cell"),
)
PROFILES = {
    "quick": common.Profile(blocks=10, rps=500, connections=4, duration_s=2, warmup_s=0.5),
    "standard": common.Profile(blocks=16, rps=500, connections=4, duration_s=10, warmup_s=2),
    "full": common.Profile(blocks=30, rps=500, connections=4, duration_s=30, warmup_s=3),
}
PRIMARY = ("latency_p50_s",)


def build(values: Mapping[str, Any]) -> Study:
    """The study that these parameters describe."""
    profile = PROFILES[values["profile"]]
    delays = read_number_list(
        "delays_us", values["delays_us"], lambda us: us >= 1 and us == int(us), "whole numbers from 1, e.g. 20,50,100"
    )
    default = ("relay", "relay-aa", *(f"relay+delay-{int(us)}us" for us in delays))
    return common.study_of(
        "calibration",
        values,
        title="Injected delays, found again",
        question="Which injected delays are seen, and is nothing seen where nothing was injected?",
        app="echo",
        blocks=profile.blocks,
        loads=(common.load_from(values, profile),),
        treatments=common.treatments_of(values["treatments"], default),
        primary=PRIMARY,
    )
