"""The runs behind the checks that a report begins with: every check of every attempt, proofs, and failures."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import GateResult, RunRecord
from meshtrial.report import frames, wording
from meshtrial.report.checks import KIND_OF, number_of
from meshtrial.report.markup import Cell, Column, Fragment, Table, bullets, fold, join, passed_of, valued
from meshtrial.report.tables import proofs
from meshtrial.report.tables.failures import failed_requests
from meshtrial.report.tables.places import nodes_of_blocks, places_of_blocks

_SHARES = frozenset({"rate", "late", "errors", "generator CPU", "generator late", "foreign load"})
_OTHERS = "A/A twin, drift and order of exploratory responses"


def validity(data: StudyData) -> Fragment:
    """The runs behind the checks: places, checks of load and machine, failures, proofs, exploratory warnings."""
    unproven = any(not proof.passed for run in data.runs for proof in run.proofs)
    ungated = any(run.failed_gates for run in data.runs)
    codes = {code for code, kind in KIND_OF.items() if kind in ("twin", "drift", "blocks")}
    others = wording.warnings([row for row in frames.verdicts(data) if row.exploratory], codes)
    return join(
        places_of_blocks(data),
        nodes_of_blocks(data),
        _gates(data).folded(_gates_hold(data), opened=ungated),
        failed_requests(data),
        _failed_runs(data),
        proofs.proofs(data).folded(proofs.holds(data), opened=unproven),
        *([fold(_OTHERS, number_of(len(others), "warning"), bullets(others))] if others else []),
    )


def _gates_hold(data: StudyData) -> str:
    """The table of checks about load in a line."""
    names = {gate.name for run in data.runs for gate in run.gates}
    failed = dict.fromkeys(gate.name for run in data.runs for gate in run.failed_gates)
    held = sum(not run.failed_gates for run in data.runs)
    attempts = number_of(len(data.runs), "attempt")
    said = f"{number_of(len(names), 'check')}; {wording.count(held)} of {attempts} passed them all"
    return f"{said}; failed: {wording.listing(list(failed))}" if failed else said


def _gates(data: StudyData) -> Table:
    """One row per check about load, one column per treatment: the worst value seen, and how many attempts failed."""
    grouped: dict[tuple[str, str, str], list[GateResult]] = defaultdict(list)
    attempts: Counter[tuple[str, str]] = Counter()
    valid: Counter[tuple[str, str]] = Counter()
    for run in data.runs:
        attempts[run.load, run.treatment] += 1
        valid[run.load, run.treatment] += run.valid
        for gate in run.gates:
            grouped[run.load, run.treatment, gate.name].append(gate)
    names = ["", *dict.fromkeys(name for _, _, name in grouped)]  # the first row counts whole attempts
    treatments = frames.order(data, {name for _, name in attempts})
    rows = [(load, name) for load in frames.loads(data) for name in names]

    def threshold(row: tuple[str, str]) -> Cell | None:
        found = (gate.threshold for name in treatments for gate in grouped.get((row[0], name, row[1]), ()))
        return valued(next(found, None), partial(gate_value, row[1]))

    def held(treatment: str, row: tuple[str, str]) -> Cell:
        load, name = row
        if not name:
            return passed_of(valid[load, treatment], attempts[load, treatment])
        return _gate_cell(name, grouped.get((load, treatment, name), []))

    columns: list[Column[tuple[str, str]]] = [
        Column("check", lambda row: row[1] or "valid attempts"),
        Column("threshold", threshold, numeric=True),
        *(Column(name, partial(held, name), numeric=True) for name in treatments),
    ]
    note = "Each cell: the worst value of all attempts; where a check failed, how many passed it."
    keys = [f"{load}|{name or 'valid'}" for load, name in rows]
    groups = [load for load, _ in rows] if len(frames.loads(data)) > 1 else ()
    title = "Checks of load and machine, by treatment"
    return Table.of(title, columns, rows, note, keys=keys, groups=groups, show_caption=False)


def gate_value(name: str, value: float) -> str:
    """A check's value or threshold as it is read: shares as percentages."""
    if name in _SHARES:
        return f"{wording.plain(round(100 * value, 2))}{wording.NBSP}%"
    return wording.plain(float(f"{value:.3g}"))


def _gate_cell(name: str, gates: list[GateResult]) -> Cell:
    if not gates:
        return Cell("–")
    failed = [gate for gate in gates if not gate.passed]
    measured = [gate.value for gate in failed or gates if gate.value is not None]
    worst = max(measured, default=None)
    text = "not measured" if worst is None else gate_value(name, worst)
    return passed_of(len(gates) - len(failed), len(gates), text) if failed else Cell(text, worst)


def _failed_runs(data: StudyData) -> Fragment:
    failed = [run for run in data.runs if not run.valid]
    if not failed:
        return join()
    columns: list[Column[RunRecord]] = [
        Column("run", lambda run: run.run_id),
        Column("attempt", lambda run: run.attempt, numeric=True),
        Column("what failed", lambda run: "; ".join(run.reasons) or "no reason recorded", wide=True),
    ]
    keys = [f"{run.run_id}|{run.attempt}" for run in failed]
    table = Table.of("Attempts that failed", columns, failed, keys=keys, show_caption=False)
    return table.folded(f"{len(failed)}, each with its reason", opened=len(failed) <= 6)
