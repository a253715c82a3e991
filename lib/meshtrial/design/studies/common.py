"""What all studies share, and how profiles fill settings that are left empty."""

import itertools
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from meshtrial import stats
from meshtrial.design.foreseen import INSTEAD, instead_of
from meshtrial.design.load import ClosedLoop, FixedRate, Load, Ramp, SlicedLoad
from meshtrial.design.parameters import Taken, settings_of, split_list
from meshtrial.design.responses import declared_margins, declared_scales, default_margins, default_scales, response
from meshtrial.design.sealing import options_of
from meshtrial.design.settings import Settings
from meshtrial.design.shares import require_possible
from meshtrial.design.study import Gates, Study, Treatment, with_pairs
from meshtrial.errors import UsageError

# They take the size of their answers or events from the request.
SIZED_APPS = ("echo", "event-streams")
# Settings of a session and not of the study.
UNSEALED = ("design", "study_dir", "measure", "next_session", "part", "single_hop")
# Enough to keep connections open and code in memory, and too little to disturb another deployment's slice.
TRICKLE_RPS = 5.0
_GAP = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_GAP_S = 365 * 86_400.0
# Fields of a load that take more than the setting of the same name.
_DERIVED = ("connections", "duration_s", "warmup_s", "generators", "unused_services", "idle_connections")
# Fields of a load that are the setting of the same name.
_AS_SET = sorted(settings_of(Load).keys() & settings_of(Settings).keys() - {*_DERIVED})


@dataclass(frozen=True)
class Profile:
    """The values that a profile sets."""

    blocks: int
    rps: float
    connections: int
    duration_s: float  # of a run, over all its slices
    warmup_s: float
    slices: int = 1
    slice_warmup_s: float = 1.0  # before each slice, where there are several


def load_from(settings: Settings, profile: Profile) -> Load:
    """Return the load that the settings describe: at a fixed rate, in a closed loop, or a ramp.

    The profile gives what is left empty or 0. UsageError for settings that no kind of load has together.
    """
    slices = settings.slices or (1 if settings.ramp else profile.slices)
    contradictions = (
        (settings.closed_loop and settings.rps > 0, f"rps = {settings.rps:g}", "no rate"),
        (settings.closed_loop and settings.ramp > 0, f"ramp = {settings.ramp}", "no rate"),
        (settings.closed_loop and settings.arrivals != "uniform", f"arrivals = {settings.arrivals!r}", "no schedule"),
    )
    for is_given, other, lack in contradictions:
        if is_given:
            raise UsageError(f"closed_loop = True with {other}: a closed loop has {lack}; leave one out")
    if settings.ramp and slices > 1:
        raise UsageError(f"ramp = {settings.ramp} with slices = {slices}: a ramp is not sliced; leave one out")
    fields = common_fields(settings, profile)
    if settings.ramp:
        return Ramp(rps=settings.rps or profile.rps, arrivals=settings.arrivals, steps=settings.ramp, **fields)
    fields["duration_s"] /= slices
    if slices > 1:
        warmup_s = settings.slice_warmup_s or profile.slice_warmup_s
        fields |= {"slices": slices, "slice_warmup_s": warmup_s, "trickle_rps": TRICKLE_RPS}
    if settings.closed_loop:
        return ClosedLoop(**fields)
    return FixedRate(rps=settings.rps or profile.rps, arrivals=settings.arrivals, **fields)


def common_fields(settings: Settings, profile: Profile) -> dict[str, Any]:
    """Return the fields that every kind of load has; the profile gives what is left empty or 0."""
    return {
        "connections": (*settings.connections, profile.connections)[0],
        "duration_s": settings.duration_s or profile.duration_s,
        "warmup_s": settings.warmup_s or profile.warmup_s,
        "generators": generators_of(settings)[0],
        "unused_services": settings.unused_services[0],
        "idle_connections": settings.idle_connections[0],
        **{name: getattr(settings, name) for name in _AS_SET},
    }


def generators_of(settings: Settings) -> tuple[int, ...]:
    """Return each requested number of generators once, raised to the least number that the load needs.

    A mixed protocol needs two. On one machine each copy of the application needs one, for every treatment alike:
    without a proxy nothing spreads requests over the copies there, as a cluster's service spreads connections.
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


def crossed(loads: Iterable[Load], settings: Settings, profile: Profile) -> tuple[Load, ...]:
    """Return every load with every number of connections, of idle ones and of generators."""
    numbers, busy = generators_of(settings), settings.connections or (profile.connections,)
    return tuple(
        replace(load, connections=many, idle_connections=idle, generators=number, generators_vary=len(numbers) > 1)
        for load, many, idle, number in itertools.product(loads, busy, settings.idle_connections, numbers)
    )


def treatments_of(text: str, default: tuple[str, ...]) -> tuple[Treatment, ...]:
    """Return the treatments of a list, with the baseline's A/A twin even if it was left out."""
    treatments = [Treatment.parse(item) for item in (split_list(text) or default)]
    plain = [treatment for treatment in treatments if not treatment.twin]
    if not plain:
        raise UsageError(f"treatments = {text!r}: names no baseline, e.g. none,node-proxy")
    twin = plain[0].as_twin()
    if twin not in treatments:
        treatments.insert(1, twin)
    return tuple(treatments)


def baseline_of(treatments: tuple[Treatment, ...]) -> Treatment:
    """Return the first treatment that is not a twin."""
    return next(treatment for treatment in treatments if not treatment.twin)


def stopping_of(text: str, blocks: int, alpha: float) -> stats.StoppingRule:
    """Return the declared rule. `blocks` is the limit of ``precision``; ``two-looks`` has fixed numbers of blocks."""
    if blocks < 2:
        raise UsageError(f"blocks = {blocks}: must be 2 or more, because a single block has no variance")
    rule, _, target = text.partition(":")
    if rule == "fixed" and not target:
        return stats.FixedN(blocks, alpha)
    if rule == "two-looks" and not target:
        return stats.TwoLooks(alpha_first=alpha / 5, alpha_second=4 * alpha / 5)
    if rule == "precision":
        try:
            return stats.Precision(float(target or 0.05), n_max=max(blocks, 12), alpha=9 * alpha / 10)
        except ValueError:
            pass
    raise UsageError(f"stopping = {text!r}: must be fixed, precision:0.05 or two-looks")


def primary_of(text: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """Return the full names of the primary responses."""
    names = tuple(response(item).name for item in split_list(text)) or default
    judged = default_margins()
    for name in names:
        if name not in judged:
            raise UsageError(f"primary: {name} is only reported and gets no verdict")
    return names


def _session_gap_s(settings: Settings) -> float:
    """Return the seconds between sessions; UsageError if they do not go together with other settings."""
    text, match = settings.session_gap, _GAP.fullmatch(settings.session_gap.strip())
    if text and not match:
        raise UsageError(f"session_gap = {text[:40]!r}: must be a number with s, m, h or d, for example 10m, 1h or 24h")
    if settings.sessions == 1:
        if text:
            raise UsageError(f"session_gap = {text!r}: is the time between sessions; set sessions to 2 or more")
        return 0.0
    if settings.part:
        raise UsageError("part: a study of several sessions cannot also be divided; leave part or sessions out")
    if settings.stopping != "fixed":
        raise UsageError(f"stopping = {settings.stopping!r}: a study of several sessions needs stopping = fixed")
    gap_s = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if gap_s > _LONGEST_GAP_S:
        raise UsageError(f"session_gap = {text[:40]!r}: must be at most 365d")
    return gap_s


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
    """Return a study from its own parts and the general settings.

    ``restarts``: whether treatments may have restarts; ``pairs``: whether treatments are also compared with each other.
    """
    for treatment in treatments:
        if treatment.restart and not restarts:
            raise UsageError(f"treatment {treatment.name}: restarts under load belong to the study rollout")
    if not settings.seed:  # drawn from the machine's entropy, so that studies differ in their order
        seed = secrets.randbelow(2**32 - 1) + 1
        if settings.part:
            part = settings.part[:40]
            raise UsageError(f"part = {part}: all parts need the same seed; give each of them one, e.g. seed={seed}")
        settings = msgspec.structs.replace(settings, seed=seed)
    if settings.keep_awake and settings.backend != "local":
        raise UsageError("keep_awake = True: applies only to this machine's cores; leave it out on a cluster")
    gap_s = _session_gap_s(settings)
    if settings.backend != "local" and any(load.idle_connections for load in loads):
        raise UsageError(
            f"idle_connections = {','.join(map(str, settings.idle_connections))}: no proof counts idle connections on "
            "a cluster; leave it out there"
        )
    is_sliced = any(isinstance(load, SlicedLoad) and load.slices > 1 for load in loads)
    deployment_mode = settings.deployment_mode or ("concurrent" if is_sliced else "sequential")
    if settings.after_s and deployment_mode == "concurrent":
        raise UsageError(
            f"after_s = {settings.after_s:g}: concurrent deployments are loaded after each other's load; set "
            "deployment_mode = 'sequential'"
        )
    if settings.deployment_mode == "concurrent" and not is_sliced:
        raise UsageError("deployment_mode = 'concurrent': needs runs of several slices; set slices = 4")
    rule = stopping_of(settings.stopping, settings.blocks or blocks, settings.alpha)
    declared = primary_of(settings.primary, primary)
    # A user's own choice is kept.
    instead = {} if settings.primary else instead_of(declared, loads, Gates())
    for load in loads:
        require_possible(load)
        for asked in dict.fromkeys(treatment.app or app for treatment in treatments):
            if load.response_bytes and asked not in SIZED_APPS:
                raise UsageError(
                    f"response_bytes = {load.response_bytes}: the app {asked} decides the size of its response; only "
                    f"{' and '.join(SIZED_APPS)} send the number of bytes that is asked for"
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
        own_failures="tested",
        deployment_mode=deployment_mode,
        blocks=rule.most,
        seed=settings.seed,
        alpha=settings.alpha,
        stopping=rule.to_dict(),
        sessions=settings.sessions,
        session_gap_s=gap_s,
        unit_sessions=stats.smallest_n(1),
        correction="max-t",
        options={
            **options_of({k: v for k, v in taken.plain(settings).items() if k not in UNSEALED}),
            **({INSTEAD: instead} if instead else {}),
        },
        **more,
    )
    return replace(study, contrasts=with_pairs(study)) if pairs else study
