"""The verdict in one sentence, in the words of the verdict table and no others.

A sentence is a list of lines: how it begins, and a clause for each treatment. What a line says is found here; how a
verdict is said stands in ``templates/sentences.j2``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshtrial.design.load import Load
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.markup import Fragment
from meshtrial.report.tables.growth import growth_lines, growth_notes
from meshtrial.report.tables.ranks import places_line
from meshtrial.vocabulary import VerdictLabel, directions

# Beyond this many clauses over all loads a headline is a table; then it speaks of the first primary response alone.
MOST_CLAUSES = 12
Lines = Sequence[Fragment | str]


@dataclass(frozen=True)
class Finding:
    """One verdict inside a sentence: its word, what it is said of, and the numbers behind it."""

    word: VerdictLabel
    about: str
    why: str


@dataclass(frozen=True)
class Clause:
    """What was found of one treatment."""

    treatment: str
    against: str  # empty where the sentence begins with it
    stopped: VerdictLabel | None  # why nothing of it was compared, where that holds for every response
    being: Sequence[Finding] = ()
    costing: Sequence[Finding] = ()  # more or less of a resource
    verb: str = "has"


def headlines(data: StudyData) -> list[str]:
    """One sentence a load."""
    return [" ".join(map(str, lines)) for lines in _sentences(data)]


def headline(data: StudyData) -> str:
    """The sentences of all loads, one after another."""
    return " ".join(headlines(data))


def clauses(data: StudyData) -> list[list[str]]:
    """The sentence of each load in parts: how it begins, and a clause a treatment."""
    return [[str(line) for line in lines] for lines in _sentences(data)]


def headline_shown(data: StudyData) -> Fragment:
    """The sentences, and how to read them where that needs words."""
    return Fragment("headline", _sentences(data), [*growth_notes(data), *_spoken_of(data)])


def _sentences(data: StudyData) -> list[Lines]:
    found: list[Lines] = []
    if data.verdicts and _finished(data):
        growth = growth_lines(data)
        found = [growth] if growth else [_sentence(data, load) for load in data.plan.study.loads]
    return [lines for lines in found if lines] or [[_nothing_yet(data)]]


def _judged(data: StudyData, load: str | None = None) -> list[VerdictRow]:
    """Primary contrasts whose response was recorded; not of the A/A twin, and no pairs of treatments."""
    found = frames.contrasts(data, load=load, primary=True, family="")
    return [row for row in found.rows if not row.twin and found.reported(row)]


def _finished(data: StudyData) -> bool:
    return not any(row.verdict is VerdictLabel.PROVISIONAL for row in data.verdicts)


def _nothing_yet(data: StudyData) -> str:
    kept, planned = max((frames.blocks_of(data, load) for load in frames.loads(data)), default=(0, 0))
    if data.verdicts and all(row.twin for row in data.verdicts) and _finished(data):
        return f"Nothing was compared but the A/A twin: {data.plan.study.baseline.name} is the only treatment."
    if data.verdicts:
        return (
            f"No verdict yet: provisional, {kept} of {planned} blocks. The numbers below are a look at an unfinished "
            "study; verdicts come when its plan is through."
        )
    return (
        f"No verdict: {kept} of {planned} planned blocks take part in the inference, and no contrast has been computed."
    )


def _sentence(data: StudyData, load: Load) -> Lines:
    rows = _judged(data, load.label)
    if not rows:
        return []
    contrasts = list(dict.fromkeys((row.treatment, row.baseline) for row in rows))
    spoken = _shortened(data)
    rows = [row for row in rows if not spoken or row.response == spoken] or rows
    bases = {base for _, base in contrasts}
    base = bases.pop() if len(bases) == 1 else ""
    where = wording.load_text(load)
    groups = {pair: [row for row in rows if (row.treatment, row.baseline) == pair] for pair in contrasts}
    found = [_clause(treatment, "" if base else against, mine) for (treatment, against), mine in groups.items() if mine]
    return [
        f"Against {base}, at {where}:" if base else f"At {where}:",
        *(Fragment("sentences.clause", one, "." if one is found[-1] else ";") for one in found),
        *places_line(data, load.label, spoken),
    ]


def _shortened(data: StudyData) -> str:
    """The one response that the headline speaks of, where all of them would be too much; else nothing."""
    rows = _judged(data)
    return rows[0].response if len(rows) > MOST_CLAUSES else ""


def _spoken_of(data: StudyData) -> list[str]:
    spoken = _shortened(data)
    others = [wording.short_label(name) for name in data.plan.study.primary if name != spoken]
    if not spoken or not others:
        return []
    return [f"This summary covers {wording.short_label(spoken)}; {wording.listing(others)}: see the table."]


def _clause(treatment: str, against: str, rows: Sequence[VerdictRow]) -> Clause:
    word, *others = {row.verdict for row in rows}
    if not others and word.standing == "stopped":
        return Clause(treatment, against, word)
    costing = [row for row in rows if row.verdict in directions("resource")]
    being = [_finding(row) for row in rows if row not in costing]
    verb = "uses" if all(wording.response_of(row).used_up for row in costing) else "has"
    return Clause(treatment, against, None, being, [_finding(row) for row in costing], verb)


def _finding(row: VerdictRow) -> Finding:
    name, word = wording.short_label(row.response), row.verdict
    about = f"at {name.removesuffix(' latency')}" if row.response.startswith("latency_") else f"in {name}"
    why = wording.qualifier(row)
    if word.different:
        why = ", ".join(filter(None, (wording.effect(row), wording.other_effect(row), why)))
    elif word is VerdictLabel.EQUIVALENT and row.margin_floor is not None:
        why = wording.within_floor(row)
    elif word is VerdictLabel.EQUIVALENT:
        why = f"within {wording.margin_share(row) or 'the margin'}"
    return Finding(word, name if word in directions("resource") else about, why)
