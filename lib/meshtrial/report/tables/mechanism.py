"""The mechanism behind a difference: system calls and context switches a request, where a study counted them."""

from __future__ import annotations

from meshtrial.records.dataset import StudyData
from meshtrial.records.mechanism import READS, WRITES, ComponentCalls, Mechanism, read_mechanism
from meshtrial.report import wording
from meshtrial.report.markup import ColumnOf, Fragment, Table, join

_MOST = 4
_Counted = tuple[Mechanism, ComponentCalls]
_NOTE = (
    "Counted after the runs, on one fresh deployment of each treatment, by strace: counts of calls, never times. No "
    "interval and no verdict: one deployment has no replicate. What arrives together is read together, so the counts "
    "belong to this rate. Context switches are from the same load without strace."
)


def mechanism(data: StudyData) -> Fragment:
    """A row a treatment and component; nothing where the study counted nothing."""
    found = read_mechanism(data.path)
    if not found:
        return join()
    columns: list[ColumnOf[_Counted]] = [
        ColumnOf("component", lambda row: row[1].component),
        ColumnOf("system calls a request", lambda row: sum(row[1].calls.values()) / row[0].traced, numeric=True),
        ColumnOf("reads", lambda row: row[1].of(READS) / row[0].traced, numeric=True),
        ColumnOf("writes", lambda row: row[1].of(WRITES) / row[0].traced, numeric=True),
        ColumnOf("context switches a request", _switches, numeric=True),
        ColumnOf("most frequent, a request", _most_frequent, wide=True),
    ]
    rows = [(one, component) for one in found for component in one.components]
    groups = [one.treatment for one, _ in rows]
    return Table.of(f"System calls at {found[0].load}", columns, rows, _NOTE, groups=groups).fragment()


def _switches(row: _Counted) -> float | None:
    one, component = row
    return None if component.switches is None else component.switches / one.untraced


def _most_frequent(row: _Counted) -> str:
    one, component = row
    ranked = sorted(component.calls.items(), key=lambda item: (-item[1], item[0]))[:_MOST]
    return ", ".join(f"{name} {wording.number(count / one.traced)}" for name, count in ranked)
