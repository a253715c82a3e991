"""What was changed under load, until when requests obeyed it, and what failed meanwhile."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from meshtrial.design.changes import CHANGES, LABELS
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, paragraph, spread

_NOTE = (
    "Of every change of every run, failed ones too: the median, and from the least to the most. First: until an "
    "answer obeyed; all: until one did behind the last that did otherwise. Never: some request still did otherwise "
    "when the next change was made. Refusals are what a denial is for; what fails of the others is "
    "nobody's wish. The moment of a change is known to what is said of it, either time besides to an interval between "
    "two requests and a latency."
)


@dataclass(frozen=True)
class _Changed:
    """All changes of one name, treatment and load."""

    load: str
    name: str
    treatment: str
    made: Sequence[Mapping[str, Any]]


def changes(data: StudyData) -> Fragment:
    """One row per load, treatment and kind of change; one sentence where nothing was changed."""
    runs = [run for run in data.runs if run.extra.get("changes")]
    if not runs:
        return paragraph("No run of this study changed anything under load.")
    made: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        for one in run.extra["changes"]:
            made[run.load, one["name"], run.treatment].append(one)
    treatments = frames.order(data, [run.treatment for run in runs])
    places = itertools.product(frames.loads(data), LABELS, treatments)
    rows = [_Changed(*place, made[place]) for place in places if place in made]
    columns: list[Column[_Changed]] = [
        Column("change", lambda row: LABELS[row.name]),
        Column("treatment", lambda row: row.treatment),
        *([Column("load", lambda row: row.load)] if len(frames.loads(data)) > 1 else []),
        Column("changes", lambda row: wording.count(len(row.made)), numeric=True),
        Column("first", partial(_spread, "first_s"), numeric=True),
        Column("all", partial(_spread, "all_s"), numeric=True),
        Column("never", lambda row: wording.count(sum(one["all_s"] is None for one in row.made)), numeric=True),
        Column("refused or failed", _failed),
        Column("moment known to", lambda row: _ms(max(one["error_s"] for one in row.made)), numeric=True),
    ]
    return Table.of("From a change until requests obey it", columns, rows, _NOTE).fragment()


def _spread(which: str, row: _Changed) -> Cell | None:
    return spread([float(one[which]) for one in row.made if one[which] is not None], _ms)


def _ms(seconds: float) -> str:
    return wording.in_unit("change_error_s", seconds)


def _failed(row: _Changed) -> str:
    kinds = sum((Counter(one["failed"]) for one in row.made), Counter[str]())
    meant = any(step.failing for step in sum(CHANGES.values(), ()) if step.name == row.name)
    said = ", ".join(f"{wording.count(number)} {kind}" for kind, number in kinds.most_common())
    return (said or "–") + (", as asked for" if said and meant else "")
