"""Tables and sentences of a recorded study: HTML in a notebook, aligned text elsewhere.

Examples
--------
>>> import meshtrial as mt
>>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
>>> mt.tables.headline(study).partition(" is ")[0]
'Against none, at 300 requests a second over 4 connections: node-proxy'
>>> mt.tables.verdict_table(study)._repr_html_().count("<table") > 0
True
"""

from __future__ import annotations

from numpy.random import default_rng

from meshtrial import stats
from meshtrial.api.bind import of_study
from meshtrial.api.study import RecordedStudy
from meshtrial.inference.instrument import recorded_noise_logs
from meshtrial.report import Fragment
from meshtrial.report import tables as made
from meshtrial.stats.calibration import recorded_noise

headline = of_study(made.headline)
verdict_sentence = of_study(made.verdict_sentence)
doubts = of_study(made.doubts)
verdict_table = of_study(made.verdict_table)
exploratory_table = of_study(made.exploratory_table)
cost = of_study(made.cost)
mechanism = of_study(made.mechanism)
money = of_study(made.money)
validity = of_study(made.validity)
design = of_study(made.design)
method_and_limits = of_study(made.method_and_limits)
provenance = of_study(made.provenance)
# Of studies that inject delays, scale out, restart something, or take a cost apart.
aa_table = of_study(made.aa_table)
decomposition = of_study(made.decomposition)
generators = of_study(made.generators)
growth_contrasts = of_study(made.growth_contrasts)
costs_of_endpoints_and_rate = of_study(made.costs_of_endpoints_and_rate)
restarts = of_study(made.restarts)


def simulated_studies(seed: int = 1, studies: int = 400) -> Fragment:
    """How often the inference is wrong on simulated studies whose truth is known.

    Parameters
    ----------
    seed : int, optional
    studies : int, optional
        Of every situation; 4000 for figures that one may quote.
    """
    return made.simulation_checks(stats.run_all(seed, studies))


def simulated_under_noise_of(study: RecordedStudy, seed: int = 1, studies: int = 400) -> Fragment:
    """The same under the noise that a study's baseline and its A/A twin recorded.

    Parameters
    ----------
    study : RecordedStudy
        With at least four complete blocks.
    seed, studies : int, optional
        As in :func:`simulated_studies`.
    """
    return made.simulation_checks(recorded_noise(recorded_noise_logs(study.path), default_rng(seed), studies))


__all__ = [
    "aa_table",
    "cost",
    "costs_of_endpoints_and_rate",
    "decomposition",
    "design",
    "doubts",
    "exploratory_table",
    "generators",
    "growth_contrasts",
    "headline",
    "mechanism",
    "method_and_limits",
    "money",
    "provenance",
    "restarts",
    "simulated_studies",
    "simulated_under_noise_of",
    "validity",
    "verdict_sentence",
    "verdict_table",
]
