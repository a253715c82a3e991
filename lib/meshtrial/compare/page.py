"""The comparison as one offline page, made like a study's report."""

from pathlib import Path

from matplotlib.figure import Figure as Canvas

from meshtrial.compare.analysis import Outcome
from meshtrial.compare.runs import Run
from meshtrial.compare.text import contrasts, method_sentence, notes, title
from meshtrial.design.responses import Response
from meshtrial.lazy import pl
from meshtrial.report import Fragment, sheet, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.forest import forest_of
from meshtrial.report.markup import Cell, Column, Table, bullets, join, paragraph
from meshtrial.report.pages import Section, write_page
from meshtrial.report.sheet import strip
from meshtrial.report.tables.verdicts import contrast_tables


def write(path: Path, outcome: Outcome, command: str) -> None:
    """Write the page, with the command that made it."""
    sections = (
        Section("", (limits(outcome),)),
        Section("Verdicts", (verdicts(outcome), ratios(outcome))),
        Section("Every run", tuple(every_run(outcome, metric) for metric in outcome.metrics)),
        Section("Warnings, method and limits", (warnings(outcome),)),
        Section("Provenance", (provenance(outcome, command),)),
    )
    write_page(path, title(outcome), sections)


def limits(outcome: Outcome) -> Fragment:
    """Return sentences on the smallest possible p."""
    return bullets(outcome.limits)


def verdicts(outcome: Outcome) -> Fragment:
    """Return tables of all contrasts: verdict, change, added, values, margin."""
    note = "Medians over the runs; the change is the Hodges-Lehmann estimate, so it may differ from their quotient."
    return join(*contrast_tables(contrasts(outcome), note))


def ratios(outcome: Outcome) -> Figure:
    """Draw the ratio to the baseline with its interval and margin, one line per contrast."""
    return forest_of(contrasts(outcome))


def every_run(outcome: Outcome, metric: Response) -> Figure:
    """Draw one metric of every run, one line per treatment: the data behind the verdicts."""
    unit = f" / {wording.unit(metric)}" if metric.unit else ""
    rows = [
        (name, run.name, run.block, run.responses[metric.name] * metric.scale)
        for name, runs in outcome.sample.by_treatment.items()
        for run in runs
        if metric.name in run.responses
    ]
    table = pl.DataFrame(rows, schema=["treatment", "run", "pair", metric.label + unit], orient="row")
    by_treatment, looks = list(outcome.sample.by_treatment), contrasts(outcome).looks

    def draw() -> Canvas:
        figure, (axis,) = sheet.panels([0.7 + sheet.ROW_IN * len(by_treatment)])
        for line, treatment in enumerate(by_treatment):
            points = [x for name, _, _, x in rows if name == treatment]
            strip(axis, [line] * len(points), points, looks[treatment], upright=False)
        sheet.rows(axis, by_treatment, [looks[name].colour for name in by_treatment])
        axis.set_xlabel(metric.label + unit)
        return figure

    spans = [
        f"{treatment}: {len(p)} runs from {wording.number(min(p))} to {wording.number(max(p))}"
        for treatment in by_treatment
        if (p := [x for name, _, _, x in rows if name == treatment])
    ]
    alt = f"{metric.label}{unit} of every run. " + "; ".join(spans)
    return Figure(draw, alt, f"{metric.label}{unit} of every run, one dot per run.", table)


def warnings(outcome: Outcome) -> Fragment:
    """Return all warnings, and the method."""
    listed = notes(outcome)
    return join(*([bullets(listed)] if listed else []), paragraph(method_sentence(outcome), "mt-prose"))


def provenance(outcome: Outcome, command: str) -> Fragment:
    """Return a table of all files, and the command."""
    files = [(run, path, digest) for run in outcome.sample.runs for path, digest in run.sources.items()]
    columns: list[Column[tuple[Run, Path, str]]] = [
        Column("treatment", lambda row: row[0].treatment),
        Column("pair", lambda row: row[0].block or None),
        Column("file", lambda row: row[1]),
        Column("SHA-256", lambda row: Cell(row[2][:12], row[2])),
    ]
    table = [Table.from_rows("Files", columns, files).fragment()] if files else []
    return join(paragraph(f"Made by: {command}"), *table)
