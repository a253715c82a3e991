"""The labels of verdicts, their appearance and meaning, and warnings.

There is no label for "no difference": without a significant result a contrast is `inconclusive`. The colours of the
tones are in `report/palette.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Standing = Literal["different", "equivalent", "open", "stopped", "unfinished"]
# How the tests for a difference are corrected over a family of primary contrasts.
Correction = Literal["holm", "max-t"]
# How a failure that the treatment may have caused is treated: the run is repeated, or its latency ranks worst. If it is
# also tested, a treatment is saturated only if it missed the rate in significantly more blocks than its baseline.
OwnFailures = Literal["repeated", "ranked", "tested"]
CORRECTIONS: dict[Correction, str] = {"holm": "Holm's correction", "max-t": "step-down max-T over whole blocks"}
# Which of the two effects of a contrast decides its verdict: treatment/baseline or treatment-baseline.
Scale = Literal["ratio", "difference"]
# What is compared and counted as independent: blocks, sessions (the means of their blocks), or unpaired runs.
Unit = Literal["block", "session", "run"]
# The family of contrasts between treatments, in addition to those with the baseline.
BETWEEN = "between"


class VerdictLabel(StrEnum):
    """The label of a verdict, for computation, records, output and gates.

    ``standing`` is the kind of result: ``open`` if nothing was significant, ``stopped`` if nothing can be compared.
    ``glyph`` is the sign in text, ``marker`` the one in figures, ``tone`` a colour, and ``meaning`` is for legends.
    """

    SLOWER = "slower", "different", "▲", ">", True, "worse", "the corrected test shows more latency"
    FASTER = "faster", "different", "▼", "<", True, "better", "the corrected test shows less latency"
    MORE = "more", "different", "▲", ">", True, "worse", "the corrected test shows a higher cost"
    LESS = "less", "different", "▼", "<", True, "better", "the corrected test shows a lower cost"
    HIGHER = "higher", "different", "▲", ">", True, "neutral", "the corrected test shows a higher value"
    LOWER = "lower", "different", "▼", "<", True, "neutral", "the corrected test shows a lower value"
    EQUIVALENT = "equivalent", "equivalent", "●", "o", True, "same", "the corrected test shows it within the margin"
    INCONCLUSIVE = "inconclusive", "open", "◇", "D", False, "open", "neither difference nor equivalence is significant"
    DEPENDENT = (
        "dependent",
        "open",
        "○",
        "o",
        False,
        "open",
        "neighbouring blocks resemble each other, so no test is valid",
    )
    UNSTABLE = (
        "unstable",
        "open",
        "□",
        "s",
        False,
        "open",
        "two deployments of the baseline differed by about the margin or more, and this effect is no larger than that",
    )
    SATURATED = (
        "saturated",
        "stopped",
        "■",
        "s",
        True,
        "stopped",
        "the requested rate was not reached: this is a result, without a latency",
    )
    INVALID = (
        "invalid",
        "stopped",
        "✕",
        "X",
        True,
        "stopped",
        "no verdict is possible: runs failed their checks, blocks are missing, or there were too few requests",
    )
    PROVISIONAL = "provisional", "unfinished", "…", "d", False, "open", "the study is not finished: no verdict yet"

    standing: Standing
    glyph: str
    marker: str
    filled: bool
    tone: str
    meaning: str

    def __new__(cls, label: str, *rest: Any) -> VerdictLabel:
        """Create a label with its appearance; type checkers use this signature for lookups, too."""
        self = str.__new__(cls, label)
        self._value_ = label
        self.standing, self.glyph, self.marker, self.filled, self.tone, self.meaning = rest
        return self

    @property
    def different(self) -> bool:
        """Whether a difference is significant."""
        return self.standing == "different"

    @property
    def conclusive(self) -> bool:
        """Whether a difference or equivalence is significant."""
        return self.standing in ("different", "equivalent")


# Labels of a difference by kind of response: up, down.
_DIRECTIONS = {
    "latency": (VerdictLabel.SLOWER, VerdictLabel.FASTER),
    "resource": (VerdictLabel.MORE, VerdictLabel.LESS),
}
# Qualifiers of a difference: significantly larger or smaller than the margin.
MATERIAL, BELOW_MARGIN = "material", "below margin"
# The rules of `stats.verdict.decide` for legends and pages.
QUALIFIERS = {
    MATERIAL: "a separate one-sided test, corrected for the family, shows that the difference exceeds the margin; "
    "the interval is two-sided and not corrected, so it does not decide this",
    BELOW_MARGIN: "the corrected equivalence test shows that the difference is smaller than the margin",
}


# Which side of a contrast is saturated or invalid; without one of these it is the treatment.
THE_BASELINE, BOTH = "the baseline", "both"


def directions(kind: str) -> tuple[VerdictLabel, VerdictLabel]:
    """Return the labels of a difference for this kind of response: up, down."""
    return _DIRECTIONS.get(kind, (VerdictLabel.HIGHER, VerdictLabel.LOWER))


def sentence(label: str, qualifier: str) -> str:
    """Return a verdict for printing: ``slower (material)``."""
    # A plain string even without a qualifier, because polars makes an Enum column of labels.
    return f"{label} ({qualifier})" if qualifier else str(label)


# Codes of warnings that the program itself evaluates.
NO_TWIN = "no-aa-check"
COARSE_QUANTILE = "coarse-quantile"
RATE_FAILURES = "rate-failures"
AFTER_THE_FACT = "after-the-fact"


@dataclass(frozen=True, slots=True)
class Warning:
    """A warning for the reader of a result, with the next step."""

    code: str  # a stable name for machines, such as below-floor
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
