"""One run in detail: its identity and responses, its checks, the use of its components, and its logs."""

from functools import partial

from meshtrial.errors import RecordError, UsageError
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import ComponentUsage, GateResult, Proof, RunRecord
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, badge, facts, join, paragraph, valued
from meshtrial.report.tables.validity import gate_value

LOG_BYTES = 40_000  # a longer log is shown from its end only


def run_facts(data: StudyData, run_id: str, attempt: int = 1) -> Fragment:
    """Describe one run, whether it is valid, and its responses.

    Parameters
    ----------
    data : StudyData
    run_id : str
        As in ``study.runs()``.
    attempt : int, optional
        2 for the repeat of a run that was not valid.
    """
    run = data.find_run(run_id, attempt)
    errors, requests = (sum(getattr(one, name) for one in run.generators) for name in ("errors", "requests"))
    rows: list[tuple[str, object]] = [
        ("treatment", run.treatment),
        ("load", wording.load_text(data.plan.study.load(run.load))),
        (
            "place",
            f"block {run.repetition}, position {run.position}; began {run.started_at[:19].replace('T', ' ')} UTC",
        ),
        (
            "checks",
            "every check passed" if run.valid else "; ".join(run.reasons) or "failed, but no reason was recorded",
        ),
        ("used in the inference", run in data.included_runs()),
        ("deployed in", wording.duration(run.deploy_s)),
        ("requests", f"{wording.count(requests)}, of which {wording.count(errors)} failed"),
        ("versions", ", ".join(f"{name} {text}" for name, text in run.versions.items()) or "none recorded"),
        *([("notes", "; ".join(run.notes))] if run.notes else []),
    ]
    columns: list[Column[str]] = [
        Column("response", wording.short_label),
        Column("value", lambda name: valued(run.responses[name], partial(wording.in_unit, name)), numeric=True),
    ]
    measured = [name for name in run.responses if name in data.plan.study.margins]
    return join(
        facts(f"Run {_name(run)}", ("fact", "this run"), rows).fragment(),
        Table.from_rows("Measured responses", columns, measured).fragment(),
    )


def run_gates(data: StudyData, run_id: str, attempt: int = 1) -> Fragment:
    """Tabulate the checks of load and machine of a run, with values and thresholds; arguments as in `run_facts`."""
    run = data.find_run(run_id, attempt)
    columns: list[Column[GateResult]] = [
        Column("check", lambda gate: gate.name),
        Column("passed", lambda gate: _passed(gate.passed)),
        Column("measured", lambda gate: valued(gate.value, partial(gate_value, gate.name)), numeric=True),
        Column("threshold", lambda gate: valued(gate.threshold, partial(gate_value, gate.name)), numeric=True),
        Column("reason for failure", lambda gate: gate.message, wide=True),
    ]
    table = Table.from_rows(f"Checks of load and machine, run {_name(run)}", columns, run.gates)
    return table.fragment("This run had no check of load and machine.")


def run_proofs(data: StudyData, run_id: str, attempt: int = 1) -> Fragment:
    """Tabulate a run's checks of its treatment, before and after the load; arguments as in `run_facts`."""
    run = data.find_run(run_id, attempt)
    columns: list[Column[Proof]] = [
        Column("check", lambda proof: proof.name),
        Column("passed", lambda proof: _passed(proof.passed)),
        Column("expected", lambda proof: proof.expected, middle=True),
        Column("observed", lambda proof: proof.observed, wide=True),
    ]
    groups = [f"{proof.phase} the load" for proof in run.proofs]
    table = Table.from_rows(f"Checks of the treatment, run {_name(run)}", columns, run.proofs, groups=groups)
    return table.fragment(f"{run.treatment} has no such check: it contains nothing that could be missing.")


def run_resources(data: StudyData, run_id: str, attempt: int = 1) -> Fragment:
    """Tabulate a run's components: CPU, memory, throttling, context switches; arguments as in `run_facts`."""
    run = data.find_run(run_id, attempt)
    requests = run.responses.get("requests", 0.0)
    columns: list[Column[ComponentUsage]] = [
        Column("component", lambda used: Cell(used.component, note=f"{used.count} of them" if used.count > 1 else "")),
        Column("part", lambda used: used.role),
        Column("CPU / cores", lambda used: used.cpu_s / used.window_s if used.window_s > 0 else None, numeric=True),
        Column("CPU per request / µs", lambda used: 1e6 * used.cpu_s / requests if requests else None, numeric=True),
        Column("memory", lambda used: Cell(wording.mebibytes(used.pss_bytes), used.pss_bytes), numeric=True),
        Column("throttled / s", lambda used: used.throttled_s, numeric=True),
        Column("context switches", lambda used: used.switches, numeric=True),
    ]
    note = "Over the measured window. A dash: not available on this machine or cluster."
    return Table.from_rows(f"Resources of run {_name(run)}", columns, run.usage, note).fragment(
        "No component's use was recorded."
    )


def run_log(data: StudyData, run_id: str, name: str = "", attempt: int = 1) -> Fragment:
    """Show one log of a run; of a long log, its end.

    Parameters
    ----------
    data : StudyData
    run_id : str
    name : str, optional
        As in ``study.logs(run_id)``; default: the first log.
    attempt : int, optional

    Raises
    ------
    UsageError
        If the log was not kept.
    """
    run = data.find_run(run_id, attempt)
    try:
        logs = data.logs(run)
    except RecordError as error:
        return paragraph(f"{error}.")
    if not logs:
        return paragraph(f"No log of run {_name(run)} was kept.")
    name = name or next(iter(logs))
    try:
        whole = logs[name].read_bytes()
    except KeyError:
        raise UsageError(f"log {name!r}: was not kept for run {_name(run)}; choose one of {', '.join(logs)}") from None
    except OSError as error:
        raise RecordError(f"{logs[name]}: cannot be read ({error.strerror}); restore it from a backup") from None
    text = whole[-LOG_BYTES:].decode(errors="replace").strip("\n") or "(the log is empty)"
    caption = f"{name} of run {_name(run)}"
    if len(whole) > LOG_BYTES:
        caption += f", its last {wording.count(LOG_BYTES)} of {wording.count(len(whole))} bytes"
    return Fragment("log", caption, text)


def _name(run: RunRecord) -> str:
    return run.run_id + (f", attempt {run.attempt}" if run.attempt > 1 else "")


def _passed(passed: bool) -> Cell:
    return Cell("yes" if passed else "no", html=badge("✓", "yes", "same") if passed else badge("✕", "no", "stopped"))
