"""Numbers that published comparisons print, re-analysed: what the notebook ``published`` shows."""

from __future__ import annotations

from dataclasses import dataclass

from meshtrial.api.comparison import Comparison
from meshtrial.articles import published
from meshtrial.articles import tables as made
from meshtrial.articles.published import Settings
from meshtrial.report import Fragment


@dataclass(frozen=True)
class Articles:
    """The transcribed numbers in ``data/published``, held to one error level and one margin.

    Attributes
    ----------
    settings : Settings
    """

    settings: Settings

    @property
    def experiments(self) -> tuple[str, ...]:
        """The experiments whose runs were printed one by one."""
        return published.REPEATED

    def repeated(self, experiment: str) -> Comparison:
        """One of :attr:`experiments`, three pairs, through the paired analysis."""
        return Comparison(published.repeated(experiment, self.settings))

    def both_apps(self) -> Comparison:
        """The six pairs of both apps as one question, asked after the numbers were seen: a hint and no more."""
        return Comparison(published.both_apps(self.settings))

    def sources(self) -> Fragment:
        """Where every number was printed."""
        return made.sources_table()

    def pairs_needed(self) -> Fragment:
        """How many pairs each repeated response would have needed."""
        return made.needed_table(self.settings)

    def printed_once(self) -> Fragment:
        """What was printed without a replicate, as arithmetic."""
        return made.singles_table()

    def claims(self) -> Fragment:
        """Which printed sentences stand."""
        return made.claims_table(self.settings)


def published_articles(*, alpha: float = 0.05, margin: float = 0.05) -> Articles:
    """Open the transcribed numbers.

    Parameters
    ----------
    alpha : float, optional
        Error level of a family.
    margin : float, optional
        What is too small to matter, as a share, for every response.

    Examples
    --------
    >>> import meshtrial as mt
    >>> articles = mt.published_articles(margin=0.05)
    >>> articles.experiments
    ('details, old app', 'details, new app')
    >>> set(articles.repeated("details, old app").verdicts()["verdict"])
    {'inconclusive'}
    """
    return Articles(Settings(alpha=alpha, margin=margin))
