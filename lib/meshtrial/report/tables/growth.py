"""What growth costs: slopes of treatments compared, endpoints and rate separated, marginal costs, and the headline.

The headline of a study that scales out gives the cost of more endpoints, with its interval over blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from meshtrial.design.responses import REGISTRY
from meshtrial.inference import scaling
from meshtrial.inference.scaling import Axis, SlopeContrast
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table
from meshtrial.stats.growth import Slope
from meshtrial.vocabulary import VerdictLabel

TOTALS = ("total_cpu_cores", "total_memory_bytes")
COMPARED = (*TOTALS, "latency_net_p50_s")
_PROXIES = ("proxy_largest_memory_bytes", "data_plane_memory_bytes", "data_plane_cpu_cores")
_OPEN = (*_PROXIES, "data_plane_memory_after_bytes", "data_plane_cpu_s_per_request", "app_memory_bytes")
# Responses that an axis may affect. Unused services concern the proxies, and the control plane that configures them.
MARGINAL = {
    scaling.UNUSED: (
        *_PROXIES,
        *("control_plane_memory_bytes", "control_plane_cpu_cores"),
        *("config_time_s", "config_cpu_s", "config_bytes", "push_time_s", "convergence_s", "ready_time_s"),
    ),
    scaling.CONNECTIONS: _OPEN,
    scaling.IDLE: _OPEN,
    scaling.BODY: (*_PROXIES, "data_plane_cpu_s_per_request", "path_cpu_s_per_request"),
}
ENDPOINTS = 100  # the headline gives the cost of this many
_THOUSAND = 1000.0
_ALIKE = "blocks depend on each other"  # which makes an interval too short
_RATE = ("1000 requests per second", 1.0)  # a slope of the rate is already per thousand


def growth_contrasts(data: StudyData, responses: Sequence[str] = COMPARED) -> Fragment:
    """Compare each treatment's slopes with the baseline's, and with those of the treatment before it, within blocks."""
    treatments = [t.name for t in data.plan.study.treatments if not t.twin]
    baseline = data.plan.study.baseline.name
    pairs = [(treatment, baseline) for treatment in treatments if treatment != baseline]
    pairs += [(later, earlier) for earlier, later in pairwise(treatments[1:])]
    rows = [one for name in responses for pair in pairs if (one := scaling.compare(data, *pair, name)) is not None]
    columns: list[Column[SlopeContrast]] = [
        Column("response", lambda one: REGISTRY[one.response].label, wide=True),
        Column("treatment", lambda one: one.treatment),
        Column("against", lambda one: one.baseline),
        Column("blocks", lambda one: one.cost.n, numeric=True),
        Column("difference of exponents", lambda one: _slope(one.exponent, wording.signed)),
        Column("difference per 1000 more endpoints", lambda one: _cost(one.cost, one.response, _THOUSAND)),
        Column("p", lambda one: _p(one.cost), numeric=True),
    ]
    note = (
        "Slopes are taken within each block and paired by block, with their interval in brackets; exploratory, not "
        "corrected. p tests whether an endpoint costs the same with both treatments. A p that is not small does not "
        "show that it does. Dependent: neighbouring blocks resemble each other, so p would be too small."
    )
    nothing = "Slopes are not compared: no two treatments share two sizes and two blocks."
    return Table.from_rows("Growth compared", columns, rows, note).fragment(nothing)


def costs_of_endpoints_and_rate(data: StudyData, responses: Sequence[str] = TOTALS) -> Fragment:
    """Tabulate the cost of 1000 more endpoints at the same rate, and of 1000 more requests per second at one size."""
    rows = [
        (name, treatment.name, varied, slope)
        for name in responses
        for treatment in data.plan.study.treatments
        if not treatment.twin
        for varied, slope in scaling.costs_of_both(data, treatment.name, name).items()
    ]
    more = {"endpoint": ("1000 endpoints", _THOUSAND)}
    columns: list[Column[tuple[str, str, str, Slope]]] = [
        Column("response", lambda one: REGISTRY[one[0]].label, wide=True),
        Column("treatment", lambda one: one[1]),
        Column("increase", lambda one: more.get(one[2], _RATE)[0]),
        Column("adds", lambda one: _cost(one[3], one[0], more.get(one[2], _RATE)[1])),
    ]
    note = "Each cost holds the other quantity fixed: one line per block, in brackets the interval over blocks."
    nothing = "Endpoints and rate cannot be separated: that needs several rates crossed with the sizes."
    return Table.from_rows("Cost of endpoints and cost of rate", columns, rows, note).fragment(nothing)


@dataclass(frozen=True)
class _MarginalCost:
    """The cost of one more of what an axis counts, alone or compared with another treatment's."""

    axis: Axis
    response: str
    treatment: str
    slope: Slope
    against: str = ""


def marginal_costs(data: StudyData) -> Fragment:
    """Tabulate what more of each varied amount costs with each treatment, and compared with the treatment before it."""
    axes = [axis for axis in MARGINAL if scaling.varies(data, axis)]
    treatments = [t.name for t in data.plan.study.treatments if not t.twin]
    rows = []
    for axis, name in [(one, name) for one in axes for name in MARGINAL[one]]:
        alone = scaling.growths(data, [name], axis)
        # Only the first rate is used, as in comparisons between treatments.
        for treatment in treatments:
            costs = [one.cost for one in alone if one.ladder.treatment == treatment and one.cost is not None]
            rows += [_MarginalCost(axis, name, treatment, slope) for slope in costs[:1]]
        for earlier, later in pairwise(treatments) if len(alone) > 1 else ():
            if (contrast := scaling.compare(data, later, earlier, name, axis)) is not None:
                rows.append(_MarginalCost(axis, name, later, contrast.cost, earlier))

    def measured(axis: Axis) -> str:
        """Return the sizes of an axis, and what was fixed."""
        loads = axis.loads(data)
        sizes = wording.listing([str(n) for n in sorted({*map(axis.size_of, loads)})])
        if axis is scaling.UNUSED:
            endpoints = max(map(scaling.endpoints_of, data.plan.study.loads))
            return f"{sizes} {axis.plural}, each with two endpoints, at {endpoints} used endpoints"
        rate = loads[0].asked_rps
        return f"{sizes} {axis.plural}" + (f" at {wording.plain(rate)} requests per second" if rate else "")

    def detectable(one: _MarginalCost) -> str:
        smallest = one.slope.smallest_found(data.plan.study.alpha)
        if one.slope.significant or not smallest:
            return ""
        return f"{one.slope.n} blocks detect {wording.in_unit(one.response, smallest * one.axis.step)}"

    columns: list[Column[_MarginalCost]] = [
        Column("response", lambda one: REGISTRY[one.response].label, wide=True),
        Column("treatment", lambda one: one.treatment),
        Column("against", lambda one: one.against),
        Column("blocks", lambda one: one.slope.n, numeric=True),
        Column("increase", lambda one: one.axis.increase),
        Column("adds", lambda one: _cost(one.slope, one.response, one.axis.step)),
        Column("p", lambda one: _p(one.slope), numeric=True),
        Column("detectable effect", detectable, wide=True),
    ]
    note = (
        f"Slopes of straight lines through {'; '.join(map(measured, axes))}: one per block, in "
        "brackets the interval over blocks. Against another treatment: how much more the increase costs than there. p "
        "tests whether it costs nothing, or the same with both. A p that is not small does not show that it does. If "
        "the interval includes 0: the cost that this number of blocks detects with 80 % power. Twice the increase "
        "detects half the cost of each unit, if the variation between runs stays the same. Dependent: neighbouring "
        "blocks resemble each other, so p would be too small. Exploratory, not corrected."
    )
    nothing = "Marginal costs need loads that differ in one of these alone: services, connections, bytes of body."
    return Table.from_rows("Marginal costs", columns, rows, note).fragment(nothing)


def _cost(slope: Slope, name: str, times: float) -> Cell | None:
    response = REGISTRY[name]
    return _slope(slope, lambda value: wording.signed(value * times * response.scale), response.unit)


def _p(slope: Slope) -> Cell:
    return Cell(VerdictLabel.DEPENDENT if slope.dependent else wording.probability(slope.p), slope.p)


def _slope(slope: Slope | None, form: Callable[[float], str], unit: str = "") -> Cell | None:
    if slope is None:
        return None
    text = f"{form(slope.estimate)} ({form(slope.low)} to {form(slope.high)}) {unit}".strip()
    return Cell(text, slope.estimate, note=_ALIKE if slope.resembles_last_block else "")


def growth_lines(data: StudyData) -> list[Fragment | str]:
    """Return the headline of a study of several sizes: an opening, and the cost of endpoints per treatment.

    It is empty if fewer than two sizes have two blocks each.
    """
    study = data.plan.study
    sizes = sorted({scaling.endpoints_of(load) for load in scaling.ENDPOINTS.loads(data)})
    if len(sizes) < 2:
        return []
    costs = {t.name: _costs(data, t.name) for t in study.treatments if not t.twin}
    clauses = [(name, [_cost_text(one, sizes) for one in found]) for name, found in costs.items() if found]
    if not clauses:
        return []
    rate, baseline = scaling.rates(data)[0], study.baseline.name
    at = "a rate that grows with them" if rate is None else f"{wording.plain(rate)} requests per second"
    return [
        f"From {sizes[0]} to {sizes[-1]} endpoints at {at}, every {ENDPOINTS} cost",
        *(Fragment("sentences.growth", *one, baseline, "." if one is clauses[-1] else ";") for one in clauses),
    ]


def _cost_text(one: SlopeContrast, sizes: Sequence[int]) -> tuple[str, str]:
    middle, low, high = (
        wording.in_unit(one.response, ENDPOINTS * slope, sign=True)
        for slope in (one.cost.estimate, one.cost.low, one.cost.high)
    )
    # If a size is missing, for example because its rate was not reached, the line goes through the others.
    through = "" if [*one.sizes] == sizes else f"; only {one.sizes[0]} to {one.sizes[-1]} endpoints"
    return middle, f"{low} to {high}{through}" + (f"; {_ALIKE}" if one.cost.resembles_last_block else "")


def growth_notes(data: StudyData) -> list[str]:
    """Return how to read the headline of growth; nothing if there is none."""
    if not growth_lines(data):
        return []
    study = data.plan.study
    slopes = [one.cost for t in study.treatments if not t.twin for one in _costs(data, t.name)]
    confidence, blocks = min(slope.confidence for slope in slopes), min(slope.n for slope in slopes)
    methods = wording.listing(list(dict.fromkeys(slope.method for slope in slopes)))
    return [
        f"The cost of {ENDPOINTS} more endpoints is the slope of a straight line through the sizes of each block, app "
        f"and whole mesh together, minus that of {study.baseline.name} in the same block. In brackets: its interval "
        f"over {blocks} blocks at {wording.percent(confidence, 3)} confidence ({methods}). The table of verdicts "
        "compares size by size."
    ]


def _costs(data: StudyData, treatment: str) -> list[SlopeContrast]:
    baseline = data.plan.study.baseline.name
    if treatment == baseline:
        return []
    return [one for name in TOTALS if (one := scaling.compare(data, treatment, baseline, name)) is not None]
