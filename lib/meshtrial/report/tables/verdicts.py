"""The verdict table, and the exploratory one that must never be mistaken for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from markupsafe import Markup

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.frames import Contrasts
from meshtrial.report.markup import (
    Cell,
    Column,
    Fragment,
    Table,
    bullets,
    fold,
    joined,
    paragraph,
    part,
)
from meshtrial.report.tables.headline import verdict_badge
from meshtrial.report.wording import kind

FOLD_FROM = 12  # exploratory rows beyond which their table is folded
_FAMILIES = ("latency", "CPU", "memory", "other")
_T = TypeVar("_T")


def verdict_table(data: StudyData) -> Fragment:
    """Primary contrasts: values, change, added, interval, margin, corrected p, verdict."""
    found = frames.contrasts(data, primary=True)
    if not found.rows:
        return Fragment(paragraph("No verdict has been computed yet."), "No verdict has been computed yet.")
    note = (
        "Baseline and treatment are medians over the included runs; the change is estimated within blocks, so it need "
        "not be their quotient. p is corrected for the contrasts of one response at one load (Holm). The A/A twin "
        "stands outside every family."
    )
    parts = contrast_tables(found, note)
    words = fold(
        "The same in words", "a sentence a row, to be quoted or read aloud", bullets(map(in_words, found.rows))
    )
    html = joined(part.to_html() for part in parts) + _legend(found.rows) + words
    return Fragment(html, "\n\n".join(part.to_text() for part in parts))


def exploratory_table(data: StudyData) -> Fragment:
    """Everything measured beside the primary responses, with the warning that belongs to it."""
    found = frames.contrasts(data, primary=False)
    if not found.rows:
        text = "No response beside the primary ones was compared."
        return Fragment(paragraph(text), text)
    lead = (
        "Exploratory: not planned as the study's question, corrected together by Benjamini-Hochberg (q). Read it as "
        "a hint at what to ask next; a finding here is one to repeat in a study of its own."
    )
    parts = contrast_tables(found)
    tables = joined(part.to_html() for part in parts)
    if len(found.rows) > FOLD_FROM:
        holds = "response by response: estimate, interval, margin"
        tables = fold(f"All {len(found.rows)} exploratory contrasts", holds, tables)
    tally, called = _tally(found.rows), _called_table(found)
    html = paragraph(lead, "mt-prose") + paragraph(tally, "mt-prose") + called.to_html() + tables
    return Fragment(html, "\n\n".join([lead, tally, called.to_text(), *(part.to_text() for part in parts)]))


def _tally(rows: Sequence[VerdictRow]) -> str:
    """How many of each class."""
    judged = [row for row in rows if not row.twin]
    counts = Counter(kind(row) for row in judged)
    return f"{len(judged)} contrasts: {wording.listing([f'{count} {word}' for word, count in counts.most_common()])}."


def _called_table(contrasts: Contrasts) -> Table:
    """Where something was called different: a row a treatment, a column a family of responses."""
    counted: dict[tuple[str, str], dict[str, Counter[str]]] = {}
    for row in contrasts.rows:
        if not row.twin:
            mine = counted.setdefault((row.treatment, row.baseline), {})
            mine.setdefault(_family(row), Counter())[kind(row)] += 1
    families = [name for name in _FAMILIES if any(name in mine for mine in counted.values())]
    against = "against {}" if len(contrasts.baselines) > 1 else ""
    cells = [
        [
            Cell(treatment, note=against.format(base)),
            *(_count_cell(mine.get(name)) for name in families),
        ]
        for (treatment, base), mine in counted.items()
    ]
    caption = "Called different among the exploratory responses"
    return Table(caption, [Column("treatment"), *(Column(name) for name in families)], cells)


def _family(row: VerdictRow) -> str:
    response = wording.response_of(row)
    if response.kind == "latency":
        return "latency"
    if response.unit == "MiB":
        return "memory"
    return "CPU" if "cpu" in response.name or "switches" in response.name else "other"


def _count_cell(counts: Counter[str] | None) -> Cell:
    if not counts:
        return Cell("–")
    called = {word: count for word, count in counts.items() if word in wording.DIFFERENT}
    said = ", ".join(f"{count} {word}" for word, count in called.items()) or "none"
    return Cell(f"{said} of {counts.total()}", sum(called.values()))


def contrast_tables(contrasts: Contrasts, note: str = "") -> list[Table]:
    """Verdict rows as tables, one a load."""
    by_load = [(load, [row for row in contrasts.rows if row.load == load]) for load in contrasts.loads]
    found = [(load, rows) for load, rows in by_load if rows]
    # What holds for all of them is said once, below the last.
    return [
        _table(contrasts, load, rows, note if place == len(found) else "")
        for place, (load, rows) in enumerate(found, start=1)
    ]


def _table(contrasts: Contrasts, load: str, rows: Sequence[VerdictRow], note: str) -> Table:
    several = len({row.baseline for row in rows}) > 1
    usual = _Usual(
        _most_common(row.confidence for row in rows if row.confidence is not None),
        _most_common(row.n_blocks for row in rows if row.n_blocks),
        contrasts.counted,
    )
    columns = [
        Column("treatment"),
        Column("verdict", middle=True),
        Column("change", numeric=True),
        Column("added", numeric=True),
        Column("baseline → treatment", numeric=True),
        Column("margin", numeric=True),
    ]
    caption = "Exploratory contrasts" if all(row.exploratory for row in rows) else "Verdicts"
    if load:
        caption += f" at {load}"
    if not several:
        caption += f", against {rows[0].baseline}"
    if usual.confidence is not None and usual.blocks is not None:
        caption += f"; {usual.blocks} {usual.counted}, intervals at {wording.percent(usual.confidence)}"
        if any(_unusual(row, usual) for row in rows):
            caption += " where nothing else is said"
    keys = [f"{row.load}|{row.response}|{row.treatment}|{row.baseline}" for row in rows]
    cells = [_cells(contrasts, row, several, usual) for row in rows]
    return Table(caption, columns, cells, note, keys, [_group(row, rows) for row in rows])


def _group(row: VerdictRow, rows: Sequence[VerdictRow]) -> str:
    mixed = any(not one.exploratory for one in rows)
    return wording.typical(row) + (" (exploratory)" if row.exploratory and mixed else "")


@dataclass(frozen=True)
class _Usual:
    """What most rows of a table share, said once in its caption."""

    confidence: float | None
    blocks: int | None
    counted: str


def _most_common(values: Iterable[_T]) -> _T | None:
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else None


def _unusual(row: VerdictRow, usual: _Usual) -> bool:
    return row.n_blocks > 0 and (row.n_blocks != usual.blocks or row.confidence != usual.confidence)


def _cells(contrasts: Contrasts, row: VerdictRow, name_baseline: bool, usual: _Usual) -> list[Cell]:
    odd = row.confidence is not None and row.confidence != usual.confidence
    confidence = f" at {wording.percent(row.confidence)}" if odd else ""
    interval = wording.change_interval(row.ci_low, row.ci_high)
    added = wording.interval_in_unit(wording.response_of(row), row.difference_low, row.difference_high)
    name = row.treatment + (" (A/A twin)" if row.twin else "")
    return [
        Cell(name, note=f"against {row.baseline}" if name_baseline else ""),
        Cell(*_called(contrasts, row), note=_behind(contrasts, row, usual)),
        Cell(
            wording.change(row.ratio, row.ci_high), row.ratio, note="" if row.ratio is None else interval + confidence
        ),
        Cell(
            wording.in_unit(wording.response_of(row), row.difference, sign=True),
            row.difference,
            note="" if row.difference_low is None else added,
        ),
        _values(row),
        _margin(row),
    ]


def _called(contrasts: Contrasts, row: VerdictRow) -> tuple[str, str, Markup]:
    """The verdict as text, as it is stored, and as HTML; what was not reported has none to be read."""
    if not contrasts.reported(row):
        return "not reported", row.verdict, part("quiet", "not reported")
    return wording.kind(row), row.verdict, verdict_badge(row)


def _why_stopped(contrasts: Contrasts, row: VerdictRow) -> str:
    if not contrasts.reported(row):
        return "too few requests" if row.response.startswith("latency_") else "not measured"
    return {"saturated": "asked rate not held", "invalid": "see validity"}.get(wording.kind(row), "")


def _behind(contrasts: Contrasts, row: VerdictRow, usual: _Usual) -> str:
    """What a verdict rests on: qualifier, corrected p, blocks where they differ."""
    corrected = "q" if row.adjustment == "benjamini-hochberg" else "p"
    parts = [
        wording.qualifier(row),
        wording.equation(corrected, row.p_adjusted) if row.p_adjusted is not None else "",
        f"{row.n_blocks} {usual.counted}" if row.n_blocks and row.n_blocks != usual.blocks else "",
        _why_stopped(contrasts, row),
        "after the fact" if row.after_the_fact else "",
    ]
    return ", ".join(part for part in parts if part)


def _values(row: VerdictRow) -> Cell:
    if row.baseline_value is None or row.treatment_value is None:
        return Cell("–")
    response = wording.response_of(row)
    unit = wording.unit(response)
    before, after = (
        wording.in_unit(response, value).removesuffix(unit).strip()
        for value in (row.baseline_value, row.treatment_value)
    )
    html = part("data", row.baseline_value, before) + " → " + part("data", row.treatment_value, after) + f" {unit}"
    return Cell(f"{before} → {after} {unit}".strip(), html=html)


def _margin(row: VerdictRow) -> Cell:
    detectable = "" if row.mde is None else f"detects {wording.mde_text(row)}"
    if row.margin is None:
        return Cell("–", note=detectable)
    if row.margin_floor is None:
        return Cell(f"±{wording.margin(row)}", row.margin, note=detectable)
    # The floor decides; what it is of the baseline goes to the line below, where the column is already wide.
    below = "; ".join(filter(None, (wording.rounded_percent(row.margin), detectable)))
    return Cell(f"±{wording.in_unit(row.response, row.margin_floor)}", row.margin, note=below)


def in_words(row: VerdictRow, counted: str = "blocks") -> str:
    """A row as a sentence that stands by itself."""
    at = f" at {row.load}" if row.load else ""
    said = f"{row.treatment} against {row.baseline}{at}, {wording.typical(row)}: {wording.verdict_text(row)}"
    parts = [said]
    if row.ratio is not None:
        interval = wording.change_interval(row.ci_low, row.ci_high)
        parts.append(f"{wording.change(row.ratio, row.ci_high)} ({interval})")
    if row.difference is not None:
        added = wording.in_unit(wording.response_of(row), row.difference, sign=True)
        parts.append(f"{added} over {row.n_blocks} {counted}")
    if row.after_the_fact:
        parts.append("after the fact")
    return ", ".join(parts) + "."


def _legend(rows: Sequence[VerdictRow]) -> Markup:
    used = list(dict.fromkeys(kind(row) for row in rows))
    return fold("What the words mean", ", ".join(used), part("legend", [wording.LOOKS[word] for word in used]))
