"""Failed requests by kind: in all runs, around restarts, and during changes under load."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
    if not any(map(_affected, data.runs)):
        # Old records hold the number of failures but not their kinds.
        uncounted = any(run.responses.get("error_ratio", 0.0) > 0 for run in data.runs)
        return join() if uncounted or not data.runs else paragraph("No request failed.")
    treatments, loads = frames.order(data, [run.treatment for run in data.runs]), frames.loads(data)
    groups: dict[tuple[str, str], list[RunRecord]] = {(name, load): [] for load in loads for name in treatments}
    for run in data.runs:
        groups[run.treatment, run.load].append(run)

    def of_kind(kind: str, runs: Sequence[RunRecord]) -> str:
        return wording.count(_failed(runs)[kind])

    columns: list[Column[Sequence[RunRecord]]] = [
        Column("treatment", lambda runs: runs[0].treatment),
        *([Column("load", lambda runs: runs[0].load)] if len(loads) > 1 else []),
        Column("requests", lambda runs: wording.count(_requests(runs)), numeric=True),
        Column("failed / %", lambda runs: wording.number(100 * _failed(runs).total() / _requests(runs)), numeric=True),
        *(Column(kind, partial(of_kind, kind), numeric=True) for kind, _ in _failed(data.runs).most_common()),
        Column(
            "reconnects",
            lambda runs: wording.count(sum(run.responses.get("reconnects", 0.0) for run in runs)),
            numeric=True,
        ),
        Column("affected runs", lambda runs: f"{sum(map(_affected, runs))} of {len(runs)}", numeric=True),
    ]
    rows = [group for group in groups.values() if any(map(_affected, group)) and _requests(group)]
    return Table.from_rows("Failed requests by kind", columns, rows, _NOTE).fragment()


def _requests(runs: Iterable[RunRecord]) -> float:
    return sum(run.responses.get("requests", 0.0) for run in runs)


def _failed(runs: Iterable[RunRecord]) -> Counter[str]:
    return sum((Counter(run.failures) for run in runs), Counter[str]())


def _by_kind(failed: Counter[str]) -> str:
    return ", ".join(f"{wording.count(number)} {kind}" for kind, number in failed.most_common()) or "–"


def _affected(run: RunRecord) -> bool:
    return bool(run.failures) or run.responses.get("reconnects", 0.0) > 0


def restarts(data: StudyData) -> Fragment:
    """Tabulate restarts under load, one row per treatment."""
    runs = [run for run in data.included_runs() if "failed_requests" in run.responses]
    if not any("restart" in run.extra for run in runs):
        return paragraph("No run used in the inference restarted anything.")

    def typical(response: str, runs: Sequence[RunRecord]) -> Cell | None:
        values = [run.responses[response] for run in runs if response in run.responses]
        return spread(values, partial(wording.in_unit, response))

    columns: list[Column[Sequence[RunRecord]]] = [
        Column("treatment", lambda runs: runs[0].treatment),
        Column("runs", lambda runs: wording.count(len(runs)), numeric=True),
        Column("restart time", partial(typical, "restart_s"), numeric=True),
        Column("failed requests", partial(typical, "failed_requests"), numeric=True),
        Column("failures by kind", lambda runs: _by_kind(_failed(runs))),
        Column("longest gap", partial(typical, "longest_gap_s"), numeric=True),
        Column("reconnects", partial(typical, "reconnects"), numeric=True),
    ]
    names = frames.order(data, [run.treatment for run in runs])
    rows = [[run for run in runs if run.treatment == name] for name in names]
    return Table.from_rows("Restarts under load", columns, rows, _RESTARTS_NOTE).fragment()


_CHANGES_NOTE = (
    "All changes of all runs, including failed runs: median, and range. First: time to the first response that follows "
    "the change. All: time to the first response after the last one that did not follow it. Never: some request still "
    "did not follow when the next change was made. Not asked: the state before was never in force, so the change does "
    "not count. Refused requests are expected during a denial; other failures are not. If every request meets the same "
    "enforcement point, times are too long by at most one latency plus one interval between two requests, within the "
    "clock error in the last column. With several points, such as workers or replicas, All can be too short."
)


# Load, kind and treatment of changes, and the changes.
_Changes = tuple[str, str, str, Sequence[Mapping[str, Any]]]


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
    rows: list[_Changes] = [(*key, grouped[key]) for key in keys if key in grouped]

    def untimed(row: _Changes, *, asked: bool) -> str:
        """Return how many changes without a time were asked, or not; earlier records do not tell them apart."""
        return wording.count(sum(one["all_s"] is None and one.get("asked", True) is asked for one in row[3]))

    def propagation(key: str, row: _Changes) -> Cell | None:
        return spread([float(one[key]) for one in row[3] if one[key] is not None], _ms)

    def failed(row: _Changes) -> str:
        kinds = sum((Counter(one["failed"]) for one in row[3]), Counter[str]())
        intended = any(step.failing for step in sum(CHANGES.values(), ()) if step.name == row[1])
        return _by_kind(kinds) + (", as requested" if kinds and intended else "")

    columns: list[Column[_Changes]] = [
        Column("change", lambda row: LABELS[row[1]]),
        Column("treatment", lambda row: row[2]),
        *([Column("load", lambda row: row[0])] if len(frames.loads(data)) > 1 else []),
        Column("changes", lambda row: wording.count(len(row[3])), numeric=True),
        Column("first", partial(propagation, "first_s"), numeric=True),
        Column("all", partial(propagation, "all_s"), numeric=True),
        Column("never", lambda row: untimed(row, asked=True), numeric=True),
        Column("not asked", lambda row: untimed(row, asked=False), numeric=True),
        Column("failed requests", failed),
        Column("clock error", lambda row: _ms(max(one["error_s"] for one in row[3])), numeric=True),
    ]
    return Table.from_rows("Time from a change until requests follow it", columns, rows, _CHANGES_NOTE).fragment()


def _ms(seconds: float) -> str:
    return wording.in_unit("change_error_s", seconds)
