"""Tables and sentences of a recorded study, as HTML in a notebook and as aligned text elsewhere.

Examples
--------
>>> import meshtrial as mt
>>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
>>> mt.tables.headline(study).partition(" is ")[0]
'Against none, at 300 requests per second over 4 connections: node-proxy'
>>> mt.tables.verdict_table(study)._repr_html_().count("<table") > 0
True
"""

from __future__ import annotations

from inspect import isfunction
from typing import TYPE_CHECKING

from numpy.random import default_rng

from meshtrial import stats
from meshtrial.api.study import RecordedStudy, of_record, of_study
from meshtrial.inference.between import compare, differences
from meshtrial.inference.instrument import recorded_noise_logs
from meshtrial.prediction.accuracy import accuracy_table
from meshtrial.report import Fragment
from meshtrial.report import tables as made
from meshtrial.stats.calibration import recorded_noise

headline = of_study(made.headline)
verdict_sentence = of_study(made.verdict_sentence)
trust = of_study(made.trust)
verdict_table = of_study(made.verdict_table)
ranks = of_study(made.ranks)
exploratory_table = of_study(made.exploratory_table)
cost = of_study(made.cost)
described = of_study(made.described)
mechanism = of_study(made.mechanism)
money = of_study(made.money)
money_at = of_study(made.money_at)
validity = of_study(made.validity)
design = of_record(made.design)
method_and_limits = of_record(made.method_and_limits)
provenance = of_record(made.provenance)
citation = of_record(made.citation)
# For one run.
run_facts = of_record(made.run_facts)
run_gates = of_record(made.run_gates)
run_proofs = of_record(made.run_proofs)
run_resources = of_record(made.run_resources)
run_log = of_record(made.run_log)
# For studies that inject delays, scale out, restart or change something, or decompose a cost.
aa_table = of_study(made.aa_table)
decomposition = of_study(made.decomposition)
generators = of_study(made.generators)
growth_contrasts = of_study(made.growth_contrasts)
costs_of_endpoints_and_rate = of_study(made.costs_of_endpoints_and_rate)
marginal_costs = of_study(made.marginal_costs)
restarts = of_study(made.restarts)
changes = of_study(made.changes)


def moved(study: RecordedStudy) -> Fragment:
    """List the verdicts that differ between a re-analysis after the fact and the declared analysis.

    Parameters
    ----------
    study : RecordedStudy
        From :meth:`RecordedStudy.reanalyse`.

    Examples
    --------
    >>> import meshtrial as mt
    >>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
    >>> mt.tables.moved(study)
    None of the 4 verdicts of primary responses changes.
    """
    return made.moved(study.recorded, study.data, study.after_the_fact)


def between(study: RecordedStudy, *others: RecordedStudy) -> Fragment:
    """Compare the declared verdicts of recorded studies of one question: agreement, differences, variation of days.

    ``meshtrial compare DIR DIR`` prints the same.

    Parameters
    ----------
    study : RecordedStudy
        The study that the others are compared with.
    *others : RecordedStudy

    Raises
    ------
    UsageError
        If they ask different questions, or have no load and no contrast in common.

    Examples
    --------
    >>> import meshtrial as mt
    >>> found = mt.recorded_studies()
    >>> study = mt.open_study(found["ambient_vs_no_mesh-20261121T211720Z-77c58730"])
    >>> mt.tables.between(study)
    Traceback (most recent call last):
    meshtrial.errors.UsageError: one study is not enough: name two or more that ask the same question
    """
    studies = [each.recorded for each in (study, *others)]
    return made.between(studies, compare(studies), differences(studies))


def accuracy(study: RecordedStudy, *single_hop: RecordedStudy) -> Fragment:
    """Compare what a study of generated systems measured with what studies of a single hop predict for them.

    Parameters
    ----------
    study : RecordedStudy
        Of the study `prediction`.
    *single_hop : RecordedStudy
        Studies with the same treatments at the rates of the systems' services, recorded on the same machine.

    Raises
    ------
    UsageError
        If the studies of a single hop lack a treatment, or cannot be used together.

    Examples
    --------
    >>> import meshtrial as mt
    >>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
    >>> mt.tables.accuracy(study)
    Nothing is predicted: name studies of a single hop, recorded on this machine.
    """
    return accuracy_table(study.recorded, [each.recorded for each in single_hop])


def simulated_studies(seed: int = 1, studies: int = 400) -> Fragment:
    """Compute how often the inference is wrong on simulated studies whose truth is known.

    Parameters
    ----------
    seed : int, optional
    studies : int, optional
        Number per situation; use 4000 for numbers to publish.
    """
    return made.simulation_checks(stats.run_all(seed, studies))


def simulated_under_noise_of(study: RecordedStudy, seed: int = 1, studies: int = 400) -> Fragment:
    """Compute the same under the recorded noise of a study's baseline and its A/A twin.

    Parameters
    ----------
    study : RecordedStudy
        A study with at least four complete blocks.
    seed, studies : int, optional
        As in :func:`simulated_studies`.
    """
    rows = recorded_noise(recorded_noise_logs(study.path), default_rng(seed), studies)
    return made.simulation_checks(tuple(rows))


if not TYPE_CHECKING:  # type checkers treat assigned names as public, and cannot evaluate a computed list
    __all__ = [name for name, value in vars(made).items() if isfunction(value) and name in globals()] + [
        "accuracy",
        "simulated_studies",
        "simulated_under_noise_of",
    ]
