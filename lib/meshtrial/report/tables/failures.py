"""Failed requests by kind, of all runs: which treatment answered what, and which did not answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.markup import ColumnOf, Fragment, Table, join, paragraph

_NOTE = (
    "Of all runs, the invalid ones among them: a treatment that fails is the finding. A number is an HTTP status or "
    "gRPC's name; time-out: no answer within the client's time-out; refused: nothing listened; reset: the connection "
    "broke before the answer; no answer: neither is known. Reconnects are kept connections that broke and were opened "
    "again at once; the load generator repeats their request in silence, so they are no failures of a request."
)


def failed_requests(data: StudyData) -> Fragment:
    """A row a treatment and load that had any; one sentence where no request failed."""
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
    columns: list[ColumnOf[Sequence[RunRecord]]] = [ColumnOf("treatment", lambda mine: mine[0].treatment)]
    if len(frames.loads(data)) > 1:
        columns.append(ColumnOf("load", lambda mine: mine[0].load))
    columns += [
        ColumnOf("requests", lambda mine: wording.count(_requests(mine)), numeric=True),
        ColumnOf(
            "failed / %", lambda mine: wording.number(100 * _failed(mine).total() / _requests(mine)), numeric=True
        ),
    ]
    columns += [ColumnOf(kind, partial(_of_kind, kind), numeric=True) for kind, _ in _failed(data.runs).most_common()]
    columns += [
        ColumnOf("reconnects", lambda mine: wording.count(sum(map(_reconnects, mine))), numeric=True),
        ColumnOf("runs with any", lambda mine: f"{sum(map(_touched, mine))} of {len(mine)}", numeric=True),
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
