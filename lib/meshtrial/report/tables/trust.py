"""The checks of a study laid out: one line each, what to do where one is not fine, and its details behind it."""

from __future__ import annotations

from meshtrial.records.dataset import StudyData
from meshtrial.report.checks import checks, tally
from meshtrial.report.limits import limits
from meshtrial.report.markup import Fragment, join
from meshtrial.report.tables.headline import headline_shown


def trust(data: StudyData) -> Fragment:
    """Six checks of whether the verdicts can be trusted, and what limits the conclusion; warnings in their details."""
    found = checks(data)
    return Fragment("trust", (*found, limits(data)), tally(found))


def verdict_sentence(data: StudyData) -> Fragment:
    """The headline, a sentence a load, and the checks."""
    return join(headline_shown(data), trust(data))
