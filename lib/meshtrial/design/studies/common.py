"""Parameters that every study has, and how profiles fill what is left empty."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshtrial import stats
from meshtrial.design.foreseen import INSTEAD, instead_of
from meshtrial.design.parameters import Parameter, read_number_list, split_list
from meshtrial.design.responses import (
    declared_margins,
    declared_scales,
    default_margins,
    default_scales,
    response,
)
from meshtrial.design.sealing import options_of
from meshtrial.design.shares import require_possible
from meshtrial.design.study import (
    ARRIVALS,
    MOST_UNUSED,
    PROTOCOLS,
    STANDING,
    Gates,
    Load,
    Study,
    Treatment,
    with_pairs,
)
from meshtrial.errors import UsageError

# fortio's echo, which takes the size of its answer from the request.
SIZED_APP = "echo"
PROFILES = ("quick", "standard", "full")
# Enough to keep connections open and code in memory, and too little to be in the way of a neighbour's slice.
TRICKLE_RPS = 5.0
# What a study has that measures in slices; without slices nothing goes round.
SLICED = ("slices", "slice_warmup_s", "standing")

GENERAL = (
    Parameter("profile", "quick", "how long it takes; sets what is left empty or 0 below", allowed=PROFILES),
    Parameter("backend", "local", "where it runs", allowed=("local", "kubernetes")),
    Parameter("study_dir", "", "folder of a recorded or interrupted study to continue; empty starts a new one"),
    Parameter("run_missing", True, "false measures nothing and reports what study_dir holds"),
    Parameter("part", "", "the share of the blocks that is run here, e.g. 1/3; empty is all of them"),
    Parameter("seed", 0, "the order of all runs is drawn from it; 0 draws one and seals it", low=0, high=2**32 - 1),
    Parameter("keep_awake", False, "true keeps this machine's idle cores awake for the study, where that is permitted"),
    Parameter("blocks", 0, "passes over all treatments; 0 is as the profile says", low=0, high=1000),
    Parameter("stopping", "fixed", "fixed, precision:0.05 (half-width of every primary interval) or two-looks"),
    Parameter("treatments", "", "comma-separated; the first that is not a twin is the baseline"),
    Parameter("alpha", 0.05, "error level of a family", low=1e-6, high=0.2),
    Parameter("margin", "", "what is too small to matter (docs/reference/parameters.md); empty is the default"),
    Parameter(
        "scale",
        "",
        "which effect carries verdicts (docs/reference/parameters.md); empty is the default",
    ),
    Parameter("primary", "", "at most three responses that get corrected verdicts; empty is the default of the study"),
)

# Read by the Kubernetes backend alone; everything else it can be told is in the file that cluster_file names.
CLUSTER = (
    Parameter("kubeconfig", "", "empty is KUBECONFIG, the usual file, or the cluster this runs in"),
    Parameter("context", "", "a context of that file, empty is its current one"),
    Parameter("namespace", "", "what the namespaces are called, empty is meshtrial and the study"),
    Parameter("cluster_file", "", "a YAML file of all other options of the Kubernetes backend"),
    Parameter("mesh_reinstall", "", "when the mesh is made anew, empty is run", allowed=("", "run", "block", "once")),
    Parameter(
        "app_reinstall", "", "when the application is made anew, empty is run", allowed=("", "run", "block", "once")
    ),
)

LOAD = (
    Parameter("rps", 0.0, "requests a second over all connections; 0 is as the profile says", low=0, high=1e6),
    Parameter("connections", 0, "connections over all generators; 0 is as the profile says", low=0, high=20000),
    Parameter("duration_s", 0.0, "measured seconds of a run; 0 is as the profile says", low=0, high=86400),
    Parameter("warmup_s", 0.0, "discarded seconds before; 0 is as the profile says", low=0, high=3600),
    Parameter("payload_bytes", 0, "body sent and echoed; 0 sends GET", low=0, high=262144),
    Parameter("response_bytes", 0, "body of the answer; 0 is what the app answers by itself", low=0, high=2**20),
    Parameter("headers", 0, "further request headers of 64 bytes each", low=0, high=100),
    Parameter("keepalive", True, "false closes the connection after every request"),
    Parameter("arrivals", "uniform", "jitter moves each send by up to 10 % of the wait before it", allowed=ARRIVALS),
    Parameter("catchup", True, "false skips overdue sends instead of making up for them"),
    Parameter("timeout_s", 5.0, "seconds that the client waits for an answer", low=0.001, high=3600),
    Parameter("replicas", 1, "copies of the application, which the data plane balances", low=1, high=64),
    Parameter("generators", 1, "load-generator processes or pods that share rate and connections", low=1, high=64),
    Parameter(
        "slices",
        0,
        "measurements that share the seconds of a run, between those of others; 0 is as the profile says",
        low=0,
        high=100,
    ),
    Parameter("slice_warmup_s", 0.0, "discarded seconds before each slice; 0 is as the profile says", low=0, high=3600),
    Parameter(
        "standing",
        "",
        "block: deployments stand at once and slices go round; run: each alone",
        allowed=STANDING,
    ),
)

VERSIONS = Parameter("versions", "", "versions of the local proxies (docs/reference/parameters.md); empty is none")
RAMP = Parameter("ramp", 0, "steps in which the rate rises to what is asked for; 0 is one rate", low=0, high=100)

# Studies whose loads may differ in these take a list; each number of them is a load of its own.
CONNECTIONS = Parameter(
    "connections", "", "comma-separated, over all generators, each a load; empty is as the profile says"
)
GENERATORS = Parameter(
    "generators", "1", "comma-separated numbers of load generators that share rate and connections, each a load"
)
_LISTED = {one.name: one for one in (CONNECTIONS, GENERATORS)}
LISTED_LOAD = tuple(_LISTED.get(parameter.name, parameter) for parameter in LOAD)

# What is called, and how. A study declares those of these that it can take.
APP = Parameter("app", "echo", "the application behind the data plane: echo, counter-api, details, details-nodelay")
PROTOCOL = Parameter(
    "protocol",
    "http1",
    "what is spoken; mixed: half HTTP/1.1, half gRPC",
    allowed=PROTOCOLS,
)
PROBE = Parameter("probe", False, "true counts system calls a request afterwards, under strace, apart from every run")
TRACE_SAMPLING = Parameter(
    "trace_sampling", 100.0, "percent of requests that are traced where observability is on", low=0.1, high=100
)
UNUSED_SERVICES = Parameter(
    "unused_services",
    0,
    "on a cluster: services beside the application that nobody calls",
    low=0,
    high=MOST_UNUSED,
)
CLOSED_LOOP = Parameter("closed_loop", False, "true sends as fast as answers come instead of at a rate")
CALLED = (APP, PROTOCOL, PROBE, RAMP, UNUSED_SERVICES, VERSIONS)
# What a load takes from the parameters as they are, where a study has them.
_AS_GIVEN = (
    *("payload_bytes", "response_bytes", "headers", "keepalive", "arrivals", "catchup", "timeout_s"),
    *("protocol", "replicas", "ramp", "unused_services"),
)


@dataclass(frozen=True)
class Profile:
    """What a profile sets."""

    blocks: int
    rps: float
    connections: int
    duration_s: float  # of a run, over all its slices
    warmup_s: float
    slices: int = 1
    slice_warmup_s: float = 1.0  # before each slice, where there are several


def load_from(values: Mapping[str, Any], profile: Profile) -> Load:
    """The load: given values, and the profile's for what was left at 0."""
    closed = values.get("closed_loop", False)
    connections = connections_of(values, profile.connections)[0]
    slices = values["slices"] or (1 if values.get("ramp") else profile.slices)
    if closed and values["rps"]:
        raise UsageError(f"closed_loop = True with rps = {values['rps']:g}: a closed loop has no rate; leave one out")
    return Load(
        rps=0.0 if closed else values["rps"] or profile.rps,
        connections=connections,
        duration_s=(values["duration_s"] or profile.duration_s) / slices,
        warmup_s=values["warmup_s"] or profile.warmup_s,
        generators=generators_of(values)[0],
        slices=slices,
        slice_warmup_s=(values["slice_warmup_s"] or profile.slice_warmup_s) if slices > 1 else 0.0,
        trickle_rps=TRICKLE_RPS if slices > 1 else 0.0,
        **{name: values[name] for name in _AS_GIVEN if name in values},
    )


def generators_of(values: Mapping[str, Any]) -> tuple[int, ...]:
    """Each number of generators that is asked for, once; none below what the load needs.

    Two where they speak different things, and on one machine one for each copy of the application: without a proxy
    nothing there spreads requests over copies, so each generator calls one of them, as connections are spread by a
    cluster's service; and every treatment has the same generators.
    """
    copies = int(values.get("replicas", 1)) if values["backend"] == "local" else 1
    least = max(copies, 2 if values.get("protocol") == "mixed" else 1)
    asked = _whole_numbers("generators", str(values["generators"]), 64, "")
    numbers = tuple(dict.fromkeys(max(number, least) for number in asked)) or (least,)
    if copies > 1 and (any(number % copies for number in numbers) or values.get("protocol") == "mixed"):
        raise UsageError(
            f"replicas = {copies} on one machine: generators must be a multiple of it, all of one protocol; "
            f"take generators = {copies}"
        )
    return numbers


def over_generators(loads: Iterable[Load], values: Mapping[str, Any]) -> tuple[Load, ...]:
    """Every load from every number of generators."""
    several = generators_of(values)
    if len(several) == 1:
        return tuple(loads)
    return tuple(replace(load, generators=number, generators_vary=True) for load in loads for number in several)


def connections_of(values: Mapping[str, Any], default: int) -> tuple[int, ...]:
    """Each number of connections that is asked for, once."""
    text = str(values["connections"] or default)
    return tuple(dict.fromkeys(_whole_numbers("connections", text, 20000, ", e.g. 10,50,100"))) or (default,)


def over_connections(loads: Iterable[Load], values: Mapping[str, Any], default: int) -> tuple[Load, ...]:
    """Every load at every number of connections."""
    several = connections_of(values, default)
    return tuple(replace(load, connections=number) for load in loads for number in several)


def _whole_numbers(name: str, text: str, most: int, example: str) -> list[int]:
    asked = f"whole numbers from 1 to {most}{example}"
    return [int(n) for n in read_number_list(name, text, lambda n: n == int(n) and 1 <= n <= most, asked)]


def treatments_of(text: str, default: tuple[str, ...]) -> tuple[Treatment, ...]:
    """Parse the list; the baseline's permanent A/A twin joins it when it was left out."""
    treatments = [Treatment.parse(item) for item in (split_list(text) or default)]
    plain = [treatment for treatment in treatments if not treatment.twin]
    if not plain:
        raise UsageError(f"treatments = {text!r}: names no baseline, e.g. none,node-proxy")
    twin = plain[0].as_twin()
    if twin not in treatments:
        treatments.insert(1, twin)
    return tuple(treatments)


def baseline_of(treatments: tuple[Treatment, ...]) -> Treatment:
    """The first treatment that is not a twin."""
    return next(treatment for treatment in treatments if not treatment.twin)


def stopping_of(text: str, blocks: int, alpha: float) -> stats.StoppingRule:
    """The declared rule; for ``precision`` the blocks are the most that are run, ``two-looks`` brings its own."""
    if blocks < 2:
        raise UsageError(f"blocks = {blocks}: must be 2 or more, one alone has nothing to be compared with")
    rule, _, target = text.partition(":")
    if rule == "fixed" and not target:
        return stats.FixedN(blocks, alpha)
    if rule == "two-looks" and not target:
        return stats.TwoLooks(alpha_first=alpha / 5, alpha_second=4 * alpha / 5)
    if rule == "precision":
        try:
            return stats.Precision(float(target or 0.05), n_max=max(blocks, 8), alpha=alpha)
        except ValueError:
            pass
    raise UsageError(f"stopping = {text!r}: must be fixed, precision:0.05 or two-looks")


def primary_of(text: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """Full names of the primary responses."""
    names = tuple(response(item).name for item in split_list(text)) or default
    judged = default_margins()
    for name in names:
        if name not in judged:
            raise UsageError(f"primary: {name} is described only, it gets no verdict")
    return names


def _drawn_seed(part: str) -> int:
    """A seed from the machine's entropy: what one order does to a study then shows between studies.

    UsageError of a part: all parts of a study have one plan, and so one seed that somebody gave them.
    """
    drawn = secrets.randbelow(2**32 - 1) + 1
    if part:
        raise UsageError(f"part = {part[:40]}: all parts need the same seed; give each of them one, e.g. seed={drawn}")
    return drawn


def study_of(
    name: str,
    values: Mapping[str, Any],
    *,
    title: str,
    question: str,
    app: str,
    blocks: int,
    loads: tuple[Load, ...],
    treatments: tuple[Treatment, ...],
    primary: tuple[str, ...],
    restarts: bool = False,
    pairs: bool = False,
    **more: Any,
) -> Study:
    """Put a study together from its own parts and the general parameters.

    ``restarts``: it can judge them; ``pairs``: it compares the treatments with each other too.
    """
    for treatment in treatments:
        if treatment.restart and not restarts:
            raise UsageError(f"treatment {treatment.name}: restarts under load are what the study rollout is for")
    values = {**values, "seed": values["seed"] or _drawn_seed(values["part"])}
    if values["keep_awake"] and values["backend"] != "local":
        raise UsageError(
            "keep_awake = True: is for the cores of this machine; on a cluster its nodes' owner decides that"
        )
    standing = values.get("standing", "")
    if standing == "block" and all(load.slices == 1 for load in loads):
        raise UsageError("standing = 'block': is for runs of several slices, which go round; take slices = 4")
    rule = stopping_of(values["stopping"], values["blocks"] or blocks, values["alpha"])
    declared = primary_of(values["primary"], primary)
    # What a user names stays as it is named.
    instead = {} if values["primary"] else instead_of(declared, loads, Gates())
    for load in loads:
        require_possible(load)
        for asked in dict.fromkeys(treatment.app or app for treatment in treatments):
            if load.response_bytes and asked != SIZED_APP:
                raise UsageError(
                    f"response_bytes = {load.response_bytes}: the app {asked} answers as it does; only {SIZED_APP} "
                    "answers with as many bytes as it is asked for"
                )
    study = Study(
        name=name,
        title=title,
        question=question,
        backend=values["backend"],
        app=app,
        treatments=treatments,
        baseline=baseline_of(treatments),
        loads=loads,
        primary=tuple(dict.fromkeys(instead.get(name, name) for name in declared)),
        margins=declared_margins([values["margin"]], default_margins()),
        scales=declared_scales(split_list(values["scale"]), default_scales()),
        own_failures="ranked",
        standing=standing or ("block" if any(load.slices > 1 for load in loads) else "run"),
        blocks=rule.most,
        seed=values["seed"],
        alpha=values["alpha"],
        stopping=rule.to_dict(),
        correction="max-t",
        options={
            **options_of({k: v for k, v in values.items() if k not in ("study_dir", "run_missing", "part")}),
            **({INSTEAD: instead} if instead else {}),
        },
        **more,
    )
    return replace(study, contrasts=with_pairs(study)) if pairs else study
