"""Whether the instrument is right: simulated studies, this machine's own A/A tests, and more load generators."""

from collections.abc import Sequence

from meshtrial import stats
from meshtrial.inference import instrument
from meshtrial.inference.instrument import AaStudy, aa_studies
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph

_NOTE = (
    "The same treatment, load and blocks; only the number of generators differs. Equivalent means that the generators "
    "are not the limit. Exploratory, corrected by Benjamini-Hochberg within a treatment and response."
)


def simulation_checks(rows: Sequence[stats.CheckResult]) -> Fragment:
    """Tabulate every simulated check: the observed share of studies, and the share that is required."""
    columns: list[Column[stats.CheckResult]] = [
        Column("check", lambda row: row.check, wide=True),
        Column("simulated situation", lambda row: row.cell, wide=True),
        Column("required", lambda row: f"{row.rule} {row.nominal:.3g}"),
        Column(
            "observed",
            lambda row: Cell(f"{row.observed:.4f}", row.observed, note=f"standard error {row.mc_se:.4f}"),
            numeric=True,
        ),
        Column("studies", lambda row: row.repetitions, numeric=True),
        Column("passed", lambda row: "yes" if row.passed else "NO"),
    ]
    failed = sum(not row.passed for row in rows)
    note = "Three Monte-Carlo standard errors are allowed. " + (f"{failed} do not hold." if failed else "All hold.")
    return Table.from_rows("Simulated studies with known truth", columns, rows, note).fragment()


def aa_table(data: StudyData, size: int = 6) -> Fragment:
    """Tabulate the machine's own A/A studies of ``size`` blocks, cut from the recorded baseline and twin."""
    cuts = aa_studies(data, size)
    columns: list[Column[AaStudy]] = [
        Column("blocks", lambda one: f"{one.blocks[0]} to {one.blocks[-1]}"),
        Column("p", lambda one: Cell(wording.probability(one.p), one.p), numeric=True),
        Column("called different", lambda one: one.called),
    ]
    called = sum(one.called for one in cuts)
    note = f"{called} of {len(cuts)} call a difference where there is none; by chance about one in 32 would."
    nothing = f"Fewer than {size} blocks were recorded, so no A/A study of that size can be cut from them."
    return Table.from_rows(f"A/A studies of {size} blocks on this machine", columns, cuts, note).fragment(nothing)


def generators(data: StudyData) -> Fragment:
    """Tabulate each load with several numbers of generators, or explain that the study has only one number."""
    sweeps = instrument.sweeps(data)
    if not sweeps:
        return paragraph("The study has one number of load generators. Their own checks say whether they were a limit.")

    def median(pair: tuple[str, VerdictRow]) -> Cell:
        row = pair[1]
        after, before = (wording.in_unit(row.response, value) for value in (row.treatment_value, row.baseline_value))
        return Cell(after, row.treatment_value, note=before)

    columns: list[Column[tuple[str, VerdictRow]]] = [
        Column("treatment", lambda row: row[0]),
        Column("response", lambda row: wording.short_label(row[1].response), wide=True),
        Column("generators", lambda row: f"{row[1].treatment} against {row[1].baseline}"),
        Column("median", median, numeric=True),
        Column("effect", lambda row: wording.effect(row[1]), numeric=True),
        Column("interval", lambda row: wording.effect_interval(row[1]), numeric=True),
        Column("verdict", lambda row: wording.verdict_text(row[1])),
    ]
    tables = []
    for sweep in sweeps:
        rows = [
            (treatment.name, row)
            for treatment in data.plan.study.treatments
            for response in data.plan.study.primary
            if not treatment.twin
            for row in instrument.contrasts(data, sweep, treatment.name, response)
        ]
        tables.append(Table.from_rows(f"More generators, {sweep.name}", columns, rows, _NOTE).fragment())
    return join(*tables)
