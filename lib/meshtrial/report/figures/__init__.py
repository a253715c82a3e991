"""The figures of a report. Each function returns a :class:`~meshtrial.report.figure.Figure`."""

from meshtrial.report.figures.capacity import capacity as capacity
from meshtrial.report.figures.capacity import ramp as ramp
from meshtrial.report.figures.course import components_over_time as components_over_time
from meshtrial.report.figures.course import course as course
from meshtrial.report.figures.course import requests_over_time as requests_over_time
from meshtrial.report.figures.course import strip as strip
from meshtrial.report.figures.forest import answer as answer
from meshtrial.report.figures.forest import forest as forest
from meshtrial.report.figures.forest import pairs as pairs
from meshtrial.report.figures.forest import two_studies as two_studies
from meshtrial.report.figures.latency import added_latency as added_latency
from meshtrial.report.figures.latency import latency_ccdf as latency_ccdf
from meshtrial.report.figures.power import detection as detection
from meshtrial.report.figures.power import power as power
from meshtrial.report.figures.resources import resources as resources
from meshtrial.report.figures.runs import drift as drift
from meshtrial.report.figures.runs import runs_by_block as runs_by_block
from meshtrial.report.figures.scaling import configuration_against_endpoints as configuration_against_endpoints
from meshtrial.report.figures.scaling import cost_by_size as cost_by_size
from meshtrial.report.figures.scaling import exponents as exponents
from meshtrial.report.figures.scaling import latency_against_endpoints as latency_against_endpoints
from meshtrial.report.figures.scaling import machine_limits as machine_limits
from meshtrial.report.figures.scaling import shares_against_endpoints as shares_against_endpoints
from meshtrial.report.figures.sessions import sessions as sessions
