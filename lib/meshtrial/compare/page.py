"""The comparison as one offline page, of the same make as a study's report."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import polars as pl
from matplotlib.figure import Figure as Canvas

from meshtrial.compare.analysis import Outcome
from meshtrial.compare.rows import is_coarse
from meshtrial.compare.text import method_sentence, notes
from meshtrial.records.schema import VerdictRow
from meshtrial.report import Figure, Fragment, wording
from meshtrial.report.figures.common import drawn, factor_axis, panels
from meshtrial.report.html import notebook_to_html
from meshtrial.report.markup import Cell, Column, Table, bullets, paragraph
from meshtrial.report.palette import GREY, HUES, INK, PAPER
from meshtrial.report.tables.headline import verdict_badge
from meshtrial.responses import Response


def write(path: Path, outcome: Outcome, command: str) -> None:
    """Write the page.

    Parameters
    ----------
    path : Path
    outcome : Outcome
    command : str
        What makes it again.
    """
    against = " and ".join(outcome.sample.treatments)
    parts: list[tuple[str, object | None]] = [
        (f"# {against} against {outcome.sample.baseline}", limits(outcome)),
        ("## Verdicts", verdicts(outcome)),
        ("", ratios(outcome)),
        ("## Every run", None),
        *(("", every_run(outcome, metric)) for metric in outcome.metrics),
        ("## Warnings, method and limits", warnings(outcome)),
        ("## Provenance", provenance(outcome, command)),
    ]
    v4: Any = nbformat.v4  # its constructors carry no types
    cells: list[Any] = []
    for prose, shown in parts:
        if prose:
            cells.append(v4.new_markdown_cell(prose))
        if shown is not None:
            markup = shown._repr_html_()  # type: ignore[attr-defined]
            output = v4.new_output("display_data", data={"text/html": markup, "text/plain": repr(shown)})
            cells.append(v4.new_code_cell("", outputs=[output]))
    notebook = v4.new_notebook(cells=cells, metadata={"title": f"{against} against {outcome.sample.baseline}"})
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="meshtrial-compare-") as private:
        source = Path(private) / "compare.ipynb"
        source.write_text(v4.writes(notebook))
        notebook_to_html(source, path)


def limits(outcome: Outcome) -> Fragment:
    """What so many runs can show at all."""
    return Fragment(bullets(outcome.limits), "\n".join(outcome.limits))


def verdicts(outcome: Outcome) -> Fragment:
    """Every contrast: verdict, change, added, values, margin."""
    columns = [
        Column("treatment"),
        Column("verdict"),
        Column("change", numeric=True),
        Column("added", numeric=True),
        Column("baseline → treatment", numeric=True),
        Column("margin", numeric=True),
    ]
    groups = [_group(row) for row in outcome.rows]
    rows = [_cells(row) for row in outcome.rows]
    note = "Medians over the runs; the change is the Hodges-Lehmann estimate, so it need not be their quotient."
    return Table(f"Verdicts against {outcome.sample.baseline}", columns, rows, note, groups=groups).fragment()


def _group(row: VerdictRow) -> str:
    typical = ", typical run's" if row.response.startswith("latency_p") else ""
    return row.label + typical + (" (exploratory)" if row.exploratory else "")


def _cells(row: VerdictRow) -> list[Cell]:
    corrected = "" if row.p_holm is None else wording.equation("q" if row.exploratory else "p", row.p_holm)
    more = row.sentence.removeprefix(row.verdict).strip(" :()")
    behind = ", ".join(part for part in (more, corrected) if part)
    confidence = "" if row.confidence is None else f" at {wording.percent(row.confidence)}"
    unit_note = "bucket wider than the margin" if is_coarse(row) else ""
    values = (
        f"{wording.in_unit(row.response, row.baseline_value)} → {wording.in_unit(row.response, row.treatment_value)}"
    )
    added = wording.interval_in_unit(row.response, row.difference_low, row.difference_high)
    return [
        Cell(row.treatment + (" (A/A twin)" if row.twin else "")),
        Cell(wording.kind(row), html=verdict_badge(row), note=behind),
        Cell(
            wording.change(row.ratio, row.ci_high),
            row.ratio,
            note="" if row.ratio is None else wording.change_interval(row.ci_low, row.ci_high) + confidence,
        ),
        Cell(wording.in_unit(row.response, row.difference, sign=True), row.difference, note=added),
        Cell(values, note=unit_note),
        Cell("–" if row.margin is None else f"±{wording.rounded_percent(row.margin)}", row.margin),
    ]


def ratios(outcome: Outcome) -> Figure:
    """Ratio to the baseline with its interval and margin, a line a contrast."""
    rows = [row for row in outcome.rows if row.ratio is not None]
    table = pl.DataFrame(
        {
            "treatment": [row.treatment for row in rows],
            "response": [row.label for row in rows],
            "ratio": [row.ratio for row in rows],
            "low": [row.ci_low for row in rows],
            "high": [row.ci_high for row in rows],
            "margin / %": [None if row.margin is None else 100 * row.margin for row in rows],
            "verdict": [row.sentence for row in rows],
        }
    )
    alt = "Ratios to the baseline. " + "; ".join(
        f"{row.treatment}, {row.label}: {wording.change(row.ratio, row.ci_high)}, {row.sentence}" for row in rows
    )
    caption = (
        f"Ratio of each treatment to {outcome.sample.baseline} with its interval. The shaded band is the margin. "
        "Right of 1 costs more."
    )
    return drawn(lambda narrow: _draw_ratios(rows, narrow), alt, caption, table)


def _draw_ratios(rows: Sequence[VerdictRow], narrow: bool) -> Canvas:
    ends = [x for row in rows for x in (row.ci_low, row.ci_high) if x is not None and 0 < x < 1e6]
    bands = [1 + row.margin for row in rows if row.margin is not None]
    low, high = min([0.9, *ends, *(1 / b for b in bands)]) / 1.05, max([1.1, *ends, *bands]) * 1.05
    figure, (axis,) = panels(narrow, [0.7 + 0.36 * max(1, len(rows))])
    factor_axis(axis, low, high, 5 if narrow else 8)
    axis.axvline(1, color=INK, linewidth=0.9)
    for place, row in enumerate(rows):
        hue = (
            GREY if row.twin else HUES[list(dict.fromkeys(r.treatment for r in rows)).index(row.treatment) % len(HUES)]
        )
        if row.margin is not None:
            axis.fill_betweenx(
                [place - 0.4, place + 0.4], 1 / (1 + row.margin), 1 + row.margin, color=INK, alpha=0.09, lw=0
            )
        axis.plot(
            [max(row.ci_low or low, low), min(row.ci_high or high, high)], [place, place], color=hue, linewidth=2.2
        )
        shown = row.verdict not in ("inconclusive", "unstable")
        axis.plot(
            [row.ratio or math.nan],
            [place],
            marker="o",
            color=hue,
            markerfacecolor=hue if shown else PAPER,
            linestyle="none",
        )
    axis.set_yticks(range(len(rows)), [f"{row.treatment}, {row.label.removesuffix(' latency')}" for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("ratio to the baseline (log scale); filled: shown, open: inconclusive")
    return figure


def every_run(outcome: Outcome, metric: Response) -> Figure:
    """One metric of every run, a line an arm: what the verdict was computed from."""
    unit = f" / {wording.unit(metric.name) or metric.unit}" if metric.unit else ""
    shown = [
        (name, run.name, run.block, run.values[metric.name] * metric.scale)
        for name, runs in outcome.sample.arms.items()
        for run in runs
        if metric.name in run.values
    ]
    table = pl.DataFrame(shown, schema=["treatment", "run", "pair", metric.label + unit], orient="row")
    arms = list(outcome.sample.arms)

    def draw(narrow: bool) -> Canvas:
        figure, (axis,) = panels(narrow, [0.7 + 0.34 * len(arms)])
        for place, arm in enumerate(arms):
            points = [x for name, _, _, x in shown if name == arm]
            colour = GREY if place == 0 else HUES[(place - 1) % len(HUES)]
            axis.plot(points, [place] * len(points), marker="o", linestyle="none", color=colour, markerfacecolor="none")
        axis.set_yticks(range(len(arms)), arms)
        axis.set_ylim(len(arms) - 0.4, -0.6)
        axis.set_xlabel(metric.label + unit)
        return figure

    spans = [
        f"{arm}: {len(p)} runs from {wording.number(min(p))} to {wording.number(max(p))}"
        for arm in arms
        if (p := [x for name, _, _, x in shown if name == arm])
    ]
    alt = f"{metric.label}{unit} of every run. " + "; ".join(spans)
    return drawn(draw, alt, f"{metric.label}{unit} of every run, a dot a run.", table)


def warnings(outcome: Outcome) -> Fragment:
    """What a reader must know, and how it was computed."""
    found = notes(outcome)
    html = (bullets(found) if found else "") + paragraph(method_sentence(outcome), "mt-prose")
    return Fragment(html, "\n".join([*found, method_sentence(outcome)]))


def provenance(outcome: Outcome, command: str) -> Fragment:
    """Every file that was read, and the command."""
    rows = [
        [Cell(run.arm), Cell(run.block or "–"), Cell(str(path)), Cell(digest[:12], digest)]
        for run in outcome.sample.runs
        for path, digest in run.sources.items()
    ]
    columns = [Column("arm"), Column("pair"), Column("file"), Column("SHA-256")]
    table = Table("Files", columns, rows) if rows else None
    html = paragraph(f"Made by: {command}") + (table.to_html() if table else "")
    return Fragment(html, f"Made by: {command}" + (f"\n{table.to_text()}" if table else ""))
