"""The tables and sentences of a report, one concept a module; every one shows itself in a notebook."""

from meshtrial.report.tables.between import between
from meshtrial.report.tables.calibration import aa_table, simulation_checks
from meshtrial.report.tables.citation import citation
from meshtrial.report.tables.cost import cost
from meshtrial.report.tables.decomposition import decomposition
from meshtrial.report.tables.design import design
from meshtrial.report.tables.digest import verdicts_sha256
from meshtrial.report.tables.doubts import doubts
from meshtrial.report.tables.generators import generators
from meshtrial.report.tables.growth import costs_of_endpoints_and_rate, growth_contrasts
from meshtrial.report.tables.headline import clauses, headline, headlines, verdict_sentence
from meshtrial.report.tables.limits import method_and_limits
from meshtrial.report.tables.mechanism import mechanism
from meshtrial.report.tables.money import money, money_at
from meshtrial.report.tables.moved import moved
from meshtrial.report.tables.one_run import run_facts, run_gates, run_log, run_proofs, run_resources
from meshtrial.report.tables.provenance import provenance, recorded_at, reproduce_command
from meshtrial.report.tables.restarts import restarts
from meshtrial.report.tables.validity import validity
from meshtrial.report.tables.verdicts import exploratory_table, verdict_table

__all__ = [
    "aa_table",
    "between",
    "citation",
    "clauses",
    "cost",
    "costs_of_endpoints_and_rate",
    "decomposition",
    "design",
    "doubts",
    "exploratory_table",
    "generators",
    "growth_contrasts",
    "headline",
    "headlines",
    "mechanism",
    "method_and_limits",
    "money",
    "money_at",
    "moved",
    "provenance",
    "recorded_at",
    "reproduce_command",
    "restarts",
    "run_facts",
    "run_gates",
    "run_log",
    "run_proofs",
    "run_resources",
    "simulation_checks",
    "validity",
    "verdict_sentence",
    "verdict_table",
    "verdicts_sha256",
]
