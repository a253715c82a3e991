"""The headline of a study that scales out: what more endpoints cost, with the interval over blocks."""

from __future__ import annotations

from meshtrial.inference import scaling
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.tables.growth import TOTALS
from meshtrial.report.tables.pieces import Piece
from meshtrial.stats.growth import Slope

ENDPOINTS = 100


def growth_sentences(data: StudyData) -> list[list[Piece]]:
    """One sentence: what every hundred endpoints cost with each treatment, over what they cost with the baseline.

    Empty for studies of one size, and where two blocks are not there at two sizes.
    """
    study = data.plan.study
    sizes = sorted({scaling.endpoints_of(load) for load in study.loads})
    if len(sizes) < 2:
        return []
    rate = scaling.rates(data)[0]
    at = "a rate that grows with them" if rate is None else f"{wording.plain(rate)} requests a second"
    pieces = [Piece(f"From {sizes[0]} to {sizes[-1]} endpoints at {at}, every {ENDPOINTS} cost")]
    for treatment in (t.name for t in study.treatments if not t.twin and t != study.baseline):
        costs = _costs(data, treatment)
        if costs:
            pieces += [
                Piece(";" if len(pieces) > 1 else ""),
                Piece(" ", "clause"),
                Piece(treatment, "strong"),
                Piece(" "),
            ]
            for place, (name, slope) in enumerate(costs):
                pieces += [Piece(" and " if place else ""), Piece(_hundred(name, slope.estimate), "strong")]
                pieces.append(Piece(f" ({_hundred(name, slope.low)} to {_hundred(name, slope.high)})", "quiet"))
            pieces.append(Piece(f" more than {study.baseline.name}"))
    return [[*pieces, Piece(".")]] if len(pieces) > 1 else []


def growth_notes(data: StudyData) -> list[str]:
    """How to read the sentence; nothing where there is none."""
    if not growth_sentences(data):
        return []
    study = data.plan.study
    slopes = [slope for t in study.treatments if not t.twin for _, slope in _costs(data, t.name)]
    sure, blocks = min(slope.confidence for slope in slopes), min(slope.n for slope in slopes)
    methods = wording.listing(list(dict.fromkeys(slope.method for slope in slopes)))
    return [
        f"The cost of {ENDPOINTS} more endpoints is the slope of a straight line through the sizes of each block, app "
        f"and whole mesh together, less that of {study.baseline.name} in the same block; in brackets its interval "
        f"over {blocks} blocks at {wording.percent(sure, 3)} confidence ({methods}). Size by size: see the table of "
        "verdicts."
    ]


def _costs(data: StudyData, treatment: str) -> list[tuple[str, Slope]]:
    baseline = data.plan.study.baseline.name
    if treatment == baseline:
        return []
    found = [(name, scaling.compare(data, treatment, baseline, name)) for name in TOTALS]
    return [(name, one.cost) for name, one in found if one is not None]


def _hundred(name: str, slope: float) -> str:
    return wording.in_unit(name, ENDPOINTS * slope, sign=True)
