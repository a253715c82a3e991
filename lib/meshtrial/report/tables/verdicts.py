"""The verdict tables: primary contrasts, exploratory contrasts, and rankings of treatments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from meshtrial.inference.ranking import Ranking, RankRange, rankings
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.frames import Contrasts
from meshtrial.report.markup import Cell, Column, Fragment, Table, bullets, fold, join, paragraph, valued
from meshtrial.report.tables.verdict_columns import COLUMNS, PAGE, Line, VerdictColumn, columns_of
from meshtrial.vocabulary import BETWEEN, CORRECTIONS, QUALIFIERS, VerdictLabel

FOLD_FROM = 12  # a table of more exploratory rows is folded
_FAMILIES = ("latency", "CPU", "memory", "other")


def verdict_table(data: StudyData) -> Fragment:
    """Tabulate primary contrasts: values, change, added amount, interval, margin, corrected p, verdict."""
    contrasts = frames.contrasts(data, primary=True)
    if not contrasts.rows:
        return paragraph("No verdict has been computed yet.")
    note = (
        "Baseline and treatment are medians over the included runs. The change is estimated within blocks, so it need "
        "not be their quotient. The added amount is estimated separately, from the differences within blocks. p is "
        f"corrected for the contrasts of a family at one load ({CORRECTIONS[data.plan.study.correction]}). The A/A "
        "twin belongs to no family."
    )
    sentences = bullets(map(in_words, contrasts.rows))
    pairs = contrasts.where(lambda row: row.family == BETWEEN)
    summary, warned = "every two treatments compared: estimate, interval, margin", wording.warnings(pairs.rows)
    apart = [fold(f"All {len(pairs.rows)} pairs", summary, *_fragments(pairs), bullets(warned))] if pairs.rows else []
    return join(
        *_fragments(contrasts.where(lambda row: row.family != BETWEEN), note),
        *apart,
        _legend(contrasts.rows),
        fold("The same in words", "one sentence per row, for quoting or reading aloud", sentences),
    )


def _fragments(contrasts: Contrasts, note: str = "") -> list[Fragment]:
    return [table.fragment() for table in contrast_tables(contrasts, note)]


def exploratory_table(data: StudyData) -> Fragment:
    """Tabulate the contrasts of all other responses, with a warning of what they are."""
    contrasts = frames.contrasts(data, primary=False)
    if not contrasts.rows:
        return paragraph("Only the primary responses were compared.")
    lead = (
        "Exploratory: these responses were not the study's question. The contrasts of one response at one load are "
        "corrected together by Benjamini-Hochberg (q); there is no correction over responses. Treat a difference here "
        "as a hint for the next question, and repeat it in a study of its own."
    )
    tables = _fragments(contrasts)
    if len(contrasts.rows) > FOLD_FROM:
        summary = "response by response: estimate, interval, margin"
        tables = [fold(f"All {len(contrasts.rows)} exploratory contrasts", summary, *tables)]
    texts = (paragraph(text, "mt-prose") for text in (lead, _tally(contrasts.rows)))
    return join(*texts, _called_table(contrasts).fragment(), *tables)


def _tally(rows: Sequence[VerdictRow]) -> str:
    """Return how many contrasts have each verdict."""
    judged = [row for row in rows if not row.twin]
    counts = Counter(row.verdict for row in judged)
    return f"{len(judged)} contrasts: {wording.listing([f'{count} {word}' for word, count in counts.most_common()])}."


def _called_table(contrasts: Contrasts) -> Table:
    """Tabulate how many responses were called different, by treatment and kind of response."""
    counted: dict[tuple[str, str], dict[str, Counter[VerdictLabel]]] = {}
    for row in contrasts.rows:
        if not row.twin:
            by_family = counted.setdefault((row.treatment, row.baseline), {})
            by_family.setdefault(_family(row), Counter())[row.verdict] += 1
    families = [name for name in _FAMILIES if any(name in by_family for by_family in counted.values())]
    against = "against {}" if len(contrasts.baselines) > 1 else ""

    def called(family: str, pair: tuple[str, str]) -> Cell | None:
        return _count(counted[pair].get(family))

    columns: list[Column[tuple[str, str]]] = [
        Column("treatment", lambda pair: Cell(pair[0], note=against.format(pair[1]))),
        *(Column(name, partial(called, name)) for name in families),
    ]
    return Table.from_rows("Called different among the exploratory responses", columns, counted)


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
    text = ", ".join(f"{count} {word}" for word, count in called.items()) or "none"
    return Cell(f"{text} of {counts.total()}", sum(called.values()))


def contrast_tables(contrasts: Contrasts, note: str = "") -> list[Table]:
    """Return verdict rows as tables, one per load and family; the last has the note."""
    panels = contrasts.panels("load", "family")
    return [_table(panel, note if panel is panels[-1] else "") for panel in panels]


def _table(contrasts: Contrasts, note: str) -> Table:
    rows, load, usual = contrasts.rows, contrasts.rows[0].load, (contrasts.blocks, contrasts.confidence)
    columns: list[Column[Line]] = [
        Column(_heading(column, rows[0]), partial(column.value_in, PAGE), numeric=column.numeric, middle=column.middle)
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
        counted = f"{contrasts.counted}{wording.within(rows[0])}"
        caption += f"; {contrasts.blocks} {counted}, intervals at {wording.percent(contrasts.confidence)}"
        if any(row.n_blocks > 0 and (row.n_blocks, row.confidence) != usual for row in rows):
            caption += " unless stated otherwise"
    keys = [f"{row.load}|{row.response}|{row.treatment}|{row.baseline}" for row in rows]
    groups = [_group(row, rows) for row in rows]
    return Table.from_rows(caption, columns, [Line(row, contrasts) for row in rows], note, keys=keys, groups=groups)


def _heading(column: VerdictColumn, row: VerdictRow) -> str:
    # A level that moves takes a proportional cost with it.
    return column.heading + (wording.within(row) if column.heading == "added" else "")


def _group(row: VerdictRow, rows: Sequence[VerdictRow]) -> str:
    mixed = any(not one.exploratory for one in rows)
    return wording.typical(row) + (" (exploratory)" if row.exploratory and mixed else "")


def in_words(row: VerdictRow) -> str:
    """Return a row as a sentence that is complete in itself."""
    at = f" at {row.load}" if row.load else ""
    parts = [f"{row.treatment} against {row.baseline}{at}, {wording.typical(row)}: {wording.verdict_text(row)}"]
    if row.n_blocks:
        other = wording.other_effect(row)
        effect = wording.effect_in_full(row) + (f", {other}" if other else "")
        parts.append(f"{effect} over {row.n_blocks} {row.counted}{wording.within(row)}")
    if row.after_the_fact:
        parts.append("after the fact")
    return ", ".join(parts) + "."


def _legend(rows: Sequence[VerdictRow]) -> Fragment:
    used = list(dict.fromkeys(row.verdict for row in rows))
    meanings = QUALIFIERS | {column.heading: column.meaning for column in COLUMNS if column.meaning}
    return fold("What the words mean", ", ".join(used), Fragment("legend", used, meanings))


_RANKS_NOTE = (
    "Every pair was compared with the same exact test, and all pairs of a table are corrected together. A treatment's "
    "possible places follow from the significant differences: it is behind each better treatment and before each worse "
    "one. Pairs without a significant difference leave places open, so the same places do not mean that treatments "
    "are alike."
)


def ranks(data: StudyData) -> Fragment:
    """Tabulate which treatments are better than which, for each primary response and load."""
    found = rankings(data)
    if not found:
        return paragraph("This study declared no contrasts between its treatments, or they have no verdicts yet.")
    level = wording.declared_percent(1 - data.plan.study.alpha)
    note = f"{_RANKS_NOTE} In at least {level} of such studies, all places of a table are right at the same time."
    return join(*(_ranks_table(data, one, note if one is found[-1] else "").fragment() for one in found))


def places_line(data: StudyData, load: str, covered: str = "") -> list[Fragment]:
    """Return the treatments' places by the covered or the first primary response; nothing without a ranking."""
    ranking = next((one for one in rankings(data) if one.load == load and covered in ("", one.response.name)), None)
    if ranking is None:
        return []
    groups: dict[str, list[str]] = {}
    for place in ranking.places:
        groups.setdefault(place.places, []).append(place.treatment)
    listed = [(places, wording.listing(names)) for places, names in groups.items()]
    return [Fragment("sentences.places", wording.short_label(ranking.response.name), listed, _pairs_text(ranking))]


def _pairs_text(ranking: Ranking) -> str:
    return f"{ranking.n_significant} of {ranking.pairs} pairs differ significantly"


def _ranks_table(data: StudyData, ranking: Ranking, note: str) -> Table:
    def names(treatments: tuple[str, ...]) -> str:
        if len(treatments) == len(ranking.places) - 1 > 1:
            return "all others"
        return wording.listing(list(treatments)) or "–"

    form = partial(wording.in_unit, ranking.response)
    columns: list[Column[RankRange]] = [
        Column("treatment", lambda place: place.treatment),
        Column("places", lambda place: Cell(place.places, place.best + place.worst), middle=True),
        Column("typical run", lambda place: valued(place.value, form), numeric=True),
        Column("significantly better than", lambda place: names(place.better_than)),
        Column("significantly worse than", lambda place: names(place.worse_than)),
    ]
    where = frames.at(data, ranking.load)
    caption = f"Ranking by {wording.short_label(ranking.response.name)}{where}"
    return Table.from_rows(f"{caption}: {_pairs_text(ranking)}", columns, ranking.places, note)
