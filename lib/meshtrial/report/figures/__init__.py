"""The figures of a report. Each function returns a :class:`~meshtrial.report.figure.Figure`."""

from meshtrial.report.figures.capacity import capacity, ramp
from meshtrial.report.figures.course import components_over_time, course, requests_over_time, strip
from meshtrial.report.figures.forest import answer, forest, pairs, two_studies
from meshtrial.report.figures.latency import added_latency, latency_ccdf
from meshtrial.report.figures.power import detection, power
from meshtrial.report.figures.resources import resources
from meshtrial.report.figures.runs import drift, runs_by_block
from meshtrial.report.figures.scaling import (
    configuration_against_endpoints,
    cost_by_size,
    exponents,
    latency_against_endpoints,
    machine_limits,
    shares_against_endpoints,
)
from meshtrial.report.figures.sessions import sessions
