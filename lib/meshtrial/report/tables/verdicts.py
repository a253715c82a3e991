"""The verdict tables: primary contrasts, exploratory contrasts, and rankings of treatments.

A column of the verdict table is declared once: pages, Markdown and terminals show it from `COLUMNS`. A column names the
outputs that show it. An output that shows it differently has a function of its own: a page adds a second line, Markdown
has no room for one, a terminal has a hundred columns.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, get_args

from meshtrial.inference.ranking import Ranking, RankRange, rankings
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
    join,
    paragraph,
    valued,
    verdict_badge,
)
from meshtrial.vocabulary import BETWEEN, COARSE_QUANTILE, CORRECTIONS, QUALIFIERS, VerdictLabel

Output = Literal["page", "markdown", "terminal", "below"]  # a terminal has one line, and further lines below it
PAGE, MARKDOWN, TERMINAL, BELOW = get_args(Output)


@dataclass(frozen=True)
class Line:
    """A verdict row, the contrasts of its table, the number of its treatment's runs, and a CI gate's result."""

    row: VerdictRow
    contrasts: Contrasts
    runs: int = 0
    gate: str = "–"


ValueOf = Callable[[Line], object]  # from a line to any value that `markup.cell` accepts


@dataclass(frozen=True)
class VerdictColumn:
    """A column of the verdict table, and what each output shows in it."""

    heading: str  # may contain {counted} (blocks or runs) and {corrected} (the name of the corrected p)
    value: ValueOf
    outputs: Sequence[Output] = (PAGE, MARKDOWN, BELOW)
    values: Mapping[Output, ValueOf] = field(default_factory=dict)  # replaces `value` in an output
    meaning: str = ""  # shown in the legend if the heading does not explain itself
    name: bool = False  # whether it holds a name from the records, which Markdown writes as code
    numeric: bool = False
    middle: bool = False

    def value_in(self, output: Output, line: Line) -> object:
        """Return the value that an output shows, None for a missing one."""
        return self.values.get(output, self.value)(line)


def columns_of(output: Output) -> list[VerdictColumn]:
    """Return the columns of an output in order."""
    return [column for column in COLUMNS if output in column.outputs]


def _value(line: Line) -> str:
    bucket = " [bucket]" if wording.warned(line.row, COARSE_QUANTILE) else ""
    return wording.in_unit(wording.response_of(line.row), line.row.treatment_value) + bucket


def _verdict_on_page(line: Line) -> Cell:
    """Return the verdict with qualifier and corrected p; the stored verdict is the cell's value."""
    row, contrasts = line.row, line.contrasts
    text: str
    if contrasts.reported(row):
        text, html = row.verdict, verdict_badge(row.verdict)
        whys = {VerdictLabel.SATURATED: "requested rate not reached", VerdictLabel.INVALID: "see validity"}
        why = whys.get(row.verdict, "")
    else:
        text, html = "not reported", Fragment("quiet", "not reported")
        why = "too few requests" if row.response.startswith("latency_") else "not measured"
    corrected = "q" if row.adjustment == "benjamini-hochberg" else "p"
    parts = (
        wording.qualifier(row),
        wording.uncorrected(row),
        wording.equation(corrected, row.p_adjusted) if row.p_adjusted is not None else "",
        f"{row.n_blocks} {row.counted}" if row.n_blocks and row.n_blocks != contrasts.blocks else "",
        why,
        "after the fact" if row.after_the_fact else "",
    )
    return Cell(text, row.verdict, html, ", ".join(filter(None, parts)))


def _note(ends: str) -> str:
    return "" if ends == wording.UNKNOWN else ends


def _change(line: Line) -> Cell:
    row = line.row
    ends = "" if row.ratio is None else _note(wording.change_interval(row.ci_low, row.ci_high))
    return Cell(wording.change(row.ratio, row.ci_high), row.ratio, note=ends)


def _marked(line: Line, shown: Cell, *, decides: bool) -> Cell:
    """Add to the judged interval its confidence if that is not the table's, and whether it is too narrow."""
    row = line.row
    if not shown.note or not decides:
        return shown
    is_usual = row.ratio is None or row.confidence in (None, line.contrasts.confidence)
    confidence = "" if is_usual else f" at {wording.percent(row.confidence)}"
    return replace(shown, note=shown.note + confidence + wording.interval_mark(row))


def _interval(line: Line) -> str:
    row, ends = line.row, wording.effect_interval(line.row)
    if ends == wording.UNKNOWN or row.confidence is None:
        return ends
    return f"{ends} at {wording.percent(row.confidence)}{wording.interval_mark(row)}"


def _added(line: Line) -> Cell:
    row = line.row
    ends = "" if row.difference_low is None else wording.added_interval(row)
    return Cell(wording.added(row), row.difference, note=ends)


def _other_effect(line: Line) -> Cell | None:
    """Return the effect that does not decide the verdict, or None if it would repeat the deciding one."""
    row = line.row
    if row.ratio is None or not wording.response_of(row).unit:
        return None
    if row.by_difference:
        return _change(line)
    return Cell(wording.added(row), note=_note(wording.added_interval(row)))


def _values(line: Line) -> Cell | None:
    row = line.row
    if row.baseline_value is None or row.treatment_value is None:
        return None
    response = wording.response_of(row)
    unit = wording.unit(response)
    before, after = (
        wording.in_unit(response, value).removesuffix(unit).strip()
        for value in (row.baseline_value, row.treatment_value)
    )
    return Cell(f"{before} → {after} {unit}".strip(), html=Fragment("before_after", row, before, after, unit))


def _margin_on_page(line: Line) -> Cell:
    row = line.row
    detectable = "" if row.mde is None else f"detects {wording.mde_text(row)}"
    if row.margin is None or row.margin_floor is None:
        return Cell(wording.margin(row, "±"), row.margin, note=detectable)
    # The floor decides. Its share of the baseline is on the second line, because the column is already wide.
    below = "; ".join(filter(None, (wording.margin_share(row), detectable)))
    return Cell(f"±{wording.in_unit(row.response, row.margin_floor)}", row.margin, note=below)


# In the order of every output.
COLUMNS: list[VerdictColumn] = [
    VerdictColumn(
        "treatment",
        lambda line: Cell(line.row.treatment, note="A/A twin" if line.row.twin else ""),
        (PAGE, MARKDOWN, TERMINAL),
        {
            PAGE: lambda line: Cell(
                wording.treatment(line.row),
                note=f"against {line.row.baseline}" if len(line.contrasts.baselines) > 1 else "",
            )
        },
        name=True,
    ),
    # A page has these two in the treatment's second line and above the rows, a terminal above the rows.
    VerdictColumn("against", lambda line: line.row.baseline, (MARKDOWN,), name=True),
    VerdictColumn("response", lambda line: wording.typical(line.row), (MARKDOWN,)),
    VerdictColumn("{counted}", lambda line: line.runs, (TERMINAL,)),
    VerdictColumn("median", _value, (TERMINAL,)),
    VerdictColumn(
        "verdict",
        lambda line: (
            wording.verdict_text(line.row)
            if line.contrasts.reported(line.row)
            else f"{VerdictLabel.INVALID}: not reported"
        ),
        values={
            PAGE: _verdict_on_page,
            BELOW: lambda line: ", ".join(filter(None, (line.row.sentence, wording.uncorrected(line.row)))),
        },
        middle=True,
    ),
    VerdictColumn(
        "change",
        _change,
        (PAGE, MARKDOWN, TERMINAL),
        {
            PAGE: lambda line: _marked(line, _change(line), decides=not line.row.by_difference),
            TERMINAL: lambda line: wording.effect(line.row),
        },
        numeric=True,
    ),
    # A page has the interval in the second line of the change, and the corrected p in that of the verdict.
    VerdictColumn("interval", _interval, (TERMINAL,)),
    VerdictColumn("p", lambda line: wording.probability(line.row.p), (TERMINAL,)),
    VerdictColumn(
        "{corrected}", lambda line: "" if line.row.twin else wording.probability(line.row.p_adjusted), (TERMINAL,)
    ),
    VerdictColumn(
        "added",
        _added,
        (PAGE, MARKDOWN),
        {
            PAGE: lambda line: _marked(line, _added(line), decides=line.row.by_difference),
            MARKDOWN: lambda line: wording.added(line.row),
        },
        numeric=True,
    ),
    VerdictColumn("besides", _other_effect, (BELOW,)),
    VerdictColumn("baseline → treatment", _values, (PAGE,), numeric=True),
    VerdictColumn(
        "equivalence p",
        lambda line: (
            wording.probability(line.row.p_equivalence_adjusted)
            if line.row.verdict in (VerdictLabel.EQUIVALENT, VerdictLabel.INCONCLUSIVE)
            and line.row.p_equivalence_adjusted is not None
            else None
        ),
        (BELOW,),
    ),
    # A terminal has the margin in the title above the rows, a page the detectable effect in the margin's second line.
    VerdictColumn(
        "margin",
        lambda line: wording.margin(line.row, "±"),
        (PAGE, MARKDOWN),
        {PAGE: _margin_on_page},
        numeric=True,
    ),
    VerdictColumn(
        "detects",
        lambda line: None if line.row.mde is None else wording.mde_text(line.row),
        (BELOW,),
        meaning="the smallest effect that this number of blocks detects with 80 % power, given this noise",
    ),
    VerdictColumn("gate", lambda line: line.gate, (MARKDOWN,)),
]


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
    pairs = contrasts.where(lambda row: row.family == BETWEEN)
    apart: list[Fragment] = []
    if pairs.rows:
        summary = "every two treatments compared: estimate, interval, margin"
        warned = bullets(wording.warnings(pairs.rows))
        apart = [fold(f"All {len(pairs.rows)} pairs", summary, *contrast_tables(pairs), warned)]
    used = list(dict.fromkeys(row.verdict for row in contrasts.rows))
    meanings = QUALIFIERS | {column.heading: column.meaning for column in COLUMNS if column.meaning}
    sentences = bullets(map(in_words, contrasts.rows))
    return join(
        *contrast_tables(contrasts.where(lambda row: row.family != BETWEEN), note),
        *apart,
        fold("What the words mean", ", ".join(used), Fragment("legend", used, meanings)),
        fold("The same in words", "one sentence per row, for quoting or reading aloud", sentences),
    )


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
    tables = contrast_tables(contrasts)
    if len(contrasts.rows) > FOLD_FROM:
        summary = "response by response: estimate, interval, margin"
        tables = [fold(f"All {len(contrasts.rows)} exploratory contrasts", summary, *tables)]
    counts = Counter(row.verdict for row in contrasts.rows if not row.twin)
    words = wording.listing([f"{count} {word}" for word, count in counts.most_common()])
    texts = (paragraph(text, "mt-prose") for text in (lead, f"{counts.total()} contrasts: {words}."))
    return join(*texts, _called_table(contrasts).fragment(), *tables)


def _called_table(contrasts: Contrasts) -> Table:
    counted: dict[tuple[str, str], dict[str, Counter[VerdictLabel]]] = {}
    for row in contrasts.rows:
        if not row.twin:
            by_family = counted.setdefault((row.treatment, row.baseline), {})
            by_family.setdefault(_family(row), Counter())[row.verdict] += 1
    families = [name for name in _FAMILIES if any(name in by_family for by_family in counted.values())]
    against = "against {}" if len(contrasts.baselines) > 1 else ""

    def called(family: str, pair: tuple[str, str]) -> Cell | None:
        if not (counts := counted[pair].get(family)):
            return None
        different = {word: count for word, count in counts.items() if word.different}
        text = ", ".join(f"{count} {word}" for word, count in different.items()) or "none"
        return Cell(f"{text} of {counts.total()}", sum(different.values()))

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


def contrast_tables(contrasts: Contrasts, note: str = "") -> list[Fragment]:
    """Return verdict rows as tables, one per load and family; the last has the note."""
    panels = contrasts.panels("load", "family")
    return [_table(panel, note if panel is panels[-1] else "").fragment() for panel in panels]


def _table(contrasts: Contrasts, note: str) -> Table:
    rows, first, usual = contrasts.rows, contrasts.rows[0], (contrasts.blocks, contrasts.confidence)
    # A level that moves takes a proportional cost with it.
    moving = {"added": wording.within(first)}
    columns: list[Column[Line]] = [
        Column(
            column.heading + moving.get(column.heading, ""),
            partial(column.value_in, PAGE),
            numeric=column.numeric,
            middle=column.middle,
        )
        for column in columns_of(PAGE)
    ]
    is_mixed = any(not row.exploratory for row in rows)
    caption = "Verdicts" if is_mixed else "Exploratory contrasts"
    if first.family == BETWEEN:
        caption = f"Pairs, {caption.lower()}"
    if first.load:
        caption += f" at {first.load}"
    if len(contrasts.baselines) == 1:
        caption += f", against {first.baseline}"
    if None not in usual:
        counted = f"{contrasts.counted}{wording.within(first)}"
        caption += f"; {contrasts.blocks} {counted}, intervals at {wording.percent(contrasts.confidence)}"
        if any(row.n_blocks > 0 and (row.n_blocks, row.confidence) != usual for row in rows):
            caption += " unless stated otherwise"
    keys = [f"{row.load}|{row.response}|{row.treatment}|{row.baseline}" for row in rows]
    groups = [wording.typical(row) + (" (exploratory)" if row.exploratory and is_mixed else "") for row in rows]
    return Table.from_rows(caption, columns, [Line(row, contrasts) for row in rows], note, keys=keys, groups=groups)


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
