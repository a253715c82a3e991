"""The report: an executed notebook whose cells end in objects that show themselves, and the pages made of it."""

from meshtrial.report.figure import Figure
from meshtrial.report.figures import added_latency, drift, forest, latency_ccdf, resources, runs_by_block
from meshtrial.report.html import notebook_to_html, report_seal
from meshtrial.report.markup import Fragment
from meshtrial.report.site import read_entry, write_entry, write_index
from meshtrial.report.tables import (
    design,
    exploratory_table,
    headline,
    headlines,
    method_and_limits,
    provenance,
    reproduce_command,
    validity,
    verdict_sentence,
    verdict_table,
    verdicts_sha256,
)

__all__ = [
    "Figure",
    "Fragment",
    "added_latency",
    "design",
    "drift",
    "exploratory_table",
    "forest",
    "headline",
    "headlines",
    "latency_ccdf",
    "method_and_limits",
    "notebook_to_html",
    "provenance",
    "read_entry",
    "report_seal",
    "reproduce_command",
    "resources",
    "runs_by_block",
    "validity",
    "verdict_sentence",
    "verdict_table",
    "verdicts_sha256",
    "write_entry",
    "write_index",
]
