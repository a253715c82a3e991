"""What a treatment costs to run: cores and memory per 1000 requests a second.

CPU follows the requests, so cores per 1000 rps carry over to other rates near this one. Memory hardly
does: it is there at any rate, so the memory per 1000 rps is that of this very rate and falls as the rate
rises. Medians over runs; the verdicts on the same numbers stand in the other tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from meshtrial.design.responses import PARTS, PATH_ROLES
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph

PER_RPS = 1000.0
_GIB = 2.0**30
_RATE = f"{wording.count(int(PER_RPS))}{wording.NBSP}rps"
_NOTE = (
    "Cores that 1 000 requests a second keep busy, and PSS of the data plane and the policy server: medians over the "
    "included runs, without the load generator. CPU goes with the requests; memory does not, so the memory per "
    "1 000 rps belongs to this rate alone and falls where more requests share the same proxies."
)


def cost(data: StudyData) -> Fragment:
    """Cores and GiB per 1000 rps by treatment, a table a load."""
    tables = [_table(data, load) for load in frames.loads(data)]
    found = [table for table in tables if table is not None]
    if not found:
        text = "No run that takes part in the inference has its CPU recorded."
        return Fragment(paragraph(text), text)
    return join(*(table.fragment() for table in found))


def _table(data: StudyData, load: str) -> Table | None:
    runs = [run for run in data.included_runs() if run.load == load and "path_cpu_s_per_request" in run.responses]
    treatments = frames.order(data, [run.treatment for run in runs])
    if not treatments:
        return None
    by_treatment = {treatment: [run for run in runs if run.treatment == treatment] for treatment in treatments}
    base = by_treatment.get(data.plan.study.baseline.name)
    parts = [role for role in PATH_ROLES if any(_cores(mine, role) is not None for mine in by_treatment.values())]
    columns = [Column("treatment"), Column("achieved / rps", numeric=True)]
    columns += [Column(f"{PARTS[role].label} / cores per {_RATE}", numeric=True) for role in parts]
    columns += [Column("together", numeric=True), Column("over the baseline", numeric=True)]
    columns += [Column("added memory / GiB", numeric=True), Column(f"GiB per {_RATE}", numeric=True)]
    rows = [_row(treatment, by_treatment[treatment], base, parts) for treatment in treatments]
    return Table("Cost" + (f" at {load}" if len(frames.loads(data)) > 1 else ""), columns, rows, _NOTE)


def _row(
    treatment: str, mine: Sequence[RunRecord], base: Sequence[RunRecord] | None, parts: Sequence[str]
) -> list[Cell]:
    rate = _median(mine, "achieved_rps")
    total = _times(_median(mine, "path_cpu_s_per_request"), PER_RPS)
    over = None if base is None else _times(_median(base, "path_cpu_s_per_request"), PER_RPS)
    memory = _memory(mine)
    added = None if total is None or over is None else total - over
    return [
        Cell(treatment),
        Cell(wording.number(rate)),
        *(Cell(wording.number(_cores(mine, name), most=4)) for name in parts),
        Cell(wording.number(total, most=4)),
        Cell(wording.signed(added, most=4) if mine is not base else "–"),
        Cell(wording.number(memory, most=4)),
        Cell(wording.number(memory / rate * PER_RPS if memory is not None and rate else None, most=4)),
    ]


def _cores(runs: Sequence[RunRecord], role: str) -> float | None:
    return _times(_median(runs, f"{PARTS[role].key}_cpu_s_per_request"), PER_RPS)


def _memory(runs: Sequence[RunRecord]) -> float | None:
    """GiB of what the treatment adds: the data plane and the policy server."""
    found = [
        run.responses["data_plane_memory_bytes"] + run.responses.get("policy_memory_bytes", 0.0)
        for run in runs
        if "data_plane_memory_bytes" in run.responses
    ]
    return median(found) / _GIB if found else None


def _median(runs: Sequence[RunRecord], name: str) -> float | None:
    found = [run.responses[name] for run in runs if name in run.responses]
    return median(found) if found else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
