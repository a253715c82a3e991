"""The figures of a report, one concept a module; every one returns a :class:`~meshtrial.report.figure.Figure`."""

from meshtrial.report.figures.added import added_latency
from meshtrial.report.figures.answer import answer
from meshtrial.report.figures.blocks import runs_by_block
from meshtrial.report.figures.capacity import capacity
from meshtrial.report.figures.ccdf import latency_ccdf
from meshtrial.report.figures.course import course
from meshtrial.report.figures.detection import detection
from meshtrial.report.figures.drift import drift
from meshtrial.report.figures.forest import forest
from meshtrial.report.figures.one_run import components_over_time, requests_over_time
from meshtrial.report.figures.power import power
from meshtrial.report.figures.ramp import ramp
from meshtrial.report.figures.resources import resources
from meshtrial.report.figures.scaling import (
    configuration_against_endpoints,
    cost_against_endpoints,
    exponents,
    latency_against_endpoints,
    shares_against_endpoints,
)
from meshtrial.report.figures.scaling_limits import machine_limits
from meshtrial.report.figures.strip import strip
from meshtrial.report.figures.two_studies import two_studies

__all__ = [
    "added_latency",
    "answer",
    "capacity",
    "components_over_time",
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
    "power",
    "ramp",
    "requests_over_time",
    "resources",
    "runs_by_block",
    "shares_against_endpoints",
    "strip",
    "two_studies",
]
