"""Figures of a recorded study. Each displays itself in a notebook and has alternative text and a table of its data.

Examples
--------
>>> import meshtrial as mt
>>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
>>> figure = mt.figures.forest(study)
>>> figure.alt.partition(".")[0]
'Forest plot against none'
>>> figure.table.columns[:5]
['treatment', 'against', 'load', 'response', 'blocks']
>>> mt.figures.runs_by_block(study, "latency_p50_s").table.height > 0
True
"""

from __future__ import annotations

from inspect import isfunction
from typing import TYPE_CHECKING

from meshtrial.api.study import RecordedStudy, of_record, of_study
from meshtrial.prediction.accuracy import accuracy_figure
from meshtrial.report import figures as drawn
from meshtrial.report.figure import Figure

answer = of_study(drawn.answer)
forest = of_study(drawn.forest)
runs_by_block = of_study(drawn.runs_by_block)
latency_ccdf = of_study(drawn.latency_ccdf)
added_latency = of_study(drawn.added_latency)
resources = of_study(drawn.resources)
course = of_study(drawn.course)
strip = of_study(drawn.strip)
drift = of_study(drawn.drift)
sessions = of_study(drawn.sessions)
power = of_study(drawn.power)
pairs = of_study(drawn.pairs)
# For one run.
requests_over_time = of_record(drawn.requests_over_time)
components_over_time = of_record(drawn.components_over_time)
# For studies that search capacity, raise the rate, inject delays, or scale out.
capacity = of_study(drawn.capacity)
ramp = of_study(drawn.ramp)
detection = of_study(drawn.detection)
exponents = of_study(drawn.exponents)
machine_limits = of_study(drawn.machine_limits)
cost_by_size = of_study(drawn.cost_by_size)
shares_against_endpoints = of_study(drawn.shares_against_endpoints)
latency_against_endpoints = of_study(drawn.latency_against_endpoints)
configuration_against_endpoints = of_study(drawn.configuration_against_endpoints)


def accuracy(study: RecordedStudy, *single_hop: RecordedStudy) -> Figure:
    """Draw what a study of generated systems measured against what studies of a single hop predict for them.

    Parameters
    ----------
    study, *single_hop : RecordedStudy
        As for :func:`meshtrial.api.tables.accuracy`, with the same errors.

    Examples
    --------
    >>> import meshtrial as mt
    >>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
    >>> mt.figures.accuracy(study).nothing
    True
    """
    return accuracy_figure(study.recorded, [each.recorded for each in single_hop])


def two_studies(study: RecordedStudy, other: RecordedStudy) -> Figure:
    """Draw the declared verdicts of two studies, A and B, on the same axes.

    Parameters
    ----------
    study, other : RecordedStudy

    Examples
    --------
    >>> import meshtrial as mt
    >>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
    >>> mt.figures.two_studies(study, study).table["treatment"].to_list()[:2]
    ['none-aa A (A/A twin)', 'none-aa B (A/A twin)']
    """
    return drawn.two_studies(study.recorded, other.recorded)


if not TYPE_CHECKING:  # type checkers treat assigned names as public, and cannot evaluate a computed list
    __all__ = [name for name, value in vars(drawn).items() if isfunction(value) and name in globals()] + ["accuracy"]
