"""Figures of a recorded study: each shows itself in a notebook, with its alt text and the numbers that it draws.

Examples
--------
>>> import meshtrial as mt
>>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
>>> figure = mt.figures.forest(study)
>>> figure.alt.partition(".")[0]
'Forest plot of ratios to none'
>>> figure.table.columns[:5]
['treatment', 'against', 'load', 'response', 'ratio']
>>> mt.figures.runs_by_block(study, "latency_p50_s").table.height > 0
True
"""

from __future__ import annotations

from meshtrial.api.bind import of_study
from meshtrial.report import figures as drawn

answer = of_study(drawn.answer)
forest = of_study(drawn.forest)
runs_by_block = of_study(drawn.runs_by_block)
latency_ccdf = of_study(drawn.latency_ccdf)
added_latency = of_study(drawn.added_latency)
resources = of_study(drawn.resources)
course = of_study(drawn.course)
strip = of_study(drawn.strip)
drift = of_study(drawn.drift)
# Of studies that search capacity, let a rate rise, inject delays, or scale out.
capacity = of_study(drawn.capacity)
ramp = of_study(drawn.ramp)
detection = of_study(drawn.detection)
exponents = of_study(drawn.exponents)
machine_limits = of_study(drawn.machine_limits)
cost_against_endpoints = of_study(drawn.cost_against_endpoints)
shares_against_endpoints = of_study(drawn.shares_against_endpoints)
latency_against_endpoints = of_study(drawn.latency_against_endpoints)
configuration_against_endpoints = of_study(drawn.configuration_against_endpoints)

__all__ = [
    "added_latency",
    "answer",
    "capacity",
    "configuration_against_endpoints",
    "cost_against_endpoints",
    "course",
    "detection",
    "drift",
    "exponents",
    "forest",
    "latency_against_endpoints",
    "latency_ccdf",
    "machine_limits",
    "ramp",
    "resources",
    "runs_by_block",
    "shares_against_endpoints",
    "strip",
]
