"""One run looked into: what it was, its gates, its proofs, what its components used, and its logs."""

from __future__ import annotations

from meshtrial.errors import RecordError, UsageError
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, badge, joined, paragraph, part
from meshtrial.report.tables.validity import gate_value

LOG_BYTES = 40_000  # the end of a longer log is what one looks for


def run_facts(data: StudyData, run_id: str, attempt: int = 1) -> Fragment:
    """What a run was, whether it held, and its responses.

    Parameters
    ----------
    data : StudyData
    run_id : str
        As in ``study.runs()``.
    attempt : int, optional
        2 for the repeat of a run that was not valid.
    """
    run = data.find_run(run_id, attempt)
    included = any((one.run_id, one.attempt) == (run_id, attempt) for one in data.included_runs())
    load = data.plan.study.load(run.load)
    held = "every gate and proof passed" if run.valid else "; ".join(run.reasons) or "no reason was recorded"
    errors, requests = (sum(getattr(one, name) for one in run.generators) for name in ("errors", "requests"))
    facts = [
        ("treatment", run.treatment),
        ("load", wording.load_text(load)),
        (
            "place",
            f"block {run.repetition}, position {run.position}; began {run.started_at[:19].replace('T', ' ')} UTC",
        ),
        ("held", held),
        ("in the inference", "yes" if included else "no"),
        ("deployed in", wording.duration(run.deploy_s)),
        ("requests", f"{wording.count(requests)}, of which {wording.count(errors)} failed"),
        ("versions", ", ".join(f"{name} {text}" for name, text in run.versions.items()) or "none recorded"),
        *([("notes", "; ".join(run.notes))] if run.notes else []),
    ]
    first = Table(
        f"Run {_named(run)}", [Column("what"), Column("this run", wide=True)], [[Cell(a), Cell(b)] for a, b in facts]
    )
    measured = [name for name in run.responses if name in data.plan.study.margins]
    rows = [[Cell(wording.short_label(name)), _measured(run, name)] for name in measured]
    second = Table("What it measured", [Column("response"), Column("value", numeric=True)], rows)
    return Fragment(joined([first.to_html(), second.to_html()]), f"{first.to_text()}\n\n{second.to_text()}")


def _measured(run: RunRecord, name: str) -> Cell:
    return Cell(wording.in_unit(name, run.responses[name]), run.responses[name])


def run_gates(data: StudyData, run_id: str, attempt: int = 1) -> Fragment:
    """A row a gate of one run: the measured value against its threshold.

    Parameters
    ----------
    data : StudyData
    run_id : str
    attempt : int, optional
    """
    run = data.find_run(run_id, attempt)
    rows = [
        [
            Cell(gate.name),
            _passed(gate.passed),
            Cell("–" if gate.value is None else gate_value(gate.name, gate.value), gate.value),
            Cell(gate_value(gate.name, gate.threshold), gate.threshold),
            Cell(gate.message),
        ]
        for gate in run.gates
    ]
    columns = [Column("gate"), Column("passed"), Column("measured", numeric=True), Column("allowed", numeric=True)]
    columns.append(Column("why it failed", wide=True))
    return _or(Table(f"Gates of run {_named(run)}", columns, rows), "This run was held to no gate.")


def run_proofs(data: StudyData, run_id: str, attempt: int = 1) -> Fragment:
    """A row a proof of one run, before and after its load: what was expected, and what was seen.

    Parameters
    ----------
    data : StudyData
    run_id : str
    attempt : int, optional
    """
    run = data.find_run(run_id, attempt)
    rows = [
        [Cell(proof.name), _passed(proof.passed), Cell(proof.expected), Cell(proof.observed)] for proof in run.proofs
    ]
    columns = [Column("proof"), Column("passed"), Column("expected", middle=True), Column("observed", wide=True)]
    groups = [f"{proof.phase} the load" for proof in run.proofs]
    table = Table(f"Proofs of run {_named(run)}", columns, rows, groups=groups)
    return _or(table, f"{run.treatment} has no proof: there is nothing in it that could be absent.")


def run_resources(data: StudyData, run_id: str, attempt: int = 1) -> Fragment:
    """A row a component of one run: CPU, memory, throttling, context switches.

    Parameters
    ----------
    data : StudyData
    run_id : str
    attempt : int, optional
    """
    run = data.find_run(run_id, attempt)
    requests = run.responses.get("requests", 0.0)
    rows = [
        [
            Cell(used.component, note=f"{used.count} of them" if used.count > 1 else ""),
            Cell(used.role),
            _number(used.cpu_s / used.window_s if used.window_s > 0 else None),
            _number(1e6 * used.cpu_s / requests if requests else None),
            Cell(wording.mebibytes(used.pss_bytes), used.pss_bytes),
            _number(used.throttled_s),
            Cell("–" if used.switches is None else wording.count(used.switches), used.switches),
        ]
        for used in run.usage
    ]
    heads = ("CPU / cores", "CPU a request / µs", "memory", "throttled / s", "context switches")
    columns = [Column("component"), Column("part"), *(Column(head, numeric=True) for head in heads)]
    note = "Over the measured window. A dash: this machine or cluster does not tell."
    return _or(Table(f"Resources of run {_named(run)}", columns, rows, note), "No component's use was recorded.")


def run_log(data: StudyData, run_id: str, name: str = "", attempt: int = 1) -> Fragment:
    """One log that was kept of a run; of a long one its end.

    Parameters
    ----------
    data : StudyData
    run_id : str
    name : str, optional
        As in ``study.logs(run_id)``; the first where it is left out.
    attempt : int, optional

    Raises
    ------
    UsageError
        For a log that was not kept.
    """
    run = data.find_run(run_id, attempt)
    try:
        logs = data.logs(run)
    except RecordError as error:
        return Fragment(paragraph(text := f"{error}."), text)
    if not logs:
        return Fragment(paragraph(text := f"No log was kept of run {_named(run)}."), text)
    name = name or next(iter(logs))
    if name not in logs:
        raise UsageError(f"log {name!r}: was not kept of run {_named(run)}; there are {', '.join(logs)}")
    try:
        whole = logs[name].read_bytes()
    except OSError as error:
        raise RecordError(f"{logs[name]}: cannot be read ({error.strerror}); restore it from a backup") from None
    text = whole[-LOG_BYTES:].decode(errors="replace").strip("\n") or "(nothing was written to it)"
    cut = (
        f", its last {wording.count(LOG_BYTES)} bytes of {wording.count(len(whole))}" if len(whole) > LOG_BYTES else ""
    )
    caption = f"{name} of run {_named(run)}{cut}"
    return Fragment(part("log", caption, text), f"{caption}\n{text}")


def _named(run: RunRecord) -> str:
    return run.run_id + (f", attempt {run.attempt}" if run.attempt > 1 else "")


def _passed(passed: bool) -> Cell:
    return Cell("yes" if passed else "no", html=badge("✓", "yes", "same") if passed else badge("✕", "no", "stopped"))


def _number(value: float | None) -> Cell:
    return Cell(wording.number(value), value)


def _or(table: Table, nothing: str) -> Fragment:
    return table.fragment() if table.rows else Fragment(paragraph(nothing), nothing)
