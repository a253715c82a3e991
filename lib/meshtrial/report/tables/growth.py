"""What growth costs: slopes of treatment against treatment, endpoints against rate, and the headline made of them.

The headline of a study that scales out says what more endpoints cost, with the interval over blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from meshtrial.design.responses import REGISTRY
from meshtrial.inference.scaling import ENDPOINTS as SIZES
from meshtrial.inference.scaling import UNUSED, SlopeContrast, compare, costs_of_both, endpoints_of, growths, rates
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table
from meshtrial.stats.growth import Slope

TOTALS = ("total_cpu_cores", "total_memory_bytes")
COMPARED = (*TOTALS, "latency_net_p50_s")
# What services that nobody calls are thought to cost: of proxies, and of who tells them.
UNUSED_COST = (
    *("proxy_largest_memory_bytes", "data_plane_memory_bytes", "data_plane_cpu_cores"),
    *("control_plane_memory_bytes", "control_plane_cpu_cores"),
    *("config_time_s", "config_cpu_s", "config_bytes", "push_time_s", "convergence_s", "ready_time_s"),
)
ENDPOINTS = 100  # whose cost the headline says
_THOUSAND = 1000.0
_RATE = ("1000 requests a second", 1.0)  # a slope of the rate is that of a thousand already


def growth_contrasts(data: StudyData, responses: Sequence[str] = COMPARED) -> Fragment:
    """Every treatment's slopes against the baseline's, and against those of the treatment before it, block by block."""
    treatments = [t.name for t in data.plan.study.treatments if not t.twin]
    baseline = data.plan.study.baseline.name
    pairs = [(treatment, baseline) for treatment in treatments if treatment != baseline]
    pairs += [(later, earlier) for earlier, later in pairwise(treatments[1:])]
    found = [one for name in responses for pair in pairs if (one := compare(data, *pair, name)) is not None]
    columns: list[Column[SlopeContrast]] = [
        Column("response", lambda one: REGISTRY[one.response].label, wide=True),
        Column("treatment", lambda one: one.treatment),
        Column("against", lambda one: one.baseline),
        Column("blocks", lambda one: one.cost.n, numeric=True),
        Column("exponents differ by", lambda one: _slope(one.exponent, wording.signed)),
        Column("1000 endpoints more differ by", lambda one: _cost(one.cost, one.response, _THOUSAND)),
        Column("p", lambda one: Cell(wording.probability(one.cost.p), one.cost.p), numeric=True),
    ]
    note = (
        "Slopes are taken within each block and paired by block, in brackets their interval; exploratory, not "
        "corrected. p is of the cost of an endpoint being the same in both treatments; a p that is not small does not "
        "show that it is."
    )
    nothing = "Slopes are not compared: no two treatments share two sizes and two blocks."
    return Table.of("Growth compared", columns, found, note).fragment(nothing)


def costs_of_endpoints_and_rate(data: StudyData, responses: Sequence[str] = TOTALS) -> Fragment:
    """What 1000 more endpoints cost at the same rate, and 1000 more requests a second at the same endpoints."""
    found = [
        (name, treatment.name, what, slope)
        for name in responses
        for treatment in data.plan.study.treatments
        if not treatment.twin
        for what, slope in costs_of_both(data, treatment.name, name).items()
    ]
    more = {"endpoint": ("1000 endpoints", _THOUSAND)}
    columns: list[Column[tuple[str, str, str, Slope]]] = [
        Column("response", lambda one: REGISTRY[one[0]].label, wide=True),
        Column("treatment", lambda one: one[1]),
        Column("one thousand more", lambda one: more.get(one[2], _RATE)[0]),
        Column("costs", lambda one: _cost(one[3], one[0], more.get(one[2], _RATE)[1])),
    ]
    note = "Each with the other held, from one straight line within each block; in brackets the interval over blocks."
    nothing = "Endpoints and rate are told apart where several rates are crossed with the sizes; here there is one."
    return Table.of("What endpoints cost and what rate costs", columns, found, note).fragment(nothing)


def costs_of_unused_services(data: StudyData, responses: Sequence[str] = UNUSED_COST) -> Fragment:
    """What 1000 services that nobody calls cost with each treatment, and how much less with the one after it."""
    treatments = [t.name for t in data.plan.study.treatments if not t.twin]
    found: list[tuple[str, str, str, Slope]] = []
    for name in responses:
        alone = growths(data, [name], UNUSED)
        # Of the first rate, as where treatments are compared.
        for treatment in treatments:
            costs = [one.cost for one in alone if one.ladder.treatment == treatment and one.cost is not None]
            found += [(name, treatment, "", slope) for slope in costs[:1]]
        pairs = [(later, earlier) for earlier, later in pairwise(treatments)]
        for later, earlier in pairs if len(alone) > 1 else ():
            if (contrast := compare(data, later, earlier, name, UNUSED)) is not None:
                found.append((name, later, earlier, contrast.cost))
    columns: list[Column[tuple[str, str, str, Slope]]] = [
        Column("response", lambda one: REGISTRY[one[0]].label, wide=True),
        Column("treatment", lambda one: one[1]),
        Column("against", lambda one: one[2]),
        Column("blocks", lambda one: one[3].n, numeric=True),
        Column("1000 such services cost", lambda one: _cost(one[3], one[0], _THOUSAND)),
        Column("p", lambda one: Cell(wording.probability(one[3].p), one[3].p), numeric=True),
        Column("what it would take", lambda one: _needed(one[3], one[0], data.plan.study.alpha), wide=True),
    ]
    sizes = wording.listing([str(n) for n in sorted({load.unused_services for load in UNUSED.loads(data)})])
    endpoints = max(map(endpoints_of, data.plan.study.loads))
    note = (
        f"Slopes of straight lines through {sizes} services that nobody calls, each with two endpoints, at {endpoints} "
        "endpoints that are called: one a block, in brackets the interval over blocks. Against another treatment: how "
        "much more a service costs than there. p is of a service costing nothing, or the same in both; a p that is not "
        "small does not show that it does. Where the interval holds 0: the cost of 1000 services that this number of "
        "blocks finds with a power of 80 %. Twice the services find half "
        "the cost, if what varies from run to run stays as it is. Exploratory, not corrected."
    )
    nothing = "Services that nobody calls are told apart where there were several numbers of them (unused_services)."
    return Table.of("What services that nobody calls cost", columns, found, note).fragment(nothing)


def _cost(slope: Slope, name: str, times: float) -> Cell | None:
    response = REGISTRY[name]
    return _slope(slope, lambda value: wording.signed(value * times * response.scale), response.unit)


def _needed(slope: Slope, name: str, alpha: float) -> str:
    found = slope.smallest_found(alpha)
    if slope.significant or not found:
        return ""
    return f"{slope.n} blocks find {wording.in_unit(name, found * _THOUSAND)}"


def _slope(slope: Slope | None, shown: Callable[[float], str], unit: str = "") -> Cell | None:
    if slope is None:
        return None
    text = f"{shown(slope.estimate)} ({shown(slope.low)} to {shown(slope.high)}) {unit}".strip()
    return Cell(text, slope.estimate)


@dataclass(frozen=True)
class Cost:
    """What more endpoints cost in one response, over the baseline, and its interval."""

    more: str
    within: str


@dataclass(frozen=True)
class Grown:
    """What more endpoints cost with one treatment."""

    treatment: str
    costs: Sequence[Cost]


def growth_lines(data: StudyData) -> list[Fragment | str]:
    """One sentence, a line a treatment: what every hundred endpoints cost over what they cost with the baseline.

    Empty for studies of one size, and where two blocks are not there at two sizes.
    """
    study = data.plan.study
    sizes = sorted({endpoints_of(load) for load in SIZES.loads(data)})
    if len(sizes) < 2:
        return []
    costs = {t.name: _costs(data, t.name) for t in study.treatments if not t.twin and t != study.baseline}
    found = [Grown(name, [_said(one, sizes) for one in mine]) for name, mine in costs.items() if mine]
    if not found:
        return []
    rate = rates(data)[0]
    at = "a rate that grows with them" if rate is None else f"{wording.plain(rate)} requests a second"
    return [
        f"From {sizes[0]} to {sizes[-1]} endpoints at {at}, every {ENDPOINTS} cost",
        *(Fragment("sentences.growth", one, study.baseline.name, "." if one is found[-1] else ";") for one in found),
    ]


def _said(one: SlopeContrast, sizes: Sequence[int]) -> Cost:
    name, slope = one.response, one.cost
    within = f"{_hundred(name, slope.low)} to {_hundred(name, slope.high)}"
    # Where a size is missing, as one that was not held, the line is through the others.
    through = "" if [*one.sizes] == sizes else f"; {one.sizes[0]} to {one.sizes[-1]} endpoints alone"
    return Cost(_hundred(name, slope.estimate), within + through)


def growth_notes(data: StudyData) -> list[str]:
    """How to read the sentence; nothing where there is none."""
    if not growth_lines(data):
        return []
    study = data.plan.study
    slopes = [one.cost for t in study.treatments if not t.twin for one in _costs(data, t.name)]
    sure, blocks = min(slope.confidence for slope in slopes), min(slope.n for slope in slopes)
    methods = wording.listing(list(dict.fromkeys(slope.method for slope in slopes)))
    return [
        f"The cost of {ENDPOINTS} more endpoints is the slope of a straight line through the sizes of each block, app "
        f"and whole mesh together, less that of {study.baseline.name} in the same block; in brackets its interval "
        f"over {blocks} blocks at {wording.percent(sure, 3)} confidence ({methods}). Size by size: see the table of "
        "verdicts."
    ]


def _costs(data: StudyData, treatment: str) -> list[SlopeContrast]:
    baseline = data.plan.study.baseline.name
    if treatment == baseline:
        return []
    return [one for name in TOTALS if (one := compare(data, treatment, baseline, name)) is not None]


def _hundred(name: str, slope: float) -> str:
    return wording.in_unit(name, ENDPOINTS * slope, sign=True)
