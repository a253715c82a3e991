"""Numbers that published comparisons print, re-analysed: what the notebook ``published`` shows."""

from __future__ import annotations

from dataclasses import dataclass

from meshtrial.api.comparison import Comparison
from meshtrial.articles import discarding, published
from meshtrial.articles import tables as made
from meshtrial.articles.published import Settings
from meshtrial.report import Figure, Fragment


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

    def printed_once(self, *files: str) -> Fragment:
        """What was printed without a replicate, as arithmetic.

        Parameters
        ----------
        *files : str
            Names in ``data/published``, e.g. ``features_2022.csv``; none is all of them.
        """
        return made.singles_table(*files)

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


@dataclass(frozen=True)
class BestOfN:
    """What dropping the worst runs by their maximum does, simulated."""

    outcomes: tuple[discarding.RuleEffect, ...]

    def table(self) -> Fragment:
        """What each rule does to treatments of known truth."""
        return made.outcome_table(self.outcomes)

    def figure(self) -> Figure:
        """How far apart the means of identical treatments come to lie."""
        return made.outcome_figure(self.outcomes)


def best_of_n(*, repetitions: int = 4000, seed: int = 1) -> BestOfN:
    """Simulate published rules: three of eight runs dropped, two of five, and none.

    Parameters
    ----------
    repetitions : int, optional
        Comparisons of each kind.
    seed : int, optional

    Examples
    --------
    >>> import meshtrial as mt
    >>> found = mt.best_of_n(repetitions=500)
    >>> [one.rule.label for one in found.outcomes[:2]]
    ['all 8 kept', 'worst 3 of 8 dropped']
    """
    return BestOfN(discarding.outcomes(repetitions=repetitions, seed=seed))
