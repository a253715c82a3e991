"""What a treatment costs to run: cores and memory per 1000 requests a second, what only a mesh has, system calls.

CPU follows the requests, so cores per 1000 rps carry over to other rates near this one. Memory hardly
does: it is there at any rate, so the memory per 1000 rps is that of this very rate and falls as the rate
rises. Medians over runs; the verdicts on the same numbers stand in the other tables. What it costs in money: `money`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median

from meshtrial.design.responses import PARTS, PATH_ROLES
from meshtrial.inference.rows import Described
from meshtrial.inference.rows import described as by_treatment
from meshtrial.records.dataset import StudyData
from meshtrial.records.mechanism import READS, WRITES, ComponentCalls, Mechanism, read_mechanism
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph, ranged

PER_RPS = 1000.0
_GIB = 2.0**30
_TOTAL = "path_cpu_s_per_request"
_RATE = f"{wording.count(int(PER_RPS))}{wording.NBSP}rps"
_MOST_CALLS = 4
_Counted = tuple[Mechanism, ComponentCalls]
_COUNTED_NOTE = (
    "Counted after the runs, on one fresh deployment of each treatment, by strace: counts of calls, never times. No "
    "interval and no verdict: one deployment has no replicate. What arrives together is read together, so the counts "
    "belong to this rate. Context switches are from the same load without strace."
)
_NOTE = (
    "Cores that 1 000 requests a second keep busy, and PSS of the data plane and the policy server: medians over the "
    "included runs, without the load generator. CPU goes with the requests; memory does not, so the memory per "
    "1 000 rps belongs to this rate alone and falls where more requests share the same proxies."
)


def cost(data: StudyData) -> Fragment:
    """Cores and GiB per 1000 rps by treatment, a table a load."""
    tables = [table for load in frames.loads(data) if (table := _table(data, load)) is not None]
    if not tables:
        return paragraph("No run that takes part in the inference has its CPU recorded.")
    return join(*(table.fragment() for table in tables))


def _table(data: StudyData, load: str) -> Table | None:
    runs = [run for run in data.included_runs() if run.load == load and _TOTAL in run.responses]
    treatments = frames.order(data, [run.treatment for run in runs])
    if not treatments:
        return None
    of = {treatment: [run for run in runs if run.treatment == treatment] for treatment in treatments}
    parts = [role for role in PATH_ROLES if any(_cores(mine, role) is not None for mine in of.values())]
    columns: list[Column[str]] = [
        Column("treatment", str),
        Column("achieved / rps", lambda name: wording.number(_median(of[name], "achieved_rps")), numeric=True),
        *(Column(f"{PARTS[role].label} / cores per {_RATE}", partial(_part, of, role), numeric=True) for role in parts),
        Column("together", lambda name: _four_decimals(_per_rate(of[name], _TOTAL)), numeric=True),
        Column("over the baseline", lambda name: _over(of, data.plan.study.baseline.name, name), numeric=True),
        Column("added memory / GiB", lambda name: _four_decimals(_memory(of[name])), numeric=True),
        Column(f"GiB per {_RATE}", lambda name: _four_decimals(_memory_per_rate(of[name])), numeric=True),
    ]
    return Table.of(f"Cost{frames.at(data, load)}", columns, treatments, _NOTE)


def _four_decimals(value: float | None) -> str:
    return wording.number(value, most=4)


def _part(of: Mapping[str, Sequence[RunRecord]], role: str, treatment: str) -> str:
    return _four_decimals(_cores(of[treatment], role))


def _over(of: Mapping[str, Sequence[RunRecord]], baseline: str, treatment: str) -> str:
    total, base = (_per_rate(of.get(name, ()), _TOTAL) for name in (treatment, baseline))
    return "–" if treatment == baseline or total is None or base is None else wording.signed(total - base, most=4)


def _cores(runs: Sequence[RunRecord], role: str) -> float | None:
    return _per_rate(runs, f"{PARTS[role].key}_cpu_s_per_request")


def _memory(runs: Sequence[RunRecord]) -> float | None:
    """GiB of what the treatment adds: the data plane and the policy server."""
    found = [
        run.responses["data_plane_memory_bytes"] + run.responses.get("policy_memory_bytes", 0.0)
        for run in runs
        if "data_plane_memory_bytes" in run.responses
    ]
    return median(found) / _GIB if found else None


def _memory_per_rate(runs: Sequence[RunRecord]) -> float | None:
    memory, rate = _memory(runs), _median(runs, "achieved_rps")
    return memory / rate * PER_RPS if memory is not None and rate else None


def _median(runs: Sequence[RunRecord], name: str) -> float | None:
    found = [run.responses[name] for run in runs if name in run.responses]
    return median(found) if found else None


def _per_rate(runs: Sequence[RunRecord], name: str) -> float | None:
    value = _median(runs, name)
    return None if value is None else value * PER_RPS


def described(data: StudyData) -> Fragment:
    """A table a load; nothing where every treatment has every part."""
    found = by_treatment(data)
    loads = dict.fromkeys(one.load for one in found)
    return join(*(_only_some_have(data, load, [one for one in found if one.load == load]) for load in loads))


def _only_some_have(data: StudyData, load: str, found: list[Described]) -> Fragment:
    cells = {(one.treatment, one.response.name): one for one in found}
    responses = {one.response.name: one.response for one in found}
    columns: list[Column[str]] = [
        Column("treatment", str),
        *(
            Column(wording.short_label(response.name), partial(_cell, cells, name), numeric=True)
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
    return None if one is None else ranged(one.median, one.low, one.high, partial(wording.in_unit, one.response))


def mechanism(data: StudyData) -> Fragment:
    """One row per treatment and component; nothing where the study counted nothing."""
    found = read_mechanism(data.path)
    if not found:
        return join()
    columns: list[Column[_Counted]] = [
        Column("component", lambda row: row[1].component),
        Column("system calls a request", lambda row: sum(row[1].calls.values()) / row[0].traced, numeric=True),
        Column("reads", lambda row: row[1].of(READS) / row[0].traced, numeric=True),
        Column("writes", lambda row: row[1].of(WRITES) / row[0].traced, numeric=True),
        Column("context switches a request", _switches, numeric=True),
        Column("most frequent, a request", _most_frequent, wide=True),
    ]
    rows = [(one, component) for one in found for component in one.components]
    groups = [one.treatment for one, _ in rows]
    return Table.of(f"System calls at {found[0].load}", columns, rows, _COUNTED_NOTE, groups=groups).fragment()


def _switches(row: _Counted) -> float | None:
    one, component = row
    return None if component.switches is None else component.switches / one.untraced


def _most_frequent(row: _Counted) -> str:
    one, component = row
    ranked = sorted(component.calls.items(), key=lambda item: (-item[1], item[0]))[:_MOST_CALLS]
    return ", ".join(f"{name} {wording.number(count / one.traced)}" for name, count in ranked)
