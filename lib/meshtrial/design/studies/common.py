"""What every study has, and how profiles fill what is left empty."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from meshtrial import stats
from meshtrial.design.foreseen import INSTEAD, instead_of
from meshtrial.design.parameters import Taken, split_list
from meshtrial.design.responses import (
    declared_margins,
    declared_scales,
    default_margins,
    default_scales,
    response,
)
from meshtrial.design.sealing import options_of
from meshtrial.design.settings import Settings
from meshtrial.design.shares import require_possible
from meshtrial.design.study import Gates, Load, Study, Treatment, with_pairs
from meshtrial.errors import UsageError

# fortio's echo, which takes the size of its answer from the request.
SIZED_APP = "echo"
# Settings of a session and not of the study.
UNSEALED = ("design", "study_dir", "run_missing", "part")
# Enough to keep connections open and code in memory, and too little to be in the way of a neighbour's slice.
TRICKLE_RPS = 5.0
# What a load takes from the settings as they are.
_AS_GIVEN = (
    *("payload_bytes", "response_bytes", "headers", "keepalive", "arrivals", "catchup", "timeout_s"),
    *("protocol", "replicas", "ramp"),
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


def load_from(settings: Settings, profile: Profile) -> Load:
    """The load: what is set, and the profile's for what was left at 0."""
    slices = settings.slices or (1 if settings.ramp else profile.slices)
    if settings.closed_loop and settings.rps:
        raise UsageError(f"closed_loop = True with rps = {settings.rps:g}: a closed loop has no rate; leave one out")
    return Load(
        rps=0.0 if settings.closed_loop else settings.rps or profile.rps,
        connections=(*settings.connections, profile.connections)[0],
        duration_s=(settings.duration_s or profile.duration_s) / slices,
        warmup_s=settings.warmup_s or profile.warmup_s,
        generators=generators_of(settings)[0],
        unused_services=settings.unused_services[0],
        slices=slices,
        slice_warmup_s=(settings.slice_warmup_s or profile.slice_warmup_s) if slices > 1 else 0.0,
        trickle_rps=TRICKLE_RPS if slices > 1 else 0.0,
        **{name: getattr(settings, name) for name in _AS_GIVEN},
    )


def generators_of(settings: Settings) -> tuple[int, ...]:
    """Each number of generators that is asked for, once; none below what the load needs.

    Two where they speak different things, and on one machine one for each copy of the application: without a proxy
    nothing there spreads requests over copies, so each generator calls one of them, as connections are spread by a
    cluster's service; and every treatment has the same generators.
    """
    copies = settings.replicas if settings.backend == "local" else 1
    least = max(copies, 2 if settings.protocol == "mixed" else 1)
    numbers = tuple(dict.fromkeys(max(number, least) for number in settings.generators)) or (least,)
    if copies > 1 and (any(number % copies for number in numbers) or settings.protocol == "mixed"):
        raise UsageError(
            f"replicas = {copies} on one machine: generators must be a multiple of it, all of one protocol; "
            f"take generators = {copies}"
        )
    return numbers


def over_generators(loads: Iterable[Load], settings: Settings) -> tuple[Load, ...]:
    """Every load from every number of generators."""
    several = generators_of(settings)
    if len(several) == 1:
        return tuple(loads)
    return tuple(replace(load, generators=number, generators_vary=True) for load in loads for number in several)


def over_connections(loads: Iterable[Load], settings: Settings, default: int) -> tuple[Load, ...]:
    """Every load at every number of connections."""
    several = settings.connections or (default,)
    return tuple(replace(load, connections=number) for load in loads for number in several)


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
    settings: Settings,
    taken: Taken,
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
    settings = msgspec.structs.replace(settings, seed=settings.seed or _drawn_seed(settings.part))
    if settings.keep_awake and settings.backend != "local":
        raise UsageError(
            "keep_awake = True: is for the cores of this machine; on a cluster its nodes' owner decides that"
        )
    standing = settings.standing
    if standing == "block" and all(load.slices == 1 for load in loads):
        raise UsageError("standing = 'block': is for runs of several slices, which go round; take slices = 4")
    rule = stopping_of(settings.stopping, settings.blocks or blocks, settings.alpha)
    declared = primary_of(settings.primary, primary)
    # What a user names stays as it is named.
    instead = {} if settings.primary else instead_of(declared, loads, Gates())
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
        backend=settings.backend,
        app=app,
        treatments=treatments,
        baseline=baseline_of(treatments),
        loads=loads,
        primary=tuple(dict.fromkeys(instead.get(name, name) for name in declared)),
        margins=declared_margins([settings.margin], default_margins()),
        scales=declared_scales(split_list(settings.scale), default_scales()),
        own_failures="ranked",
        standing=standing or ("block" if any(load.slices > 1 for load in loads) else "run"),
        blocks=rule.most,
        seed=settings.seed,
        alpha=settings.alpha,
        stopping=rule.to_dict(),
        correction="max-t",
        options={
            **options_of({k: v for k, v in taken.plain(settings).items() if k not in UNSEALED}),
            **({INSTEAD: instead} if instead else {}),
        },
        **more,
    )
    return replace(study, contrasts=with_pairs(study)) if pairs else study
