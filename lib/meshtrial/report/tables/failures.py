"""Failed requests by kind: of all runs, which treatment answered what or nothing; and around restarts under load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph, spread

_NOTE = (
    "Of all runs, the failed ones among them: a treatment that fails is the finding. A number is an HTTP status or "
    "gRPC's name; time-out: no answer within the client's time-out; refused: nothing listened; reset: the connection "
    "broke before the answer; no answer: neither is known. Reconnects are kept connections that broke and were opened "
    "again at once; the load generator silently repeats their request, so they are no failures of a request."
)


_AROUND = (
    "Medians over the runs, and from the least to the most of them. Failed requests are those of the whole run; the "
    "longest silence, the time without an answer on any connection, is that around the restart, or around the same "
    "moment where nothing was restarted. Reconnects are broken connections whose request the load generator repeated "
    "silently."
)


def failed_requests(data: StudyData) -> Fragment:
    """One row per treatment and load that had any; one sentence where no request failed."""
    with_kinds = [run for run in data.runs if run.failures]
    without = [run for run in data.runs if not run.failures and run.responses.get("error_ratio", 0.0) > 0]
    if not with_kinds and not any(map(_reconnects, data.runs)):
        # Records of before failures were kept by kind say how many there were and no more.
        return join() if without or not data.runs else paragraph("No request failed.")
    treatments = frames.order(data, [run.treatment for run in data.runs])
    runs: dict[tuple[str, str], list[RunRecord]] = {
        (name, load): [] for load in frames.loads(data) for name in treatments
    }
    for run in data.runs:
        runs[run.treatment, run.load].append(run)
    columns: list[Column[Sequence[RunRecord]]] = [Column("treatment", lambda mine: mine[0].treatment)]
    if len(frames.loads(data)) > 1:
        columns.append(Column("load", lambda mine: mine[0].load))
    columns += [
        Column("requests", lambda mine: wording.count(_requests(mine)), numeric=True),
        Column("failed / %", lambda mine: wording.number(100 * _failed(mine).total() / _requests(mine)), numeric=True),
    ]
    columns += [Column(kind, partial(_of_kind, kind), numeric=True) for kind, _ in _failed(data.runs).most_common()]
    columns += [
        Column("reconnects", lambda mine: wording.count(sum(map(_reconnects, mine))), numeric=True),
        Column("runs with any", lambda mine: f"{sum(map(_touched, mine))} of {len(mine)}", numeric=True),
    ]
    shown = [mine for mine in runs.values() if any(map(_touched, mine)) and _requests(mine)]
    return Table.of("Failed requests by kind", columns, shown, _NOTE).fragment()


def _of_kind(kind: str, runs: Sequence[RunRecord]) -> str:
    return wording.count(_failed(runs)[kind])


def _requests(runs: Iterable[RunRecord]) -> float:
    return sum(run.responses.get("requests", 0.0) for run in runs)


def _failed(runs: Iterable[RunRecord]) -> Counter[str]:
    return sum((Counter(run.failures) for run in runs), Counter[str]())


def _reconnects(run: RunRecord) -> float:
    return run.responses.get("reconnects", 0.0)


def _touched(run: RunRecord) -> bool:
    return bool(run.failures) or _reconnects(run) > 0


def restarts(data: StudyData) -> Fragment:
    """One row per treatment; one sentence where no run of the study restarted anything."""
    runs = [run for run in data.included_runs() if "failed_requests" in run.responses]
    if not any("restart" in run.extra for run in runs):
        return paragraph("No run that takes part in the inference restarted anything.")
    of = {
        name: [run for run in runs if run.treatment == name] for name in frames.order(data, [r.treatment for r in runs])
    }
    columns: list[Column[list[RunRecord]]] = [
        Column("treatment", lambda mine: mine[0].treatment),
        Column("runs", lambda mine: wording.count(len(mine)), numeric=True),
        Column("restart took", lambda mine: _spread(mine, "restart_s"), numeric=True),
        Column("failed requests", lambda mine: _spread(mine, "failed_requests"), numeric=True),
        Column("of these", _kinds),
        Column("longest silence", lambda mine: _spread(mine, "longest_gap_s"), numeric=True),
        Column("reconnects", lambda mine: _spread(mine, "reconnects"), numeric=True),
    ]
    return Table.of("Restarts under load", columns, of.values(), _AROUND).fragment()


def _kinds(runs: Sequence[RunRecord]) -> str:
    return ", ".join(f"{wording.count(number)} {kind}" for kind, number in _failed(runs).most_common()) or "–"


def _spread(runs: Sequence[RunRecord], response: str) -> Cell | None:
    values = [run.responses[response] for run in runs if response in run.responses]
    return spread(values, partial(wording.in_unit, response))
