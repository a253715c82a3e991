"""The verdict in one sentence, in the words of the verdict table and no others."""

from __future__ import annotations

from markupsafe import Markup

from meshtrial.design.study import Load
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.markup import Fragment, Piece, bullets, part
from meshtrial.report.tables.growth import growth_notes, growth_sentences
from meshtrial.report.tables.ranks import rank_sentence
from meshtrial.vocabulary import Word, directions

# Beyond this many clauses over all loads a headline is a table; then it speaks of the first primary response alone.
MOST_CLAUSES = 12


def headlines(data: StudyData) -> list[str]:
    """One sentence a load."""
    return ["".join(piece.text for piece in sentence) for sentence in _sentences(data)]


def headline(data: StudyData) -> str:
    """The sentences of all loads, one after another."""
    return " ".join(headlines(data))


def _sentences(data: StudyData) -> list[list[Piece]]:
    if not _finished(data):
        return [[Piece(_nothing_yet(data))]]
    found = growth_sentences(data) if data.verdicts else []
    found = found or ([_sentence(data, load) for load in data.plan.study.loads] if data.verdicts else [])
    return [sentence for sentence in found if sentence] or [[Piece(_nothing_yet(data))]]


def clauses(data: StudyData) -> list[list[str]]:
    """The sentence of each load in parts: how it begins, and a clause a treatment."""
    return [["".join(piece.text for piece in line).strip() for line in _lines(found)] for found in _sentences(data)]


def _lines(sentence: list[Piece]) -> list[list[Piece]]:
    lines: list[list[Piece]] = [[]]
    for piece in sentence:
        if piece.weight == "clause":
            lines.append([])
        lines[-1].append(piece)
    return [line for line in lines if line]


def headline_shown(data: StudyData) -> Fragment:
    """The sentences, and how to read them where that needs words."""
    sentences = [part("headline", _lines(sentence)) for sentence in _sentences(data)]
    notes = [*growth_notes(data), *_spoken_of(data)]
    explained = part("details", "About this summary", bullets(notes).html) if notes else Markup("")
    return Fragment(Markup("").join([*sentences, explained]), "\n".join([*headlines(data), *notes]))


def _judged(data: StudyData, load: str | None = None) -> list[VerdictRow]:
    """Primary contrasts whose response was recorded; not of the A/A twin, and no pairs of treatments."""
    found = frames.contrasts(data, load=load, primary=True, family="")
    return [row for row in found.rows if not row.twin and found.reported(row)]


def _finished(data: StudyData) -> bool:
    return not any(row.verdict is Word.PROVISIONAL for row in data.verdicts)


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


def _sentence(data: StudyData, load: Load) -> list[Piece]:
    rows = _judged(data, load.label)
    if not rows:
        return []
    contrasts = list(dict.fromkeys((row.treatment, row.baseline) for row in rows))
    spoken = _shortened(data)
    rows = [row for row in rows if not spoken or row.response == spoken] or rows
    bases = {base for _, base in contrasts}
    base = bases.pop() if len(bases) == 1 else ""
    where = wording.load_text(load)
    pieces = [Piece(f"Against {base}, at {where}:" if base else f"At {where}:")]
    for treatment, against in contrasts:
        mine = [row for row in rows if (row.treatment, row.baseline) == (treatment, against)]
        if mine:
            pieces += [Piece(";" if len(pieces) > 1 else ""), Piece(" ", "clause"), Piece(treatment, "strong")]
            pieces += [Piece("" if base else f" against {against}"), *_clause(mine)]
    return [*pieces, Piece("."), *rank_sentence(data, load.label, spoken)]


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


def _clause(rows: list[VerdictRow]) -> list[Piece]:
    word, *others = {row.verdict for row in rows}
    if not others and word.standing == "stopped":
        why = (
            "it did not hold the asked rate"
            if word is Word.SATURATED
            else "its runs failed their checks, or too few blocks are left"
        )
        return [Piece(" is "), Piece(word, "strong", f"mt-{word.tone}"), Piece(f": {why}")]
    using = [row for row in rows if row.verdict in directions("resource")]
    being = [row for row in rows if row not in using]
    pieces = _listed(" is ", being)
    verb = "uses" if all(wording.response_of(row).used_up for row in using) else "has"
    return pieces + _listed(f", and {verb} " if being else f" {verb} ", using)


def _listed(lead: str, rows: list[VerdictRow]) -> list[Piece]:
    pieces: list[Piece] = []
    for index, row in enumerate(rows):
        pieces.append(Piece(lead if index == 0 else " and " if index == len(rows) - 1 else ", "))
        pieces += _of_row(row)
    return pieces


def _of_row(row: VerdictRow) -> list[Piece]:
    name, word = wording.short_label(row.response), row.verdict
    about = f" at {name.removesuffix(' latency')}" if row.response.startswith("latency_") else f" in {name}"
    why = wording.qualifier(row)
    if word.different:
        why = ", ".join(filter(None, (wording.effect(row), wording.other_effect(row), why)))
    elif word is Word.EQUIVALENT and row.margin_floor is not None:
        why = wording.within_floor(row)
    elif word is Word.EQUIVALENT:
        why = f"within {wording.margin_share(row) or 'the margin'}"
    pieces = [
        Piece(word, "strong", f"mt-{word.tone}"),
        Piece(f" {name}" if word in directions("resource") else about),
    ]
    return [*pieces, Piece(f" ({why})", "quiet")] if why else pieces
