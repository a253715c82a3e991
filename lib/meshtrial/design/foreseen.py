"""What a plan cannot answer, known before its first run, and what would make it possible.

A plan that cannot answer is not refused: a rehearsal of two blocks is a good use of a minute. But whoever starts it
reads it first, and not in a verdict after an hour. A percentile that no load of the plan can report is not declared by
a study itself: the highest that one can report is primary instead. What a user names stays as it is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from meshtrial import stats
from meshtrial.design.responses import PERCENTILES, REGISTRY, Response, applies, requests_needed
from meshtrial.design.study import Gates, Load, Study

# In `Study.options`: percentiles that were not declared, with what is primary instead of each.
INSTEAD = "primary_instead"
_LONGEST_S = 86400.0  # of the parameter duration_s
_FEW = 3


@dataclass(frozen=True)
class Limit:
    """Something that a plan cannot answer, in numbers and in a sentence."""

    kind: Literal["percentile", "difference", "equivalence", "rate"]
    about: str  # the response or treatment; empty of blocks
    loads: tuple[str, ...]  # at which it is so; empty of blocks
    planned: float  # requests of a run, blocks, or requests a second
    needed: float  # as many of them make it possible; of a rate: the most that was held
    remedy: str  # parameters that make it possible, e.g. `duration_s=11`; empty where no parameter does
    instead: str = ""  # the response that is primary in its place
    sentence: str = ""


@dataclass(frozen=True)
class Unheld:
    """A rate that a treatment did not hold in a recorded study on this machine."""

    treatment: str
    load: Load
    rps: float  # the lowest such rate
    most_rps: float  # what was achieved
    where: str  # the study


def foreseen(study: Study, unheld: Iterable[Unheld] = ()) -> tuple[Limit, ...]:
    """What a study cannot answer as it is planned: percentiles, differences, equivalence, rates."""
    return (*_percentiles(study), *_blocks(study), *_rates(study, unheld))


def instead_of(names: Iterable[str], loads: Sequence[Load], gates: Gates) -> dict[str, str]:
    """Percentiles that no load can report, each with the highest of its kind that one can, where there is any."""
    found: dict[str, str] = {}
    for name in names:
        about = REGISTRY[name]
        at = [load for load in loads if applies(name, load)]
        if about.percentile and at and not any(_has_enough(about, load, gates) for load in at):
            lower = (one.name for one in _others(about) if any(_has_enough(one, load, gates) for load in at))
            if (highest := next(lower, None)) is not None:
                found[name] = highest
    return found


def _others(about: Response) -> Iterator[Response]:
    """The same latency at lower percentiles, the highest first."""
    assert about.percentile is not None
    for one in sorted(PERCENTILES.values(), key=lambda one: -one.q):
        other = REGISTRY.get(about.name.replace(f"_{about.percentile.key}_", f"_{one.key}_"))
        if other is not None and one.q < about.percentile.q:
            yield other


def _requests(about: Response, load: Load) -> float:
    """Requests of a run among which a percentile is; without a bound in a closed loop, whose rate nobody knows."""
    if load.closed_loop:
        return math.inf
    seconds = load.duration_s * load.slices
    if about.name.startswith("latency_around_"):
        seconds = load.around_s
    one_of_two = about.name.startswith(("latency_http_", "latency_grpc_"))
    share = 1.0 if not one_of_two else 0.5 if load.protocol == "mixed" else 0.0
    return round(load.mean_rps * seconds * share, 6)


def _needed(about: Response, gates: Gates) -> int:
    assert about.percentile is not None
    return requests_needed(about.percentile.q, gates.sample_floor)


def _has_enough(about: Response, load: Load, gates: Gates) -> bool:
    return _requests(about, load) >= _needed(about, gates)


def _percentiles(study: Study) -> Iterator[Limit]:
    declared = study.options.get(INSTEAD, {})
    instead: Mapping[str, str] = declared if isinstance(declared, Mapping) else {}
    for name in (*instead, *study.primary):
        about = REGISTRY.get(name)
        if about is None or about.percentile is None:
            continue
        at = [load for load in study.loads if applies(name, load)]
        short = [load for load in at if not _has_enough(about, load, study.gates)]
        if not short:
            continue
        fewest = min(short, key=lambda load: _requests(about, load))
        has, needed = _requests(about, fewest), _needed(about, study.gates)
        limit = Limit(
            "percentile",
            name,
            tuple(load.label for load in short),
            has,
            needed,
            _remedy(study, about, fewest),
            instead.get(name, ""),
        )
        yield replace(
            limit, sentence=_of_percentile(limit, about, len(at), named=bool(study.parameters.get("primary")))
        )


def _of_percentile(limit: Limit, about: Response, loads: int, *, named: bool) -> str:
    where = _listed(limit.loads) if len(limit.loads) <= _FEW else f"{len(limit.loads)} of {loads} loads"
    least = "has" if len(limit.loads) == 1 else "has as few as"
    after = (
        f"{REGISTRY[limit.instead].label} is primary instead"
        if limit.instead
        else f"{'it stays primary, as you named it, and ' if named else ''}its verdict there is `invalid`"
    )
    return (
        f"{about.label} cannot be reported at {where}: a run {least} {limit.planned:,.0f} requests "
        f"and it takes {limit.needed:,.0f}{_in_brackets(limit.remedy)}; {after}"
    )


def _remedy(study: Study, about: Response, load: Load) -> str:
    """A longer run, or a higher rate where runs cannot be longer; with as many failed requests as a run may have."""
    has = _requests(about, load) * (1 - study.gates.error_ratio)
    if not has:
        return ""
    factor = _needed(about, study.gates) / has
    has_own_time = study.parameters.get("around_s") and about.name.startswith("latency_around_")
    seconds = math.ceil(round(load.duration_s * load.slices * factor, 6))
    if "duration_s" in study.parameters and not has_own_time and seconds <= _LONGEST_S:
        return f"duration_s={seconds}"
    return f"rps={math.ceil(round(load.rps * factor, 6))}" if "rps" in study.parameters else ""


def _blocks(study: Study) -> Iterator[Limit]:
    """Fewer blocks than the exact tests need, whatever the runs show."""
    family = max(1, *map(len, study.families().values()))
    corrected = 1 if study.correction == "max-t" else family
    tests: tuple[tuple[Literal["difference", "equivalence"], int, float], ...] = (
        ("difference", corrected, stats.smallest_p(study.blocks)),
        ("equivalence", family, 0.5**study.blocks),
    )
    for test, m, smallest_p in tests:
        needed = stats.smallest_n(m, study.alpha, test)
        if study.blocks < needed:
            over = f" over {m} contrasts" if m > 1 else ""
            what = "a difference" if test == "difference" else "equivalence within any margin"
            yield Limit(
                test,
                *("", (), study.blocks, needed, f"blocks={needed}"),
                sentence=f"{study.blocks} blocks cannot show {what}{over}: p is at least "
                f"{min(1.0, m * smallest_p):.2g}, and the error level is {study.alpha:g} (blocks={needed})",
            )


def _rates(study: Study, unheld: Iterable[Unheld]) -> Iterator[Limit]:
    names = {treatment.name for treatment in study.treatments}
    for one in unheld:
        loads = [load for load in study.loads if load.rps >= one.rps and _alike(load, one.load)]
        if one.treatment in names and loads:
            asked, labels = min(load.rps for load in loads), tuple(load.label for load in loads)
            yield Limit(
                "rate",
                one.treatment,
                labels,
                asked,
                one.most_rps,
                "",
                sentence=f"{one.treatment} may not hold the rate at {_listed(labels)}: the last study here carried "
                f"{one.most_rps:,.0f} requests a second ({one.where}); lower the rate, or expect `saturated`",
            )


def _alike(load: Load, other: Load) -> bool:
    """Whether what one carried tells of the other: the same requests, and, but for a search, the same connections."""
    if load.closed_loop or load.search or load.ramp or load.changes:
        return False
    same = ["payload_bytes", "response_bytes", "headers", "keepalive", "protocol", "replicas", "unused_services"]
    same += [] if other.search else ["connections", "generators"]
    return all(getattr(load, name) == getattr(other, name) for name in same)


def _in_brackets(remedy: str) -> str:
    return f" ({remedy})" if remedy else ""


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
