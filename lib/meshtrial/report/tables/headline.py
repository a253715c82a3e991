"""What a report shows first: a sentence on the verdicts at each load, and whether they can be trusted.

A sentence has the words of the verdict table only. It is a list of lines: its opening, and a clause per treatment. This
module selects verdicts and numbers; ``templates/sentences.j2`` words them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from meshtrial.design.load import Load
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.checks import checks, limits, tally
from meshtrial.report.markup import Fragment, join
from meshtrial.report.tables.growth import growth_lines, growth_notes
from meshtrial.report.tables.verdicts import places_line
from meshtrial.vocabulary import RATE_FAILURES, VerdictLabel, directions

# With more clauses than this over all loads, the headline covers the first primary response only. With more contrasts
# at one load it counts their verdicts.
MOST_CLAUSES = 12
LONG = 450  # letters of a headline that fills a phone's screen
Lines = Sequence[Fragment | str]


@dataclass(frozen=True)
class Finding:
    """One verdict of a sentence: its word, the response that it is about, and the numbers behind it."""

    word: VerdictLabel
    about: str
    why: str


@dataclass(frozen=True)
class Clause:
    """The findings on one treatment."""

    treatment: str
    against: str  # empty if the sentence's opening names the baseline
    stopped: VerdictLabel | None  # the verdict, if every response has the same one and nothing was compared
    side: str = ""  # the side whose runs failed, if it was not the treatment's alone
    counts: str = ""  # how often each side missed the rate, if that is why nothing was compared
    being: Sequence[Finding] = ()  # "is slower at p50"
    costing: Sequence[Finding] = ()  # "uses more CPU"
    verb: str = "has"


def headlines(data: StudyData) -> list[str]:
    """Return one sentence per load."""
    return [" ".join(map(str, lines)) for lines in _sentences(data)]


def headline(data: StudyData) -> str:
    """Return the sentences of all loads as one text."""
    return " ".join(headlines(data))


def clauses(data: StudyData) -> list[list[str]]:
    """Return the sentence of each load in parts: its opening, and a clause per treatment."""
    return [[str(line) for line in lines] for lines in _sentences(data)]


def headline_fragment(data: StudyData) -> Fragment:
    """Return the sentences with notes on how to read them, if needed."""
    return Fragment("headline", _sentences(data), [*growth_notes(data), *_coverage_note(data)])


def _sentences(data: StudyData) -> list[Lines]:
    sentences: list[Lines] = []
    if data.verdicts and _finished(data):
        growth = growth_lines(data)
        sentences = [growth] if growth else [_sentence(data, load) for load in data.plan.study.loads]
    return [lines for lines in sentences if lines] or [[_no_verdict(data)]]


def _judged(data: StudyData, load: str | None = None) -> list[VerdictRow]:
    """Return primary contrasts of recorded responses, without the A/A twin and pairs of treatments."""
    contrasts = frames.contrasts(data, load=load, primary=True, between=False)
    return [row for row in contrasts.rows if not row.twin and contrasts.reported(row)]


def _finished(data: StudyData) -> bool:
    return not any(row.verdict is VerdictLabel.PROVISIONAL for row in data.verdicts)


def _no_verdict(data: StudyData) -> str:
    kept, planned = max((frames.blocks_of(data, load) for load in frames.loads(data)), default=(0, 0))
    if data.verdicts and all(row.twin for row in data.verdicts) and _finished(data):
        return f"Only the A/A twin was compared: {data.plan.study.baseline.name} is the only treatment."
    if data.verdicts:
        return (
            f"No verdict yet: provisional, {kept} of {planned} blocks. The numbers below are preliminary; verdicts "
            "follow when the plan is complete."
        )
    return f"No verdict: {kept} of {planned} planned blocks are used, and no contrast has been computed."


def _sentence(data: StudyData, load: Load) -> Lines:
    rows = _judged(data, load.label)
    if not rows:
        return []
    contrasts = list(dict.fromkeys((row.treatment, row.baseline) for row in rows))
    covered = _covered_response(data)
    rows = [row for row in rows if not covered or row.response == covered] or rows
    if len(contrasts) > MOST_CLAUSES:
        counts = Counter(str(row.verdict) for row in rows).most_common()
        said = wording.listing([f"{count} {word}" for word, count in counts])
        return [f"At {wording.load_text(load)}, {wording.short_label(covered)} of {len(rows)} contrasts: {said}."]
    bases = {base for _, base in contrasts}
    base = bases.pop() if len(bases) == 1 else ""
    where = wording.load_text(load)
    groups = {pair: [row for row in rows if (row.treatment, row.baseline) == pair] for pair in contrasts}
    found = [_clause(name, "" if base else against, group) for (name, against), group in groups.items() if group]
    return [
        f"Against {base}, at {where}:" if base else f"At {where}:",
        *(Fragment("sentences.clause", one, "." if one is found[-1] else ";") for one in found),
        *places_line(data, load.label, covered),
    ]


def _covered_response(data: StudyData) -> str:
    """Return the one response that a shortened headline covers, or nothing if the headline covers all."""
    rows = _judged(data)
    return rows[0].response if len(rows) > MOST_CLAUSES else ""


def _coverage_note(data: StudyData) -> list[str]:
    covered = _covered_response(data)
    others = [wording.short_label(name) for name in data.plan.study.primary if name != covered]
    if not covered or not others:
        return []
    return [f"This summary covers {wording.short_label(covered)}; {wording.listing(others)}: see the table."]


def _clause(treatment: str, against: str, rows: Sequence[VerdictRow]) -> Clause:
    (word, side), *others = {(row.verdict, row.qualifier) for row in rows}
    if not others and word.standing == "stopped":
        counts = (one.message.split(":")[0] for one in rows[0].warnings if one.code == RATE_FAILURES)
        return Clause(treatment, against, word, side, next(counts, ""))
    costing = [row for row in rows if row.verdict in directions("resource")]
    being = [_finding(row) for row in rows if row not in costing]
    verb = "uses" if all(wording.response_of(row).used_up for row in costing) else "has"
    return Clause(treatment, against, None, "", "", being, [_finding(row) for row in costing], verb)


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


# --- first screen -----------------------------------------------------------------------------------------------------


def trust(data: StudyData) -> Fragment:
    """Show six checks of whether the verdicts can be trusted, and the limits; warnings are in their details."""
    results = checks(data)
    return Fragment("trust", (*results, limits(data)), tally(results))


def verdict_sentence(data: StudyData) -> Fragment:
    """Show the headline and the checks."""
    return join(headline_fragment(data), trust(data))


def first_screen(data: StudyData) -> Fragment:
    """The headline, the checks, and the picture of all primary contrasts beside them."""
    from meshtrial.report.figures.forest import answer  # the other tables need no matplotlib

    ahead = tally(checks(data)) if len(headline(data)) > LONG else ""
    return Fragment("answer", headline_fragment(data), trust(data), answer(data), ahead)
