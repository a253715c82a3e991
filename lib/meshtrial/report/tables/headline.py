"""What a report shows first: a sentence on the verdicts at each load, and whether they can be trusted.

A sentence has the words of the verdict table only. It is a list of lines: its opening, and a clause per treatment. This
module selects verdicts and numbers; ``templates/sentences.j2`` words them.
"""

from collections import Counter
from collections.abc import Sequence

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


def headlines(data: StudyData) -> list[str]:
    """Return one sentence per load."""
    return [" ".join(lines) for lines in clauses(data)]


def headline(data: StudyData) -> str:
    """Return the sentences of all loads as one text."""
    return " ".join(headlines(data))


def clauses(data: StudyData) -> list[list[str]]:
    """Return the sentence of each load in parts: its opening, and a clause per treatment."""
    return [[str(line) for line in lines] for lines in _sentences(data)]


def headline_fragment(data: StudyData) -> Fragment:
    """Return the sentences with notes on how to read them, if needed."""
    notes, covered = growth_notes(data), _covered_response(data)
    others = [wording.short_label(name) for name in data.plan.study.primary if name != covered]
    if covered and others:
        notes.append(f"This summary covers {wording.short_label(covered)}; {wording.listing(others)}: see the table.")
    return Fragment("headline", _sentences(data), notes)


def _sentences(data: StudyData) -> list[Lines]:
    finished = not any(row.verdict is VerdictLabel.PROVISIONAL for row in data.verdicts)
    sentences: list[Lines] = []
    if data.verdicts and finished:
        growth = growth_lines(data)
        sentences = [growth] if growth else [_sentence(data, load) for load in data.plan.study.loads]
    if any(sentences):
        return [lines for lines in sentences if lines]
    kept, planned = max((frames.blocks_of(data, load) for load in frames.loads(data)), default=(0, 0))
    if not data.verdicts:
        why = f"No verdict: {kept} of {planned} planned blocks are used, and no contrast has been computed."
    elif finished and all(row.twin for row in data.verdicts):
        why = f"Only the A/A twin was compared: {data.plan.study.baseline.name} is the only treatment."
    else:
        why = (
            f"No verdict yet: provisional, {kept} of {planned} blocks. The numbers below are preliminary; verdicts "
            "follow when the plan is complete."
        )
    return [[why]]


def _judged(data: StudyData, load: str | None = None) -> list[VerdictRow]:
    """Return primary contrasts of recorded responses, without the A/A twin and pairs of treatments."""
    contrasts = frames.contrasts(data, load=load, primary=True, between=False)
    return [row for row in contrasts.rows if not row.twin and contrasts.reported(row)]


def _sentence(data: StudyData, load: Load) -> Lines:
    rows = _judged(data, load.label)
    if not rows:
        return []
    contrasts = list(dict.fromkeys((row.treatment, row.baseline) for row in rows))
    covered, where = _covered_response(data), wording.load_text(load)
    rows = [row for row in rows if not covered or row.response == covered] or rows
    if len(contrasts) > MOST_CLAUSES:
        counts = Counter(str(row.verdict) for row in rows).most_common()
        said = wording.listing([f"{count} {word}" for word, count in counts])
        return [f"At {where}, {wording.short_label(covered)} of {len(rows)} contrasts: {said}."]
    bases = {base for _, base in contrasts}
    base = bases.pop() if len(bases) == 1 else ""
    groups = {pair: [row for row in rows if (row.treatment, row.baseline) == pair] for pair in contrasts}
    found = [pair for pair, group in groups.items() if group]
    return [
        f"Against {base}, at {where}:" if base else f"At {where}:",
        *(_clause(one[0], "" if base else one[1], groups[one], "." if one == found[-1] else ";") for one in found),
        *places_line(data, load.label, covered),
    ]


def _covered_response(data: StudyData) -> str:
    """Return the one response that a shortened headline covers, or nothing if the headline covers all."""
    rows = _judged(data)
    return rows[0].response if len(rows) > MOST_CLAUSES else ""


def _clause(treatment: str, against: str, rows: Sequence[VerdictRow], end: str) -> Fragment:
    """Return the findings on one treatment; `against` is empty if the sentence's opening names the baseline."""
    (word, side), *others = {(row.verdict, row.qualifier) for row in rows}
    if not others and word.standing == "stopped":  # every response has the same verdict, and nothing was compared
        counts = (one.message.split(":")[0] for one in rows[0].warnings if one.code == RATE_FAILURES)
        return Fragment("sentences.stopped", treatment, against, word, side, next(counts, ""), end)
    costing = [row for row in rows if row.verdict in directions("resource")]
    being = [_finding(row) for row in rows if row not in costing]
    verb = "uses" if all(wording.response_of(row).used_up for row in costing) else "has"
    return Fragment("sentences.clause", treatment, against, being, verb, [_finding(row) for row in costing], end)


def _finding(row: VerdictRow) -> tuple[VerdictLabel, str, str]:
    """Return a verdict's word, the response that it is about, and the numbers behind it."""
    name, word = wording.short_label(row.response), row.verdict
    about = f"at {name.removesuffix(' latency')}" if row.response.startswith("latency_") else f"in {name}"
    why = wording.qualifier(row)
    if word.different:
        why = ", ".join(filter(None, (wording.effect(row), wording.other_effect(row), why)))
    elif word is VerdictLabel.EQUIVALENT and row.margin_floor is not None:
        why = wording.within_floor(row)
    elif word is VerdictLabel.EQUIVALENT:
        why = f"within {wording.margin_share(row) or 'the margin'}"
    return word, name if word in directions("resource") else about, why


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
