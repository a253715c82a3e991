"""How long after a change do requests obey it? Authorizations, a route's weight, endpoints, changed under load.

A run makes every change it has there and back, several times, under one open load at a known rate; a response is the
median of a run. Quiet and under churn are loads of their own. A denial that takes effect late is a hole for as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshtrial.design import changes
from meshtrial.design.parameters import Parameter, read_number_list, split_list
from meshtrial.design.studies import common
from meshtrial.design.study import MOST_UNUSED, Study
from meshtrial.errors import UsageError

# The rest of what a load has would take away what tells the two versions apart, or there is nothing to vary.
_WITHOUT = (*common.SLICED, "duration_s", "keepalive", "response_bytes", "replicas", "generators")
PARAMETERS: tuple[Parameter, ...] = (
    *common.GENERAL,
    *(parameter for parameter in common.LOAD if parameter.name not in _WITHOUT),
    Parameter(
        "keepalive", False, "true keeps connections: what carries connections and not requests then never moves them"
    ),
    Parameter("changes", "", "comma-separated of authorization, weight, endpoints; empty is all that there are"),
    Parameter(
        "change_every_s",
        0.0,
        "seconds from change to change, in which all must obey; 0 is the default",
        low=0,
        high=3600,
    ),
    Parameter(
        "cycles", 0, "how often a run makes each change there and back; 0 is as the profile says", low=0, high=100
    ),
    Parameter("churn_per_min", "", "comma-separated, other changes a minute, each a load; empty is the default"),
    Parameter("unused_services", "0", "comma-separated numbers of services that nobody calls, each a load"),
    *common.CLUSTER,
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
# Where nothing but Envoy and our own control plane takes its time, and where everything does.
EVERY_S = {"local": 0.5, "kubernetes": 8.0}
CYCLES = {"quick": 2, "standard": 4, "full": 10}
CHURN = {"local": "0,600", "kubernetes": "0,60"}
CHANGES = {"local": tuple(changes.CHANGES), "kubernetes": ("authorization", "endpoints")}
# In this order, as far as they are changed.
PRIMARY = ("obeyed_all_endpoints_s", "obeyed_all_deny_s", "obeyed_all_weight_s", "obeyed_all_allow_s")
# One app on a machine, in two versions by itself; on a cluster two Deployments behind one Service.
APPS = {"local": "echo", "kubernetes": "two-versions"}


def build(values: Mapping[str, Any]) -> Study:
    """The study that these parameters describe."""
    profile, backend = values["profile"], values["backend"]
    asked = tuple(dict.fromkeys(split_list(values["changes"]))) or CHANGES[backend]
    if unknown := [name for name in asked if name not in CHANGES[backend]]:
        allowed = ", ".join(CHANGES[backend])
        raise UsageError(f"changes = {values['changes']!r}: {unknown[0]!r} is not known; on {backend}: {allowed}")
    every_s, cycles = values["change_every_s"] or EVERY_S[backend], values["cycles"] or CYCLES[profile]
    # The last change has its time too, and generators may begin a moment after the first turn is counted.
    turns = len(changes.steps(asked, cycles)) + 1
    given = {**values, "slices": 1, "generators": "1", "duration_s": turns * every_s, "unused_services": 0}
    load = common.load_from(given, PROFILES[profile])
    load = replace(load, changes=asked, change_every_s=every_s, change_cycles=cycles)
    churn = read_number_list(
        "churn_per_min", values["churn_per_min"] or CHURN[backend], lambda n: 0 <= n <= 60_000, "0 to 60000, e.g. 0,60"
    )
    unused = read_number_list(
        "unused_services",
        values["unused_services"],
        lambda n: n == int(n) and 0 <= n <= MOST_UNUSED,
        f"whole numbers from 0 to {MOST_UNUSED}, e.g. 0,200,1000",
    ) or (0,)
    named = {f"obeyed_all_{name}_s" for name in changes.names(asked)}
    return common.study_of(
        "propagation",
        values,
        title="From a change until requests obey it",
        question="How long after a change do a first and all requests obey it, and how many fail meanwhile?",
        app=APPS[backend],
        blocks=PROFILES[profile].blocks,
        loads=tuple(replace(load, churn_per_min=rate, unused_services=int(n)) for n in unused for rate in churn),
        treatments=common.treatments_of(values["treatments"], TREATMENTS[backend]),
        primary=tuple(name for name in PRIMARY if name in named)[:3],
        pairs=backend == "kubernetes",
    )
