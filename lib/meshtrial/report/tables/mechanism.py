"""The mechanism behind a difference: system calls and context switches a request, where a study counted them."""

from __future__ import annotations

from markupsafe import Markup

from meshtrial.records.dataset import StudyData
from meshtrial.records.mechanism import READS, WRITES, ComponentCalls, Mechanism, read_mechanism
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table

_MOST = 4
_NOTE = (
    "Counted after the runs, on one fresh deployment of each treatment, by strace: counts of calls, never times. No "
    "interval and no verdict: one deployment has no replicate. What arrives together is read together, so the counts "
    "belong to this rate. Context switches are from the same load without strace."
)


def mechanism(data: StudyData) -> Fragment:
    """A row a treatment and component; nothing where the study counted nothing."""
    found = read_mechanism(data.path)
    if not found:
        return Fragment(Markup(), "")
    columns = [
        Column("component"),
        Column("system calls a request", numeric=True),
        Column("reads", numeric=True),
        Column("writes", numeric=True),
        Column("context switches a request", numeric=True),
        Column("most frequent, a request", wide=True),
    ]
    rows = [_row(one, component) for one in found for component in one.components]
    groups = [one.treatment for one in found for _ in one.components]
    return Table(f"System calls at {found[0].load}", columns, rows, _NOTE, groups=groups).fragment()


def _row(one: Mechanism, component: ComponentCalls) -> list[Cell]:
    ranked = sorted(component.calls.items(), key=lambda item: (-item[1], item[0]))[:_MOST]
    switches = None if component.switches is None else component.switches / one.untraced
    return [
        Cell(component.component),
        _each(sum(component.calls.values()) / one.traced),
        _each(component.of(READS) / one.traced),
        _each(component.of(WRITES) / one.traced),
        _each(switches),
        Cell(", ".join(f"{name} {wording.number(count / one.traced)}" for name, count in ranked)),
    ]


def _each(value: float | None) -> Cell:
    return Cell(wording.number(value), value)
