"""What may be said of a contrast: the words of a verdict, how each looks and what it means, and warnings beside it.

There is no word for "no difference": what was not shown is `inconclusive`. The colours of the tones are in
`report/palette.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Standing = Literal["different", "equivalent", "open", "stopped", "unfinished"]
# How the tests for a difference are corrected over a family of primary contrasts.
Correction = Literal["holm", "max-t"]
# What becomes of a failure that may be the treatment's own: the run is made again, or its latency ranks worst.
OwnFailures = Literal["repeated", "ranked"]
CORRECTIONS: dict[Correction, str] = {"holm": "Holm's correction", "max-t": "step-down max-T over whole blocks"}
# Which of the two effects of a contrast carries its verdict: treatment/baseline, or what is added to the baseline.
Scale = Literal["ratio", "difference"]
# The family of contrasts between treatments that are each compared with the baseline too.
BETWEEN = "between"


class VerdictLabel(StrEnum):
    """A verdict in one word, as it is computed, recorded, shown and typed into a gate.

    Each with its standing (what was shown; ``open`` where nothing was, ``stopped`` where nothing is compared), its sign
    in text, its marker in figures and whether that is filled, its colour by name, and what a legend says.
    """

    SLOWER = "slower", "different", "▲", ">", True, "worse", "the corrected test shows more latency"
    FASTER = "faster", "different", "▼", "<", True, "better", "the corrected test shows less latency"
    MORE = "more", "different", "▲", ">", True, "worse", "the corrected test shows a higher cost"
    LESS = "less", "different", "▼", "<", True, "better", "the corrected test shows a lower cost"
    HIGHER = "higher", "different", "▲", ">", True, "neutral", "the corrected test shows a higher value"
    LOWER = "lower", "different", "▼", "<", True, "neutral", "the corrected test shows a lower value"
    EQUIVALENT = "equivalent", "equivalent", "●", "o", True, "same", "shown to lie within the margin"
    INCONCLUSIVE = "inconclusive", "open", "◇", "D", False, "open", "neither a difference nor equivalence was shown"
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
        "the requested rate was not reached: a result, with no latency",
    )
    INVALID = (
        "invalid",
        "stopped",
        "✕",
        "X",
        True,
        "stopped",
        "nothing to judge: runs failed their checks, blocks are missing, or too few requests",
    )
    PROVISIONAL = "provisional", "unfinished", "…", "d", False, "open", "the study is not finished: no verdict yet"

    standing: Standing
    glyph: str
    marker: str
    filled: bool
    tone: str
    meaning: str

    def __new__(cls, word: str, *look: Any) -> VerdictLabel:
        """The word with its look; type checkers take this for how a word is looked up, too."""
        made = str.__new__(cls, word)
        made._value_ = word
        made.standing, made.glyph, made.marker, made.filled, made.tone, made.meaning = look
        return made

    @property
    def different(self) -> bool:
        """Whether a difference was shown."""
        return self.standing == "different"

    @property
    def conclusive(self) -> bool:
        """Whether a difference or equivalence was shown."""
        return self.standing in ("different", "equivalent")


# What a difference of a kind of response is called: up, down.
_DIRECTIONS = {
    "latency": (VerdictLabel.SLOWER, VerdictLabel.FASTER),
    "resource": (VerdictLabel.MORE, VerdictLabel.LESS),
}
# How a difference stands to the margin: shown to be larger, shown to be smaller.
MATERIAL, BELOW_MARGIN = "material", "below margin"
# The rules of `stats.verdict.decide`, as every legend and page states them.
QUALIFIERS = {
    MATERIAL: "a one-sided test of its own, corrected for the family, shows the difference to be larger than the "
    "margin; the interval is two-sided and not corrected, so it does not decide this",
    BELOW_MARGIN: "the corrected equivalence test shows the difference to be smaller than the margin",
}


def directions(kind: str) -> tuple[VerdictLabel, VerdictLabel]:
    """What a difference of a response of this kind is called: up, down."""
    return _DIRECTIONS.get(kind, (VerdictLabel.HIGHER, VerdictLabel.LOWER))


def sentence(word: str, qualifier: str) -> str:
    """A verdict as it is printed: ``slower (material)``."""
    # A plain text also without a qualifier: polars makes an enumeration of a column that begins with a `Word`.
    return f"{word} ({qualifier})" if qualifier else str(word)


# Warnings that something goes by.
NO_TWIN = "no-aa-check"
COARSE_QUANTILE = "coarse-quantile"
AFTER_THE_FACT = "after-the-fact"


@dataclass(frozen=True, slots=True)
class Warning:
    """Something a reader of a result must know: what was seen, and what to do next."""

    code: str  # a stable name for machines, such as below-floor
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
