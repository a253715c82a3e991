"""Questions that a plan cannot answer, known before its first run, and what would make them answerable.

Such a plan is not refused, because a rehearsal of two blocks is a good use of a minute. The user reads the limits
before the study starts, and not in a verdict after an hour. Where no load of the plan can report a study's default
percentile, the highest percentile that one can report is primary instead. A user's own choice is kept.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from meshtrial import stats
from meshtrial.design.load import CapacitySearch, ClosedLoop, FixedRate, Load, RestartUnderLoad
from meshtrial.design.responses import PERCENTILES, REGISTRY, Response, applies, requests_needed
from meshtrial.design.study import Gates, Study

# The key in `Study.options` of percentiles that cannot be reported, each with the response that is primary instead.
INSTEAD = "primary_instead"
_LONGEST_S = 86400.0  # the largest duration_s
# Fields of a load in which the requests themselves, and where they go, do not differ.
_NO_PART_OF_REQUESTS = ("duration_s", "warmup_s", "after_s", "catchup", "timeout_s", "generators_vary")
_MOST_LISTED = 3  # loads; if there are more, only their number is given


@dataclass(frozen=True)
class Limit:
    """A question that a plan cannot answer, in numbers and in a sentence."""

    kind: Literal["percentile", "difference", "equivalence", "rate"]
    planned: float  # requests of a run, blocks, or requests per second
    needed: float  # how many of them would be enough; for a rate the most that was achieved
    sentence: str
    about: str = ""  # the response or the treatment; empty for blocks
    loads: tuple[str, ...] = ()  # the loads that it concerns; empty for blocks
    remedy: str = ""  # a parameter that would be enough, e.g. `duration_s=11`; empty where there is none
    instead: str = ""  # the response that is primary in its place


@dataclass(frozen=True)
class Unheld:
    """A rate that a treatment did not hold in a recorded study on this machine."""

    treatment: str
    load: Load  # the load of that study: at a rate, or a search
    rps: float  # the lowest such rate
    most_rps: float  # what was achieved
    where: str  # the study


def foreseen(study: Study, unheld: Iterable[Unheld] = ()) -> tuple[Limit, ...]:
    """Return the limits of a study as planned: percentiles, differences, equivalence and rates."""
    return (*_percentiles(study), *_blocks(study), *_rates(study, unheld))


def instead_of(names: Iterable[str], loads: Sequence[Load], gates: Gates) -> dict[str, str]:
    """Return percentiles that no load can report, each with the highest reportable one of the same latency."""
    found: dict[str, str] = {}
    for about in map(REGISTRY.__getitem__, names):
        at = [load for load in loads if applies(about.name, load)]
        if about.percentile and at and not any(_has_enough(about, load, gates) for load in at):
            for lower in sorted(PERCENTILES.values(), key=lambda one: -one.q):
                other = REGISTRY.get(about.name.replace(f"_{about.percentile.key}_", f"_{lower.key}_"))
                if other and lower.q < about.percentile.q and any(_has_enough(other, load, gates) for load in at):
                    found[about.name] = other.name
                    break
    return found


def _requests(about: Response, load: Load) -> float:
    """Return the number of requests that a run's percentile is taken from; infinite for a closed loop."""
    if isinstance(load, ClosedLoop):
        return math.inf
    seconds = load.measured_s
    if about.name.startswith("latency_restart_window_"):
        seconds = load.around_s if isinstance(load, RestartUnderLoad) else 0.0
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
        remedy, labels = _remedy(study, about, fewest), tuple(load.label for load in short)
        where = _listed(labels) if len(labels) <= _MOST_LISTED else f"{len(labels)} of {len(at)} loads"
        sentence = (
            f"{about.label} cannot be reported at {where}: a run has {'as few as ' * (len(labels) > 1)}{has:,.0f} "
            f"requests and it takes {needed:,.0f}{f' ({remedy})' * bool(remedy)}; "
        )
        if name in instead:
            sentence += f"{REGISTRY[instead[name]].label} is primary instead"
        else:
            named = "it stays primary, as you named it, and " if study.parameters.get("primary") else ""
            sentence += f"{named}its verdict there is `invalid`"
        yield Limit("percentile", has, needed, sentence, name, labels, remedy, instead.get(name, ""))


def _remedy(study: Study, about: Response, load: Load) -> str:
    """Return a longer duration, or a higher rate where runs cannot be longer; failed requests are allowed for."""
    has = _requests(about, load) * (1 - study.gates.error_ratio)
    if not has:
        return ""
    factor = _needed(about, study.gates) / has
    has_own_time = study.parameters.get("around_s") and about.name.startswith("latency_restart_window_")
    seconds = math.ceil(round(load.measured_s * factor, 6))
    if "duration_s" in study.parameters and not has_own_time and seconds <= _LONGEST_S:
        return f"duration_s={seconds}"
    return f"rps={math.ceil(round(load.asked_rps * factor, 6))}" if "rps" in study.parameters else ""


def _blocks(study: Study) -> Iterator[Limit]:
    """Yield the tests for which there are too few blocks or sessions, whatever the runs show."""
    family = max(1, *map(len, study.families().values()))
    corrected = 1 if study.correction == "max-t" else family
    unit = study.unit(study.sessions)
    n = study.sessions if unit == "session" else study.blocks
    tests: tuple[tuple[Literal["difference", "equivalence"], int, float], ...] = (
        ("difference", corrected, stats.smallest_p(n)),
        ("equivalence", family, 0.5**n),
    )
    for test, m, smallest_p in tests:
        needed = stats.smallest_n(m, study.alpha, test)
        if n < needed:
            what = "a difference" if test == "difference" else "equivalence within any margin"
            over = f" over {m} contrasts" * (m > 1)
            sentence = (
                f"{n} {unit}s cannot show {what}{over}: p is at least {min(1.0, m * smallest_p):.2g}, "
                f"and the error level is {study.alpha:g} ({unit}s={needed})"
            )
            yield Limit(test, n, needed, sentence, remedy=f"{unit}s={needed}")


def _rates(study: Study, unheld: Iterable[Unheld]) -> Iterator[Limit]:
    names = {treatment.name for treatment in study.treatments}
    for one in unheld:
        loads = [load for load in study.loads if load.asked_rps >= one.rps and _alike(load, one.load)]
        if one.treatment in names and loads:
            labels = tuple(load.label for load in loads)
            found = (
                f"its capacity was {one.most_rps:,.0f}"
                if isinstance(one.load, CapacitySearch)
                else f"it fell behind at {one.rps:,.0f}"
            )
            sentence = (
                f"{one.treatment} may not hold the rate at {_listed(labels)}: in the last study here, {one.where}, "
                f"{found} requests per second; lower the rate, or expect `saturated`"
            )
            yield Limit("rate", min(load.asked_rps for load in loads), one.most_rps, sentence, one.treatment, labels)


def _alike(load: Load, other: Load) -> bool:
    """Whether a rate under one load is evidence for the other: same requests and, except for a search, connections."""
    if not isinstance(load, FixedRate | RestartUnderLoad):
        return False
    may_differ = {*_NO_PART_OF_REQUESTS, *(("connections", "generators") if isinstance(other, CapacitySearch) else ())}
    same = {one.name for one in dataclasses.fields(Load)} - may_differ
    return all(getattr(load, name) == getattr(other, name) for name in same)


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
