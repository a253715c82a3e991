"""The verdict in one sentence, in the words of the verdict table and no others."""

from __future__ import annotations

from markupsafe import Markup

from meshtrial.design.study import Load
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.markup import Fragment, badge, box, bullets, joined, part
from meshtrial.report.tables.pieces import Piece
from meshtrial.report.tables.scaled import growth_notes, growth_sentences
from meshtrial.report.wording import kind

# Beyond this many clauses over all loads a headline is a table; then it speaks of the first primary response alone.
MOST_CLAUSES = 12
REFERENCE_NOTE = (
    "The proxied treatments are reference data planes built from plain Envoy on one machine. They show what an "
    "architecture or a feature costs there; they are not a measurement of any mesh product."
)


def headlines(data: StudyData) -> list[str]:
    """One sentence a load."""
    return ["".join(piece.text for piece in sentence) for sentence in _sentences(data)]


def headline(data: StudyData) -> str:
    """The sentences of all loads, one after another."""
    return " ".join(headlines(data))


def _sentences(data: StudyData) -> list[list[Piece]]:
    if any(kind(row) == "provisional" for row in data.verdicts):
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


def _sentence_html(sentence: list[Piece]) -> Markup:
    return part("headline", _lines(sentence))


def verdict_sentence(data: StudyData) -> Fragment:
    """The headline: a sentence a load, what the A/A twin says, and what the whole rests on."""
    rest = [*twin_sentences(data), rests_on(data), *notes_on_headline(data)]
    if data.plan.study.backend == "local":
        rest.append(REFERENCE_NOTE)
    html = headline_html(data) + box(bullets(rest), alarm=bool(twin_called(data)))
    return Fragment(html, "\n".join([*headlines(data), *rest]))


def headline_html(data: StudyData) -> Markup:
    """The sentences alone."""
    return joined(_sentence_html(sentence) for sentence in _sentences(data))


def notes_on_headline(data: StudyData) -> list[str]:
    """How to read the sentences, and of what they are silent."""
    return [*growth_notes(data), *_spoken_of(data), *_not_reported(data)]


def twin_called(data: StudyData) -> list[VerdictRow]:
    """Primary contrasts in which the A/A twin was called different from the baseline that it equals."""
    rows = [row for row in frames.verdicts(data, twin=True) if row.response in data.plan.study.primary]
    return [row for row in rows if kind(row) in wording.DIFFERENT]


def twin_sentences(data: StudyData) -> list[str]:
    """What the study's own A/A test says."""
    study = data.plan.study
    if study.twin is None:
        return ["This study has no A/A twin: nothing in it shows how large its own noise is."]
    rows = [row for row in frames.verdicts(data, twin=True) if row.response in study.primary]
    rows = [row for row in rows if not frames.not_reported(data, row) and kind(row) != "provisional"]
    if not rows:
        return [f"The A/A twin {study.twin.name} has no verdict yet."]
    called = twin_called(data)
    if called:
        named = wording.listing([f"{kind(row)} at {_where(data, row)}" for row in called])
        return [
            f"Warning: the A/A twin {study.twin.name}, deployed exactly like {study.baseline.name}, was called "
            f"{named}. At the study's error level this happens by chance now and then; read contrasts of that size "
            "with care."
        ]
    said = [
        f"{wording.short_label(row.response)} {wording.change(row.ratio, row.ci_high)}"
        for row in rows
        if row.ratio is not None
    ]
    return [
        f"The A/A twin {study.twin.name}, deployed exactly like {study.baseline.name}, was not called different from it"
        + (f" ({', '.join(said)})." if said and len(said) <= 6 else ".")
    ]


def _where(data: StudyData, row: VerdictRow) -> str:
    name = wording.short_label(row.response)
    return f"{name}, {row.load}" if len(data.plan.study.loads) > 1 else name


def rests_on(data: StudyData) -> str:
    """Blocks, runs and their order."""
    study = data.plan.study
    parts = []
    for load in study.loads:
        kept, planned = frames.blocks_of(data, load.label)
        where = f" at {load.label}" if len(study.loads) > 1 else ""
        parts.append(f"{kept} of {planned} planned blocks{where}")
    shown = wording.listing(parts)
    runs = len(data.included_runs())
    order = "one fixed order" if study.order == "sequential" else "a random order of its own"
    return (
        f"Based on {shown}, each with every treatment in {order}: {wording.count(runs)} runs, every one a fresh "
        "deployment. Percentiles are those of a typical run."
    )


def _not_reported(data: StudyData) -> list[str]:
    """Primary responses that the runs were too short to give, said once and not as a verdict."""
    found: dict[str, dict[str, None]] = {}
    for row in frames.verdicts(data, twin=False):
        if row.response in data.plan.study.primary and frames.not_reported(data, row):
            found.setdefault(row.response, {})[row.load] = None
    floor = data.plan.study.gates.sample_floor
    why = f"fewer than {floor:g} requests of a run lie beyond it; measure longer or at a higher rate"
    return [
        f"{wording.short_label(name)} is not reported at {wording.listing(list(loads))}"
        + (f": {why}." if name.startswith("latency_") else ": it was not measured.")
        for name, loads in found.items()
    ]


def _nothing_yet(data: StudyData) -> str:
    kept, planned = max((frames.blocks_of(data, load) for load in frames.loads(data)), default=(0, 0))
    if data.verdicts:
        return (
            f"No verdict yet: provisional, {kept} of {planned} blocks. The numbers below are a look at an unfinished "
            "study; verdicts come when its plan is through."
        )
    return (
        f"No verdict: {kept} of {planned} planned blocks take part in the inference, and no contrast has been computed."
    )


def _sentence(data: StudyData, load: Load) -> list[Piece]:
    study = data.plan.study
    rows = [row for row in frames.verdicts(data, load=load.label, twin=False) if row.response in study.primary]
    rows = [row for row in rows if not frames.not_reported(data, row)]
    if not rows:
        return []
    contrasts = list(dict.fromkeys((row.treatment, row.baseline) for row in rows))
    spoken = _shortened(data)
    rows = [row for row in rows if not spoken or row.response == spoken] or rows
    common = {base for _, base in contrasts}
    base = next(iter(common)) if len(common) == 1 else ""
    where = wording.load_text(load)
    pieces = [Piece(f"Against {base}, at {where}:" if base else f"At {where}:")]
    for treatment, against in contrasts:
        mine = [row for row in rows if (row.treatment, row.baseline) == (treatment, against)]
        if mine:
            pieces += [Piece(";" if len(pieces) > 1 else ""), Piece(" ", "clause"), Piece(treatment, "strong")]
            pieces += [Piece("" if base else f" against {against}"), *_clause(mine)]
    return [*pieces, Piece(".")]


def _shortened(data: StudyData) -> str:
    """The one response that the headline speaks of, where all of them would be too much; else nothing."""
    study = data.plan.study
    rows = [row for row in frames.verdicts(data, twin=False) if row.response in study.primary]
    rows = [row for row in rows if not frames.not_reported(data, row)]
    return rows[0].response if len(rows) > MOST_CLAUSES else ""


def _spoken_of(data: StudyData) -> list[str]:
    spoken = _shortened(data)
    others = [wording.short_label(name) for name in data.plan.study.primary if name != spoken]
    if not spoken or not others:
        return []
    return [f"This summary covers {wording.short_label(spoken)}; {wording.listing(others)}: see the table."]


def _clause(rows: list[VerdictRow]) -> list[Piece]:
    stopped = {kind(row) for row in rows}
    if len(stopped) == 1 and stopped <= {"invalid", "saturated"}:
        why = (
            "it did not hold the asked rate"
            if stopped == {"saturated"}
            else "its gates or proofs failed, or too few blocks are left"
        )
        return [Piece(" is "), Piece(next(iter(stopped)), "strong", "mt-stopped"), Piece(f": {why}")]
    using = [row for row in rows if kind(row) in ("more", "less")]
    being = [row for row in rows if row not in using]
    pieces = _listed(" is ", being)
    verb = "uses" if all(wording.response_of(row).used_up for row in using) else "has"
    return pieces + _listed(f", and {verb} " if being else f" {verb} ", using)


def _listed(lead: str, rows: list[VerdictRow]) -> list[Piece]:
    pieces: list[Piece] = []
    for index, row in enumerate(rows):
        pieces.append(Piece(lead if index == 0 else " and " if index == len(rows) - 1 else ", "))
        pieces += _said(row)
    return pieces


def _said(row: VerdictRow) -> list[Piece]:
    name, word = wording.short_label(row.response), kind(row)
    verdict = Piece(word, "strong", f"mt-{wording.look(row).tone}")
    if word in ("more", "less"):
        return [verdict, Piece(f" {name}"), *_bracket(_size(row))]
    about = f" at {name.removesuffix(' latency')}" if row.response.startswith("latency_") else f" in {name}"
    if word in ("slower", "faster", "higher", "lower"):
        return [verdict, Piece(about), *_bracket(_size(row))]
    if word == "equivalent" and row.margin_floor is not None:
        return [verdict, Piece(about), *_bracket(wording.within_floor(row))]
    if word == "equivalent":
        margin = f"within {wording.rounded_percent(row.margin)}" if row.margin is not None else "within the margin"
        return [verdict, Piece(about), *_bracket(margin)]
    return [verdict, Piece(about), *_bracket(wording.qualifier(row))]


def _bracket(text: str) -> list[Piece]:
    return [Piece(f" ({text})", "quiet")] if text else []


def _size(row: VerdictRow) -> str:
    parts = []
    if row.difference is not None:
        parts.append(wording.in_unit(row.response, row.difference, sign=True))
    if row.ratio is not None:
        parts.append(wording.change(row.ratio, row.ci_high))
    if wording.qualifier(row):
        parts.append(wording.qualifier(row))
    return ", ".join(parts)


def verdict_badge(row: VerdictRow) -> Markup:
    """A verdict as HTML."""
    mark = wording.look(row)
    return badge(mark.glyph, mark.word, mark.tone)
