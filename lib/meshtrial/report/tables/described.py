"""What only some treatments have, the control plane of a mesh above all: medians with intervals, by treatment."""

from __future__ import annotations

from functools import partial

from meshtrial.inference.described import Described
from meshtrial.inference.described import described as by_treatment
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, ColumnOf, Fragment, Table, join


def described(data: StudyData) -> Fragment:
    """A table a load; nothing where every treatment has every part."""
    found = by_treatment(data)
    return join(*(_table(data, load, [one for one in found if one.load == load]) for load in _loads(found)))


def _loads(found: tuple[Described, ...]) -> list[str]:
    return list(dict.fromkeys(one.load for one in found))


def _table(data: StudyData, load: str, found: list[Described]) -> Fragment:
    cells = {(one.treatment, one.response.name): one for one in found}
    responses = {one.response.name: one.response for one in found}
    columns: list[ColumnOf[str]] = [
        ColumnOf("treatment", str),
        *(
            ColumnOf(wording.short_label(response.name), partial(_cell, cells, name), numeric=True)
            for name, response in responses.items()
        ),
    ]
    least = min(one.confidence for one in found)
    note = (
        f"{data.plan.study.baseline.name} has no such part, so there is nothing to compare with: medians over the "
        f"included runs, below them intervals of the median by order statistics (at {wording.percent(least)} and "
        "more)."
    )
    names = frames.order(data, [one.treatment for one in found])
    return Table.of(f"What only a mesh has{frames.at(data, load)}", columns, names, note).fragment()


def _cell(cells: dict[tuple[str, str], Described], response: str, treatment: str) -> Cell | None:
    one = cells.get((treatment, response))
    if one is None:
        return None
    shown = wording.in_unit(one.response, one.median)
    ends = (wording.in_unit(one.response, end) for end in (one.low, one.high))
    return Cell(shown, one.median, note=" to ".join(ends))
