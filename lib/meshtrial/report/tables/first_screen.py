"""What a report shows first: the headline, whether it can be trusted, and the picture of all primary contrasts."""

from __future__ import annotations

from meshtrial.records.dataset import StudyData
from meshtrial.report.checks import checks, limits, tally
from meshtrial.report.markup import Fragment, join
from meshtrial.report.tables.headline import headline, headline_fragment


def trust(data: StudyData) -> Fragment:
    """Show six checks of whether the verdicts can be trusted, and the limits; warnings are in their details."""
    results = checks(data)
    return Fragment("trust", (*results, limits(data)), tally(results))


def verdict_sentence(data: StudyData) -> Fragment:
    """Show the headline and the checks."""
    return join(headline_fragment(data), trust(data))


LONG = 450  # letters of a headline that fills a phone's screen


def first_screen(data: StudyData) -> Fragment:
    """The headline, the checks, and the picture of all primary contrasts beside them."""
    from meshtrial.report.figures.forest import answer  # the other tables need no matplotlib

    ahead = tally(checks(data)) if len(headline(data)) > LONG else ""
    return Fragment("answer", headline_fragment(data), trust(data), answer(data), ahead)
