"""The verdict table, and the exploratory one that must never be mistaken for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, bullets, details, escape, heading, paragraph
from meshtrial.report.tables.headline import verdict_badge
from meshtrial.report.wording import kind

FOLD_FROM = 12  # exploratory rows beyond which their table is folded
_T = TypeVar("_T")


def verdict_table(data: StudyData) -> Fragment:
    """Primary contrasts: values, change, added, interval, margin, corrected p, verdict."""
    study = data.plan.study
    rows = [row for row in frames.verdicts(data) if row.response in study.primary]
    if not rows:
        return Fragment(paragraph("No verdict has been computed yet."), "No verdict has been computed yet.")
    note = (
        "Baseline and treatment are medians over the runs in the inference; the change is estimated within blocks, so "
        "it need not be their quotient. p is corrected for the contrasts of one response at one load (Holm). The A/A "
        "twin stands outside every family."
    )
    parts = _tables(data, rows, note)
    legend = _legend(rows)
    warnings = _warnings(rows)
    words = details("The rows in words", bullets(_in_words(row) for row in rows))
    html = "".join(part.to_html() for part in parts) + warnings + legend + words
    return Fragment(html, "\n\n".join(part.to_text() for part in parts))


def exploratory_table(data: StudyData) -> Fragment:
    """Everything measured beside the primary responses, with the warning that belongs to it."""
    rows = [row for row in frames.verdicts(data) if row.response not in data.plan.study.primary]
    if not rows:
        text = "No response beside the primary ones was compared."
        return Fragment(paragraph(text), text)
    lead = (
        "Exploratory: not planned as the study's question, corrected together by Benjamini-Hochberg (q). Read it as "
        "a hint at what to ask next; a finding here is one to repeat in a study of its own."
    )
    parts = _tables(data, rows, "")
    tables = "".join(part.to_html() for part in parts)
    if len(rows) > FOLD_FROM:
        tables = details(f"All {len(rows)} exploratory contrasts", tables)
    html = paragraph(lead, "mt-prose") + f'<div class="mt-prose">{bullets(_tally(rows))}</div>' + tables
    return Fragment(html, "\n\n".join([lead, *_tally(rows), *(part.to_text() for part in parts)]))


def _tally(rows: Sequence[VerdictRow]) -> list[str]:
    """How many of each class, and what was called different: the table folded into a few lines."""
    judged = [row for row in rows if not row.twin]
    counts = Counter(kind(row) for row in judged)
    told = wording.listing([f"{count} {word}" for word, count in counts.most_common()])
    called: dict[str, dict[str, None]] = {}
    for row in judged:
        if kind(row) in wording.DIFFERENT:
            called.setdefault(f"{row.treatment}, {kind(row)}", {})[wording.short_label(row.response)] = None
    return [f"{len(judged)} contrasts: {told}.", *(f"{who}: {', '.join(names)}" for who, names in called.items())]


def _tables(data: StudyData, rows: Sequence[VerdictRow], note: str) -> list[Table]:
    by_load = ((load, [row for row in rows if row.load == load]) for load in frames.loads(data))
    return [_table(data, load, mine, note) for load, mine in by_load if mine]


def _table(data: StudyData, load: str, rows: Sequence[VerdictRow], note: str) -> Table:
    several = len({row.baseline for row in rows}) > 1
    usual = _Usual(
        _most_common(row.confidence for row in rows if row.confidence is not None),
        _most_common(row.n_blocks for row in rows if row.n_blocks),
    )
    columns = [
        Column("treatment"),
        Column("verdict", middle=True),
        Column("change", numeric=True),
        Column("added", numeric=True),
        Column("baseline → treatment", numeric=True),
        Column("margin", numeric=True),
    ]
    exploratory = all(row.response not in data.plan.study.primary for row in rows)
    caption = ("Exploratory contrasts" if exploratory else "Verdicts") + f" at {load}"
    if not several:
        caption += f", against {rows[0].baseline}"
    if usual.confidence is not None and usual.blocks is not None:
        caption += f"; {usual.blocks} blocks, intervals at {wording.percent(usual.confidence)}"
        if any(_unusual(row, usual) for row in rows):
            caption += " where nothing else is said"
    keys = [f"{row.load}|{row.response}|{row.treatment}|{row.baseline}" for row in rows]
    cells = [_cells(data, row, several, usual) for row in rows]
    return Table(caption, columns, cells, note, keys, [_group(row) for row in rows])


@dataclass(frozen=True)
class _Usual:
    """What most rows of a table share, said once in its caption."""

    confidence: float | None
    blocks: int | None


def _most_common(values: Iterable[_T]) -> _T | None:
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else None


def _unusual(row: VerdictRow, usual: _Usual) -> bool:
    return row.n_blocks > 0 and (row.n_blocks != usual.blocks or row.confidence != usual.confidence)


def _group(row: VerdictRow) -> str:
    """The response, and for a percentile whose it is."""
    percentile = row.response.startswith(("latency_p", "latency_corrected_p"))
    return (row.label or wording.known(row.response).label) + (", typical run's" if percentile else "")


def _cells(data: StudyData, row: VerdictRow, name_baseline: bool, usual: _Usual) -> list[Cell]:
    odd = row.confidence is not None and row.confidence != usual.confidence
    confidence = f" at {wording.percent(row.confidence)}" if odd else ""
    interval = wording.change_interval(row.ci_low, row.ci_high)
    added = wording.interval_in_unit(row.response, row.difference_low, row.difference_high)
    name = row.treatment + (" (A/A twin)" if row.twin else "")
    return [
        Cell(name, note=f"against {row.baseline}" if name_baseline else ""),
        Cell(*_called(data, row), note=_behind(data, row, usual)),
        Cell(
            wording.change(row.ratio, row.ci_high), row.ratio, note="" if row.ratio is None else interval + confidence
        ),
        Cell(
            wording.in_unit(row.response, row.difference, sign=True),
            row.difference,
            note="" if row.difference_low is None else added,
        ),
        _values(row),
        _margin(row),
    ]


def _called(data: StudyData, row: VerdictRow) -> tuple[str, str, str]:
    """The verdict as text, as it is stored, and as HTML; what was not reported has none to be read."""
    if frames.not_reported(data, row):
        return "not reported", row.verdict, '<span class="mt-quiet">not reported</span>'
    return wording.kind(row), row.verdict, verdict_badge(row)


def _why_stopped(data: StudyData, row: VerdictRow) -> str:
    if frames.not_reported(data, row):
        return "too few requests" if row.response.startswith("latency_") else "not measured"
    return {"saturated": "asked rate not held", "invalid": "see validity"}.get(wording.kind(row), "")


def _behind(data: StudyData, row: VerdictRow, usual: _Usual) -> str:
    """What a verdict rests on: qualifier, corrected p, blocks where they differ."""
    corrected = "q" if row.exploratory and not row.twin else "p"
    parts = [
        wording.qualifier(row),
        wording.equation(corrected, row.p_holm) if row.p_holm is not None else "",
        f"{row.n_blocks} blocks" if row.n_blocks and row.n_blocks != usual.blocks else "",
        _why_stopped(data, row),
    ]
    return ", ".join(part for part in parts if part)


def _values(row: VerdictRow) -> Cell:
    if row.baseline_value is None or row.treatment_value is None:
        return Cell("–")
    unit = wording.unit(row.response)
    before, after = (
        wording.in_unit(row.response, value).removesuffix(unit).strip()
        for value in (row.baseline_value, row.treatment_value)
    )
    html = (
        f'<data value="{row.baseline_value!r}">{escape(before)}</data> → '
        f'<data value="{row.treatment_value!r}">{escape(after)}</data> {escape(unit)}'
    )
    return Cell(f"{before} → {after} {unit}".strip(), html=html)


def _margin(row: VerdictRow) -> Cell:
    detectable = "" if row.mde is None else f"detects {wording.mde_text(row)}"
    if row.margin is None:
        return Cell("–", note=detectable)
    return Cell(f"±{wording.rounded_percent(row.margin)}", row.margin, note=detectable)


def _in_words(row: VerdictRow) -> str:
    """A row as a sentence that stands by itself."""
    said = f"{row.treatment} against {row.baseline} at {row.load}, {_group(row)}: {wording.verdict_text(row)}"
    parts = [said]
    if row.ratio is not None:
        interval = wording.change_interval(row.ci_low, row.ci_high)
        parts.append(f"{wording.change(row.ratio, row.ci_high)} ({interval})")
    if row.difference is not None:
        parts.append(f"{wording.in_unit(row.response, row.difference, sign=True)} over {row.n_blocks} blocks")
    return ", ".join(parts) + "."


def _legend(rows: Sequence[VerdictRow]) -> str:
    used = dict.fromkeys(kind(row) for row in rows)
    items = "".join(
        f'<li><span class="mt-verdict mt-{mark.tone}">{mark.glyph} {mark.word}</span>: {escape(mark.meaning)}</li>'
        for mark in (wording.LOOKS[word] for word in used)
    )
    more = (
        "<li>material: the whole interval lies beyond the margin; below margin: shown to differ, and shown to differ "
        "by less than the margin</li><li>detects: the smallest effect that this many blocks with this much noise "
        "would find four times out of five</li>"
    )
    return details("What the words mean", f"<ul>{items}{more}</ul>")


def _warnings(rows: Sequence[VerdictRow]) -> str:
    found = wording.warnings(rows)
    return heading("Warnings") + bullets(found) if found else ""
