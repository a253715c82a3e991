"""What a reader sees first: what was found, in a sentence and a picture, and whether it can be trusted."""

from __future__ import annotations

from meshtrial.records.dataset import StudyData
from meshtrial.report.checks import checks, tally
from meshtrial.report.figures.forest import answer
from meshtrial.report.markup import Fragment
from meshtrial.report.tables.headline import headline, headline_shown
from meshtrial.report.tables.trust import trust

LONG = 450  # letters of a headline that fills a phone's screen


def first_screen(data: StudyData) -> Fragment:
    """The headline, the checks, and the picture of all primary contrasts beside them."""
    ahead = tally(checks(data)) if len(headline(data)) > LONG else ""
    return Fragment("answer", headline_shown(data), trust(data), answer(data), ahead)
