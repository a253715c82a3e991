"""Failed requests by kind, of all runs: which treatment answered what, and which did not answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, paragraph

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
    broke = [run for run in data.runs if run.responses.get("reconnects", 0.0) > 0]
    if not with_kinds and not broke:
        # Records of before failures were kept by kind say how many there were and no more.
        text = "" if without or not data.runs else "No request failed."
        return Fragment(paragraph(text) if text else Markup(), text)
    total = Counter[str]()
    for run in with_kinds:
        total.update(run.failures)
    kinds = [kind for kind, _ in total.most_common()]
    several = len(frames.loads(data)) > 1
    columns = [Column("treatment"), *([Column("load")] if several else []), Column("requests", numeric=True)]
    columns += [Column("failed / %", numeric=True), *(Column(kind, numeric=True) for kind in kinds)]
    columns += [Column("reconnects", numeric=True), Column("runs with any", numeric=True)]
    rows = []
    for load in frames.loads(data):
        for treatment in frames.order(data, [run.treatment for run in data.runs]):
            mine = [run for run in data.runs if run.treatment == treatment and run.load == load]
            row = _row(mine, kinds)
            if row:
                rows.append([Cell(treatment), *([Cell(load)] if several else []), *row])
    return Table("Failed requests by kind", columns, rows, _NOTE).fragment()


def _row(runs: Sequence[RunRecord], kinds: Sequence[str]) -> list[Cell]:
    requests = sum(run.responses.get("requests", 0.0) for run in runs)
    failed = Counter[str]()
    for run in runs:
        failed.update(run.failures)
    broke = sum(run.responses.get("reconnects", 0.0) for run in runs)
    touched = sum(bool(run.failures) or run.responses.get("reconnects", 0.0) > 0 for run in runs)
    if not touched or not requests:
        return []
    return [
        Cell(wording.count(int(requests))),
        Cell(wording.number(100 * sum(failed.values()) / requests)),
        *(Cell(wording.count(failed[kind])) for kind in kinds),
        Cell(wording.count(int(broke))),
        Cell(f"{touched} of {len(runs)}"),
    ]
