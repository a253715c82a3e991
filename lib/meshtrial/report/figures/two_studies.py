"""The verdicts of two studies on the same axes, whatever each of them asks; no test stands between them."""

from __future__ import annotations

from dataclasses import replace

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames
from meshtrial.report.figure import Figure
from meshtrial.report.figures.forest import forest_of
from meshtrial.report.frames import Contrasts
from meshtrial.report.tables.between import letter

_NOTE = (
    " A and B are two studies: what one deployed, the other may lack. They share no block, so a difference between "
    "them may be the day as well as anything else; mt.tables.between says what agrees."
)


def two_studies(data: StudyData, other: StudyData) -> Figure:
    """Every primary contrast of two studies: ratio to its baseline, interval, margin, verdict.

    Parameters
    ----------
    data : StudyData
        Study A.
    other : StudyData
        Study B.
    """
    own = [frames.contrasts(one, primary=True) for one in (data, other)]
    found = [_lettered(contrasts, letter(n)) for n, contrasts in enumerate(own)]
    loads = tuple(dict.fromkeys(load for contrasts in found for load in contrasts.loads))
    looks = {name: look for contrasts in found for name, look in contrasts.looks.items()}
    responses = list(dict.fromkeys(row.response for one in own for row in one.rows))
    treatments = list(dict.fromkeys(name for one in own for name in one.looks))

    def place(row: VerdictRow) -> tuple[object, ...]:
        name = row.treatment.rpartition(" ")[0]
        return loads.index(row.load), responses.index(row.response), row.baseline, not row.twin, treatments.index(name)

    # Stable: of a treatment that both deployed, A stands over B.
    rows = sorted((row for contrasts in found for row in contrasts.rows), key=place)
    missing = frozenset().union(*(contrasts.unreported for contrasts in found))
    return forest_of(Contrasts(tuple(rows), looks, loads, missing), _NOTE)


def _lettered(contrasts: Contrasts, name: str) -> Contrasts:
    """Its treatments with the study's letter behind them; what they are compared with keeps its name."""
    return replace(
        contrasts,
        rows=tuple(replace(row, treatment=f"{row.treatment} {name}") for row in contrasts.rows),
        looks={f"{treatment} {name}": look for treatment, look in contrasts.looks.items()},
        unreported=frozenset(
            (load, response, f"{treatment} {name}") for load, response, treatment in contrasts.unreported
        ),
    )
