"""Slopes of growth compared: treatment against treatment, and endpoints against rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from meshtrial.design.responses import REGISTRY, Response
from meshtrial.inference.scaling import SlopeContrast, compare, costs_of_both
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, paragraph
from meshtrial.stats.growth import Slope

TOTALS = ("total_cpu_cores", "total_memory_bytes")
COMPARED = (*TOTALS, "latency_beyond_holds_p50_s")
_THOUSAND = 1000.0


def growth_contrasts(data: StudyData, responses: Sequence[str] = COMPARED) -> Fragment:
    """Every treatment's slopes against the baseline's, and against those of the treatment before it, block by block."""
    treatments = [t.name for t in data.plan.study.treatments if not t.twin]
    baseline = data.plan.study.baseline.name
    pairs = [(treatment, baseline) for treatment in treatments if treatment != baseline]
    pairs += [(later, earlier) for earlier, later in pairwise(treatments[1:])]
    found = [one for name in responses for pair in pairs if (one := compare(data, *pair, name)) is not None]
    if not found:
        text = "Slopes are not compared: no two treatments share two sizes and two blocks."
        return Fragment(paragraph(text), text)
    columns = [
        Column("response", wide=True),
        Column("treatment"),
        Column("against"),
        Column("blocks", numeric=True),
        Column("exponents differ by"),
        Column("1000 endpoints more differ by"),
        Column("p", numeric=True),
    ]
    note = (
        "Slopes are taken within each block and paired by block, in brackets their interval; exploratory, not "
        "corrected. p is of the cost of an endpoint being the same in both treatments; a p that is not small does not "
        "show that it is."
    )
    return Table("Growth compared", columns, [_contrast(one) for one in found], note).fragment()


def _contrast(one: SlopeContrast) -> list[Cell]:
    response = REGISTRY[one.response]
    return [
        Cell(response.label),
        Cell(one.treatment),
        Cell(one.baseline),
        Cell(str(one.cost.n), one.cost.n),
        _slope(one.exponent, wording.signed),
        _cost(one.cost, response, _THOUSAND),
        Cell(wording.probability(one.cost.p), one.cost.p),
    ]


def costs_of_endpoints_and_rate(data: StudyData, responses: Sequence[str] = TOTALS) -> Fragment:
    """What 1000 more endpoints cost at the same rate, and 1000 more requests a second at the same endpoints."""
    treatments = [t.name for t in data.plan.study.treatments if not t.twin]
    rows = [
        [
            Cell(REGISTRY[name].label),
            Cell(treatment),
            Cell("1000 endpoints" if what == "endpoint" else "1000 requests a second"),
            _cost(slope, REGISTRY[name], _THOUSAND if what == "endpoint" else 1.0),
        ]
        for name in responses
        for treatment in treatments
        for what, slope in costs_of_both(data, treatment, name).items()
    ]
    if not rows:
        text = "Endpoints and rate are told apart where several rates are crossed with the sizes; here there is one."
        return Fragment(paragraph(text), text)
    columns = [
        Column("response", wide=True),
        Column("treatment"),
        Column("one thousand more"),
        Column("costs"),
    ]
    note = "Each with the other held, from one straight line within each block; in brackets the interval over blocks."
    return Table("What endpoints cost and what rate costs", columns, rows, note).fragment()


def _cost(slope: Slope, response: Response, times: float) -> Cell:
    return _slope(slope, lambda value: wording.signed(value * times * response.scale), response.unit)


def _slope(slope: Slope | None, shown: Callable[[float], str], unit: str = "") -> Cell:
    if slope is None:
        return Cell("–")
    text = f"{shown(slope.estimate)} ({shown(slope.low)} to {shown(slope.high)}) {unit}".strip()
    return Cell(text, slope.estimate)
