"""The verdict table, and the exploratory one that must never be mistaken for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.frames import Contrasts
from meshtrial.report.markup import Cell, Column, Fragment, Table, bullets, fold, join, paragraph
from meshtrial.report.tables.verdict_columns import COLUMNS, PAGE, Line, columns_of
from meshtrial.vocabulary import BETWEEN, CORRECTIONS, QUALIFIERS, VerdictLabel

FOLD_FROM = 12  # exploratory rows beyond which their table is folded
_FAMILIES = ("latency", "CPU", "memory", "other")


def verdict_table(data: StudyData) -> Fragment:
    """Primary contrasts: values, change, added, interval, margin, corrected p, verdict."""
    found = frames.contrasts(data, primary=True)
    if not found.rows:
        return paragraph("No verdict has been computed yet.")
    note = (
        "Baseline and treatment are medians over the included runs; the change is estimated within blocks, so it need "
        "not be their quotient. What is added is estimated by itself, from the differences within blocks. p is "
        f"corrected for the contrasts of a family at one load ({CORRECTIONS[data.plan.study.correction]}). The A/A "
        "twin stands outside every family."
    )
    words = bullets(map(in_words, found.rows))
    pairs = found.where(lambda row: row.family == BETWEEN)
    holds, warned = "each treatment against each other: estimate, interval, margin", wording.warnings(pairs.rows)
    apart = [fold(f"All {len(pairs.rows)} pairs", holds, *_fragments(pairs), bullets(warned))] if pairs.rows else []
    return join(
        *_fragments(found.where(lambda row: row.family != BETWEEN), note),
        *apart,
        _legend(found.rows),
        fold("The same in words", "a sentence a row, to be quoted or read aloud", words),
    )


def _fragments(contrasts: Contrasts, note: str = "") -> list[Fragment]:
    return [table.fragment() for table in contrast_tables(contrasts, note)]


def exploratory_table(data: StudyData) -> Fragment:
    """Everything measured beside the primary responses, with the warning that belongs to it."""
    found = frames.contrasts(data, primary=False)
    if not found.rows:
        return paragraph("No response beside the primary ones was compared.")
    lead = (
        "Exploratory: not planned as the study's question; the contrasts of one response at one load are corrected "
        "together by Benjamini-Hochberg (q), responses are not. Read it as a hint at what to ask next; a finding here "
        "is one to repeat in a study of its own."
    )
    tables = _fragments(found)
    if len(found.rows) > FOLD_FROM:
        holds = "response by response: estimate, interval, margin"
        tables = [fold(f"All {len(found.rows)} exploratory contrasts", holds, *tables)]
    said = (paragraph(text, "mt-prose") for text in (lead, _tally(found.rows)))
    return join(*said, _called_table(found).fragment(), *tables)


def _tally(rows: Sequence[VerdictRow]) -> str:
    """How many of each class."""
    judged = [row for row in rows if not row.twin]
    counts = Counter(row.verdict for row in judged)
    return f"{len(judged)} contrasts: {wording.listing([f'{count} {word}' for word, count in counts.most_common()])}."


def _called_table(contrasts: Contrasts) -> Table:
    """Where something was called different: one row per treatment, one column per family of responses."""
    counted: dict[tuple[str, str], dict[str, Counter[VerdictLabel]]] = {}
    for row in contrasts.rows:
        if not row.twin:
            mine = counted.setdefault((row.treatment, row.baseline), {})
            mine.setdefault(_family(row), Counter())[row.verdict] += 1
    families = [name for name in _FAMILIES if any(name in mine for mine in counted.values())]
    against = "against {}" if len(contrasts.baselines) > 1 else ""

    def called(family: str, pair: tuple[str, str]) -> Cell | None:
        return _count(counted[pair].get(family))

    columns: list[Column[tuple[str, str]]] = [
        Column("treatment", lambda pair: Cell(pair[0], note=against.format(pair[1]))),
        *(Column(name, partial(called, name)) for name in families),
    ]
    return Table.of("Called different among the exploratory responses", columns, counted)


def _family(row: VerdictRow) -> str:
    response = wording.response_of(row)
    if response.kind == "latency":
        return "latency"
    if response.unit == "MiB":
        return "memory"
    return "CPU" if "cpu" in response.name or "switches" in response.name else "other"


def _count(counts: Counter[VerdictLabel] | None) -> Cell | None:
    if not counts:
        return None
    called = {word: count for word, count in counts.items() if word.different}
    said = ", ".join(f"{count} {word}" for word, count in called.items()) or "none"
    return Cell(f"{said} of {counts.total()}", sum(called.values()))


def contrast_tables(contrasts: Contrasts, note: str = "") -> list[Table]:
    """Verdict rows as tables, one a load."""
    panels = contrasts.panels("load", "family")
    # What holds for all of them is said once, below the last.
    return [_table(panel, note if panel is panels[-1] else "") for panel in panels]


def _table(contrasts: Contrasts, note: str) -> Table:
    rows, load, usual = contrasts.rows, contrasts.rows[0].load, (contrasts.blocks, contrasts.confidence)
    columns: list[Column[Line]] = [
        Column(column.heading, partial(column.shows, PAGE), numeric=column.numeric, middle=column.middle)
        for column in columns_of(PAGE)
    ]
    caption = "Exploratory contrasts" if all(row.exploratory for row in rows) else "Verdicts"
    if rows[0].family == BETWEEN:
        caption = f"Pairs, {caption.lower()}"
    if load:
        caption += f" at {load}"
    if len(contrasts.baselines) == 1:
        caption += f", against {rows[0].baseline}"
    if None not in usual:
        caption += f"; {contrasts.blocks} {contrasts.counted}, intervals at {wording.percent(contrasts.confidence)}"
        if any(row.n_blocks > 0 and (row.n_blocks, row.confidence) != usual for row in rows):
            caption += " where nothing else is said"
    keys = [f"{row.load}|{row.response}|{row.treatment}|{row.baseline}" for row in rows]
    groups = [_group(row, rows) for row in rows]
    return Table.of(caption, columns, [Line(row, contrasts) for row in rows], note, keys=keys, groups=groups)


def _group(row: VerdictRow, rows: Sequence[VerdictRow]) -> str:
    mixed = any(not one.exploratory for one in rows)
    return wording.typical(row) + (" (exploratory)" if row.exploratory and mixed else "")


def in_words(row: VerdictRow, counted: str = "blocks") -> str:
    """A row as a sentence that stands by itself."""
    at = f" at {row.load}" if row.load else ""
    said = f"{row.treatment} against {row.baseline}{at}, {wording.typical(row)}: {wording.verdict_text(row)}"
    parts = [said]
    if row.n_blocks:
        beside = wording.other_effect(row)
        parts.append(wording.effect_in_full(row) + (f", {beside}" if beside else ""))
        parts[-1] += f" over {row.n_blocks} {counted}"
    if row.after_the_fact:
        parts.append("after the fact")
    return ", ".join(parts) + "."


def _legend(rows: Sequence[VerdictRow]) -> Fragment:
    used = list(dict.fromkeys(row.verdict for row in rows))
    meanings = QUALIFIERS | {column.heading: column.meaning for column in COLUMNS if column.meaning}
    return fold("What the words mean", ", ".join(used), Fragment("legend", used, meanings))
