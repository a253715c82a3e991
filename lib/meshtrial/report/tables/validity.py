"""Whether the measurement can be trusted: checks of the runs, the A/A twin, drift, and what was excluded."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial

import polars as pl

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import GateResult, RunRecord
from meshtrial.records.tables import is_result
from meshtrial.report import frames, wording
from meshtrial.report.markup import (
    Cell,
    Column,
    Fragment,
    Table,
    box,
    bullets,
    fold,
    heading,
    join,
    paragraph,
    passed_of,
    valued,
)
from meshtrial.report.tables import proofs
from meshtrial.report.tables.failures import failed_requests
from meshtrial.report.tables.headline import twin_called, twin_sentences
from meshtrial.report.tables.places import nodes_of_blocks, places_of_blocks
from meshtrial.vocabulary import NO_TWIN

# Codes of warnings that speak of the machine's course rather than of one contrast.
_SHARES = frozenset({"rate", "late", "errors", "generator CPU", "generator late", "foreign load"})
_OF_MACHINE = frozenset({"generator CPU", "generator late", "foreign load"})
# Less is not worth a sentence: a run bears 5 % of late sends, and a short theft makes only some sends late.
_STOLEN = 0.02
_OTHERS = "Drift and order of exploratory responses"
_COURSE = (
    *("drift", "autocorrelation", "carry-over", "dependent-blocks", "position", "warm-up", "modes", "baseline-modes"),
    *("aa-differs", "noise-floor", NO_TWIN, "places-differ"),
)


def validity(data: StudyData) -> Fragment:
    """Everything that could make a verdict wrong, failures first."""
    summary = [*course_of_runs(data), *twin_sentences(data)]
    gone = excluded(data)
    unproven = any(not proof.passed for run in data.runs for proof in run.proofs)
    ungated = any(not gate.passed for run in data.runs for gate in run.gates)
    warnings, others = _drift_warnings(data, primary=True), _drift_warnings(data, primary=False)
    quiet = paragraph("No warning of drift, order or carry-over was raised for a primary response.")
    return join(
        box(bullets(summary), alarm=bool(twin_called(data) or gone)),
        *([heading("What was excluded, and why"), bullets(gone)] if gone else []),
        places_of_blocks(data),
        nodes_of_blocks(data),
        _gates(data).folded(_gates_hold(data), opened=ungated),
        failed_requests(data),
        _failed_runs(data),
        proofs.proofs(data).folded(proofs.holds(data), opened=unproven),
        heading("Drift and order"),
        bullets(warnings) if warnings else quiet,
        *([fold(_OTHERS, _times(len(others), "warning"), bullets(others))] if others else []),
    )


def _gates_hold(data: StudyData) -> str:
    """The table of checks about load in a line."""
    gates = [gate for run in data.runs for gate in run.gates]
    names = dict.fromkeys(gate.name for gate in gates)
    failed = dict.fromkeys(gate.name for gate in gates if not gate.passed)
    held = sum(all(gate.passed for gate in run.gates) for run in data.runs)
    attempts = _times(len(data.runs), "attempt")
    said = f"{_times(len(names), 'check')}; {wording.count(held)} of {attempts} passed them all"
    return f"{said}; failed: {wording.listing(list(failed))}" if failed else said


def course_of_runs(data: StudyData) -> list[str]:
    """How many runs were made and failed, why they mostly did, and what the machine's host took."""
    runs = data.runs
    failed = [run for run in runs if not run.valid]
    mended = {run.run_id for run in failed} & {run.run_id for run in runs if run.valid}
    planned = len(data.plan.runs)
    done = len({run.run_id for run in runs})
    lines = [f"{wording.count(done)} of {wording.count(planned)} planned runs were made."]
    if failed:
        lines.append(
            f"{_times(len(failed), 'attempt')} failed a check; {_times(len(mended), 'run')} held when "
            "repeated inside the block."
        )
        if results := sum(is_result(data.plan, run) for run in failed):
            lines.append(
                f"{_times(results, 'failure')} may be the treatment's own (rate, late sends, errors) and "
                f"{'is a result' if results == 1 else 'are results'}: not repeated, and ranked behind every other "
                "latency of the block."
            )
    else:
        lines.append("Every run passed all checks at the first attempt.")
    if done < planned:
        lines.append(f"The plan is not finished: {wording.count(planned - done)} runs are missing.")
    return [*lines, *filter(None, (_mostly(failed), _stolen(data.runs)))]


def _times(count: int, what: str) -> str:
    return f"{wording.count(count)} {what}{'s' * (count != 1)}"


def _mostly(failed: list[RunRecord]) -> str:
    """Checks that fail mostly for one treatment say something about that treatment, those of the machine do not."""
    failed = [run for run in failed if not any(gate.name in _OF_MACHINE and not gate.passed for gate in run.gates)]
    if len(failed) < 2:
        return ""
    treatment, count = Counter(run.treatment for run in failed).most_common(1)[0]
    if 2 * count <= len(failed):
        return ""
    return (
        f"The failures are mostly {treatment}'s: {count} of {len(failed)}. This says something about the treatment, "
        "not about the machine."
    )


def _stolen(runs: Sequence[RunRecord]) -> str:
    """Time that a virtual machine's host gave to others, where it is enough to spoil runs."""
    told = [(run.valid, run.responses["machine_stolen"]) for run in runs if "machine_stolen" in run.responses]
    worst = max((share for _, share in told), default=0.0)
    if worst < _STOLEN:
        return ""
    medians = [
        f"{wording.in_unit('machine_stolen', statistics.median(shares))} {where}"
        for valid, where in ((True, "in the attempts that held"), (False, "in those that failed"))
        if (shares := [share for held, share in told if held == valid])
    ]
    most = wording.in_unit("machine_stolen", worst)
    return (
        f"The machine's host took up to {most} of the CPU time while a run was measured "
        f"(median {', '.join(medians)}): noise of the machine, whatever the treatment."
    )


def excluded(data: StudyData) -> list[str]:
    """Blocks and treatments that are excluded, each with its reason in words."""
    found = []
    by_run = {(run.run_id, run.attempt): run for run in data.runs}
    for load in frames.loads(data):
        where = f", {load}" if len(frames.loads(data)) > 1 else ""
        part = data.table.filter(pl.col("load") == load)
        kept_blocks = set(part.filter(pl.col("included"))["block"].to_list())
        kept_treatments = set(part.filter(pl.col("included"))["treatment"].to_list())
        last = part.select("run_id", "treatment", "block", "attempt").unique().sort("attempt")
        final = {(row[1], row[2]): by_run.get((row[0], row[3])) for row in last.iter_rows()}
        for treatment in frames.order(data, {treatment for treatment, _ in final}):
            bad = [run for (name, _), run in final.items() if name == treatment and run is not None and not run.valid]
            if kept_blocks and treatment not in kept_treatments and bad:
                why = _reasons(bad)
                found.append(f"{treatment}{where}: excluded as a whole, {_times(len(bad), 'run')} failed. {why}")
        for block in sorted({block for _, block in final} - kept_blocks):
            bad = [
                run
                for (treatment, number), run in final.items()
                if number == block
                and run is not None
                and not is_result(data.plan, run)
                and (treatment in kept_treatments or not kept_blocks)
            ]
            planned = {run.treatment for run in data.plan.runs if run.load == load and run.repetition == block}
            missing = sorted(planned - {treatment for treatment, number in final if number == block})
            why = _reasons(bad) or (f"not run: {', '.join(missing)}" if missing else "no reason recorded")
            found.append(f"Block {block}{where}, for every treatment. {why}")
    return found


def _reasons(runs: list[RunRecord]) -> str:
    counted = Counter(f"{run.treatment}: {reason}" for run in runs for reason in run.reasons)
    shown = [f"{text}" + (f" ({count} runs)" if count > 1 else "") for text, count in counted.most_common(6)]
    return "; ".join(shown) + ("." if shown else "")


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


def _drift_warnings(data: StudyData, *, primary: bool) -> list[str]:
    rows = [row for row in frames.verdicts(data) if (row.response in data.plan.study.primary) == primary]
    return wording.warnings(rows, _COURSE)
