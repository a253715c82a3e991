"""The tables and sentences of a report; a notebook displays each of them."""

from meshtrial.report.marking import moved
from meshtrial.report.tables.between import between
from meshtrial.report.tables.calibration import aa_table, generators, simulation_checks
from meshtrial.report.tables.costs import cost, decomposition, described, mechanism, money, money_at
from meshtrial.report.tables.design import design, method_and_limits
from meshtrial.report.tables.failures import changes, restarts
from meshtrial.report.tables.growth import costs_of_endpoints_and_rate, growth_contrasts, marginal_costs
from meshtrial.report.tables.headline import clauses, headline, headlines, trust, verdict_sentence
from meshtrial.report.tables.one_run import run_facts, run_gates, run_log, run_proofs, run_resources
from meshtrial.report.tables.provenance import citation, provenance, recorded_at, reproduce_command, verdicts_sha256
from meshtrial.report.tables.validity import validity
from meshtrial.report.tables.verdicts import exploratory_table, ranks, verdict_table
