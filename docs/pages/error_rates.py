"""The measured error rates, coverage and power: the full table, and its summary."""

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from meshtrial import paths
from pages.tables import under

CALIBRATION = Path("docs", "reference", "calibration.csv")
SIGNS = {"at most": "≤", "at least": "≥", "more than": ">", "about": "≈", "exactly": "="}
# The summary of the error rates: what a row is called, and the checks of the full table that it covers.
SUMMARY = {
    "false positives": r"false positives: ",
    "coverage of the interval": r"coverage: (effect|additive effect, )",
    "false equivalence at the margin": r"false equivalent: ",
    "false *material* at the margin": r"family-wise error: material",
    "wrong verdicts in a family of five contrasts": r"family-wise error: 5 contrasts",
    "wrong verdicts among ten pairs, max-T": r"family-wise error: 10 pairs",
    "ten equal pairs: an interval excludes zero and is not called": r"limit: 10 pairs.*not called",
    "wrong verdicts of max-T where skewness differs": r"limit: (10 pairs.*two treatments|4 contrasts)",
    "intervals miss on one side, 10 to 30 % own failures": r"own failures: ",
    "false `saturated`, equal treatments": r"saturated: ",
    "the same without the test": r"limit: equal treatments",
    "power of ten blocks: +10 %, +20 %": r"power: n = 10, ",
    "power that a plan promised": r"power of a plan: ",
    "false positives with two looks": r"stopping: false positives",
    "coverage with the precision rule": r"stopping: coverage",
    "false alarms of a CI gate: one, two, three primary responses": r"gate: false alarms",
    "changes of level in a series without any": r"level changes: false",
    "changes of level found: 3 sd, half and three of the studies after it": r"level changes: found: .* studies$",
    "negative control: the best-looking split of a series": r"negative control: level changes",
    "a series that wanders: changes of level": r"limit: level changes",
    "thirty nights of that gate: at the usual level": r"gate: a month of nights: primary.*alpha 0\.05, n = \d+$",
    "thirty nights: at the level for 5 %": r"gate: a month of nights: primary.*alpha 0\.00",
    "dependent blocks detected: all treatments, one treatment": r"dependent blocks: .* treatments?: detected",
    "interval and p-value disagree": r"agreement: ",
    "negative control: sequential order": r"negative control: sequential",
    "negative controls: early reading, added blocks": r"negative control: (tested|five)",
    "wrong verdicts with sessions as the unit": r"family-wise error: .* sessions as",
    "coverage with sessions as the unit": r"coverage: .* sessions as",
    "negative control: blocks as the unit where sessions differ, intervals miss": r"negative control: .* sessions",
    "another session lies in its prediction": r"prediction: .* spread",
    "the same where sessions are not normal": r"limit: prediction: ",
    "coverage of the ratio for a proportional, of the added amount for a constant cost": r"coverage: (cost|constant)",
    "the other way round: intervals miss": r"limit: (cost|constant)",
    "slow states: a difference called": r"dependent blocks: .*: called|limit: .* one treatment: called different$",
    "zero slopes of sizes that feel the machine unequally: called": r"limit: slopes, .*: called$",
    "a fixed budget, margin that follows the baseline: false equivalence": r"limit: cost equal to a fixed budget",
    "another program: intervals miss, unchecked": r"limit: another program",
    "another program: coverage with the check": r"coverage: another program",
}


def rate(row: Any) -> tuple[str, ...]:
    """A measured error rate, coverage or power as a row."""
    must = "exactly 0" if row.rule == "exactly" else f"{row.rule} {100 * row.nominal:.3g} %"
    measured = f"{100 * row.observed:.1f} % ({100 * row.mc_se:.1f})"
    return f"{row.check.lstrip('0123456789 ')}: {row.cell}", must, measured


def calibration(_: str) -> str:
    """The table of error rates, measured now."""
    from meshtrial import stats
    from meshtrial.commands.calibrate import FULL

    return rates(stats.run_all(1, FULL))


def rates(rows: Iterable[Any]) -> str:
    """Return measured rows as CSV."""
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(
        [("check", "must be", "measured (standard error)"), *map(rate, rows)]
    )
    return table.getvalue()


def calibration_summary(text: str) -> str:
    """The page of error rates, with a summary of the full table."""
    table = csv.reader(io.StringIO((paths.CHECKOUT / CALIBRATION).read_text()))
    cells = [(check, must, measured.partition(" ")[0]) for check, must, measured in table if "%" in measured]
    rows = []
    for what, checks in SUMMARY.items():
        matching = [(must, float(measured)) for check, must, measured in cells if re.match(checks, check)]
        required = ", ".join(dict.fromkeys(must for must, _ in matching))
        for words, sign in SIGNS.items():
            required = required.replace(words, sign)
        lowest, highest = (f"{end(measured for _, measured in matching):.1f}" for end in (min, max))
        measured = f"{lowest} %" if lowest == highest else f"{lowest} to {highest} %"
        rows.append((what, required, measured))
    return under(text, "## Measured", rows)
