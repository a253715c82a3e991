"""Failed requests by kind: in all runs, around restarts, and during changes under load."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from meshtrial.design.changes import CHANGES, LABELS
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph, spread

_NOTE = (
    "All runs, including failed ones: a treatment that fails is the finding. Numbers are HTTP statuses, names are "
    "gRPC's. Time-out: no response within the client's time-out. Refused: nothing listened. Reset: the connection "
    "broke before the response. No answer: the kind is unknown. Reconnects are kept-alive connections that broke and "
    "were reopened at once. The load generator silently repeats their request, so they are not failed requests."
)
_RESTARTS_NOTE = (
    "Medians over the runs, and the range. Failed requests are those of the whole run. The longest gap is the "
    "longest time without a response on any connection, around the restart or, if nothing was restarted, around the "
    "same moment. Reconnects are broken connections whose request the load generator repeated silently."
)


def failed_requests(data: StudyData) -> Fragment:
    """Tabulate failed requests, one row per treatment and load that has any."""
    with_kinds = [run for run in data.runs if run.failures]
    without = [run for run in data.runs if not run.failures and run.responses.get("error_ratio", 0.0) > 0]
    if not with_kinds and not any(map(_reconnects, data.runs)):
        # Old records hold the number of failures but not their kinds.
        return join() if without or not data.runs else paragraph("No request failed.")
    treatments = frames.order(data, [run.treatment for run in data.runs])
    runs: dict[tuple[str, str], list[RunRecord]] = {
        (name, load): [] for load in frames.loads(data) for name in treatments
    }
    for run in data.runs:
        runs[run.treatment, run.load].append(run)
    columns: list[Column[Sequence[RunRecord]]] = [Column("treatment", lambda runs: runs[0].treatment)]
    if len(frames.loads(data)) > 1:
        columns.append(Column("load", lambda runs: runs[0].load))
    columns += [
        Column("requests", lambda runs: wording.count(_requests(runs)), numeric=True),
        Column("failed / %", lambda runs: wording.number(100 * _failed(runs).total() / _requests(runs)), numeric=True),
    ]
    columns += [Column(kind, partial(_of_kind, kind), numeric=True) for kind, _ in _failed(data.runs).most_common()]
    columns += [
        Column("reconnects", lambda runs: wording.count(sum(map(_reconnects, runs))), numeric=True),
        Column("affected runs", lambda runs: f"{sum(map(_affected, runs))} of {len(runs)}", numeric=True),
    ]
    rows = [group for group in runs.values() if any(map(_affected, group)) and _requests(group)]
    return Table.from_rows("Failed requests by kind", columns, rows, _NOTE).fragment()


def _of_kind(kind: str, runs: Sequence[RunRecord]) -> str:
    return wording.count(_failed(runs)[kind])


def _requests(runs: Iterable[RunRecord]) -> float:
    return sum(run.responses.get("requests", 0.0) for run in runs)


def _failed(runs: Iterable[RunRecord]) -> Counter[str]:
    return sum((Counter(run.failures) for run in runs), Counter[str]())


def _reconnects(run: RunRecord) -> float:
    return run.responses.get("reconnects", 0.0)


def _affected(run: RunRecord) -> bool:
    return bool(run.failures) or _reconnects(run) > 0


def restarts(data: StudyData) -> Fragment:
    """Tabulate restarts under load, one row per treatment."""
    runs = [run for run in data.included_runs() if "failed_requests" in run.responses]
    if not any("restart" in run.extra for run in runs):
        return paragraph("No run used in the inference restarted anything.")
    names = frames.order(data, [run.treatment for run in runs])
    rows = [[run for run in runs if run.treatment == name] for name in names]
    columns: list[Column[list[RunRecord]]] = [
        Column("treatment", lambda runs: runs[0].treatment),
        Column("runs", lambda runs: wording.count(len(runs)), numeric=True),
        Column("restart time", lambda runs: _spread(runs, "restart_s"), numeric=True),
        Column("failed requests", lambda runs: _spread(runs, "failed_requests"), numeric=True),
        Column("failures by kind", _kinds),
        Column("longest gap", lambda runs: _spread(runs, "longest_gap_s"), numeric=True),
        Column("reconnects", lambda runs: _spread(runs, "reconnects"), numeric=True),
    ]
    return Table.from_rows("Restarts under load", columns, rows, _RESTARTS_NOTE).fragment()


def _kinds(runs: Sequence[RunRecord]) -> str:
    return ", ".join(f"{wording.count(number)} {kind}" for kind, number in _failed(runs).most_common()) or "–"


def _spread(runs: Sequence[RunRecord], response: str) -> Cell | None:
    values = [run.responses[response] for run in runs if response in run.responses]
    return spread(values, partial(wording.in_unit, response))


_CHANGES_NOTE = (
    "All changes of all runs, including failed runs: median, and range. First: time to the first response that follows "
    "the change. All: time to the first response after the last one that did not follow it. Never: some request still "
    "did not follow when the next change was made. Not asked: the state before was never in force, so the change does "
    "not count. Refused requests are expected during a denial; other failures are not. If every request meets the same "
    "enforcement point, times are too long by at most one latency plus one interval between two requests, within the "
    "clock error in the last column. With several points, such as workers or replicas, All can be too short."
)


@dataclass(frozen=True)
class _ChangeGroup:
    """All changes of one name, with one treatment at one load."""

    load: str
    name: str
    treatment: str
    changes: Sequence[Mapping[str, Any]]


def changes(data: StudyData) -> Fragment:
    """Tabulate the changes under load, one row per load, treatment and kind of change."""
    runs = [run for run in data.runs if run.extra.get("changes")]
    if not runs:
        return paragraph("No run of this study changed anything under load.")
    grouped: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        for one in run.extra["changes"]:
            grouped[run.load, one["name"], run.treatment].append(one)
    treatments = frames.order(data, [run.treatment for run in runs])
    keys = itertools.product(frames.loads(data), LABELS, treatments)
    rows = [_ChangeGroup(*key, grouped[key]) for key in keys if key in grouped]
    columns: list[Column[_ChangeGroup]] = [
        Column("change", lambda row: LABELS[row.name]),
        Column("treatment", lambda row: row.treatment),
        *([Column("load", lambda row: row.load)] if len(frames.loads(data)) > 1 else []),
        Column("changes", lambda row: wording.count(len(row.changes)), numeric=True),
        Column("first", partial(_propagation, "first_s"), numeric=True),
        Column("all", partial(_propagation, "all_s"), numeric=True),
        Column("never", lambda row: wording.count(_number(row, asked=True)), numeric=True),
        Column("not asked", lambda row: wording.count(_number(row, asked=False)), numeric=True),
        Column("failed requests", _failed_in_changes),
        Column("clock error", lambda row: _ms(max(one["error_s"] for one in row.changes)), numeric=True),
    ]
    return Table.from_rows("Time from a change until requests follow it", columns, rows, _CHANGES_NOTE).fragment()


def _number(row: _ChangeGroup, *, asked: bool) -> int:
    """Return the number of changes without a time that were asked, or not; earlier records do not tell them apart."""
    return sum(one["all_s"] is None and one.get("asked", True) is asked for one in row.changes)


def _propagation(key: str, row: _ChangeGroup) -> Cell | None:
    return spread([float(one[key]) for one in row.changes if one[key] is not None], _ms)


def _ms(seconds: float) -> str:
    return wording.in_unit("change_error_s", seconds)


def _failed_in_changes(row: _ChangeGroup) -> str:
    kinds = sum((Counter(one["failed"]) for one in row.changes), Counter[str]())
    intended = any(step.failing for step in sum(CHANGES.values(), ()) if step.name == row.name)
    text = ", ".join(f"{wording.count(number)} {kind}" for kind, number in kinds.most_common())
    return (text or "–") + (", as requested" if text and intended else "")
