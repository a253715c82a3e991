"""The verdict table, in its order. There is no verdict "no difference": what was not shown is `inconclusive`.

One reading is needed that the table leaves open. A shaken A/A contrast makes the others `unstable` unless their whole
interval lies beyond its estimate: a threefold latency stays `slower` when baseline and twin differ by 12 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from meshtrial.stats.comparison import Comparison
from meshtrial.stats.noise import NoiseFloor, effect_size
from meshtrial.stats.power import blocks_for_difference, blocks_for_equivalence

Kind = Literal["latency", "resource", "level"]
Label = Literal[
    "invalid",
    "saturated",
    "unstable",
    "slower",
    "faster",
    "more",
    "less",
    "higher",
    "lower",
    "equivalent",
    "inconclusive",
]

# What a difference is called: up, down.
DIRECTIONS: dict[Kind, tuple[Label, Label]] = {
    "latency": ("slower", "faster"),
    "resource": ("more", "less"),
    "level": ("higher", "lower"),
}


# Of ten blocks whose differences wander (AR(1), rho 0.8), 1 % have a mean beyond so many of their standard deviations;
# of eight 2 %, and with rho 0.9 6 to 8 %: a twentyfold latency stays one.
DEPENDENT_SDS = 4.0
DEPENDENT = "block differences depend on each other, so the exact test's p-value is too small"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be said of one contrast.

    Attributes
    ----------
    label : str
        ``invalid``, ``saturated``, ``unstable``, ``slower``/``faster`` (latency), ``more``/``less`` (resources),
        ``higher``/``lower`` (anything else), ``equivalent`` or ``inconclusive``.
    qualifier : str
        ``"material"`` (shown to be larger than the margin), ``"below margin"`` (equivalence is shown too) or ``""``.
    text : str
        What a report prints.
    reason : str
        The rule that decided, with its numbers.
    blocks : int or None
        Blocks (or runs of each treatment) of a new study that would probably settle an open contrast. Never blocks to
        be added to this one: adding until it is significant has 8 to 11 % false positives.
    mde : float or None
        Minimum detectable effect, to be printed beside an inconclusive verdict.
    """

    label: Label
    qualifier: Literal["material", "below margin", ""]
    text: str
    reason: str
    blocks: int | None
    mde: float | None

    @property
    def conclusive(self) -> bool:
        """Whether a difference or equivalence was shown."""
        return self.label not in ("invalid", "saturated", "unstable", "inconclusive")

    @property
    def different(self) -> bool:
        """Whether a difference was shown."""
        return self.conclusive and self.label != "equivalent"


def decide(
    comparison: Comparison | None,
    *,
    p_adjusted: float | None,
    p_equivalence_adjusted: float | None = None,
    p_material_adjusted: float | None = None,
    noise: NoiseFloor | None = None,
    dependent: bool = False,
    kind: Kind = "latency",
    invalid: str | None = None,
    saturated: str | None = None,
) -> Verdict:
    """Apply the verdict table to one contrast.

    Parameters
    ----------
    comparison : Comparison or None
        None where too few blocks are left to compare.
    p_adjusted, p_equivalence_adjusted, p_material_adjusted : float or None
        Each corrected for the family (Holm, or Benjamini-Hochberg for what is exploratory).
    noise : NoiseFloor, optional
        Of the same response and load.
    dependent : bool
        Whether block differences were found to depend on each other, which no exact test survives.
    kind : {"latency", "resource", "level"}
        Chooses the words for the direction.
    invalid, saturated : str, optional
        Why the gates or proofs failed, or that the treatment did not keep up with the load.

    Returns
    -------
    Verdict
    """
    if invalid is not None:
        return Verdict("invalid", "", "invalid", invalid, None, None)
    if saturated is not None:
        return Verdict("saturated", "", "saturated", saturated, None, None)
    if comparison is None or p_adjusted is None:
        return Verdict("invalid", "", "invalid", "fewer than 2 complete blocks are left", None, None)
    c = comparison
    if c.provisional:
        reason = f"with n = {c.n} the exact test cannot go below p = {c.smallest_p:.3g}"
        return Verdict("inconclusive", "", f"inconclusive: at least {c.floor_n} {c.unit}", reason, c.floor_n, None)
    margin = c.margin
    if dependent and _effect(c) <= DEPENDENT_SDS * c.sd:
        return Verdict("inconclusive", "", "inconclusive: the blocks depend on each other", DEPENDENT, None, c.mde)
    if noise is not None and noise.shaken(margin) and not _beyond(c, noise.floor):
        size = "" if margin is None else f", beside a margin of {_size(margin, c)}"
        reason = f"baseline and twin differ by {_size(noise.floor, c)} (p = {noise.p:.2g}){size}"
        return _open("unstable", reason, c)

    equivalent = p_equivalence_adjusted is not None and p_equivalence_adjusted <= c.alpha
    if p_adjusted <= c.alpha:
        up, down = DIRECTIONS[kind]
        label = up if c.estimate >= c.no_effect else down
        material = p_material_adjusted is not None and p_material_adjusted <= c.alpha
        qualifier: Literal["material", "below margin", ""] = (
            "material" if material else "below margin" if equivalent else ""
        )
        text = f"{label} ({qualifier})" if qualifier else label
        return Verdict(label, qualifier, text, f"adjusted p = {p_adjusted:.3g}", None, c.mde)
    if equivalent:
        reason = f"adjusted equivalence p = {p_equivalence_adjusted:.3g} within the margin {_size(margin or 0.0, c)}"
        return Verdict("equivalent", "", "equivalent", reason, None, c.mde)
    return _open("inconclusive", f"adjusted p = {p_adjusted:.3g}", c)


def _open(label: Literal["unstable", "inconclusive"], reason: str, c: Comparison) -> Verdict:
    """What is not settled, with the size of a new study that would probably settle it."""
    blocks = blocks_of_a_new_study(c)
    text = label if blocks is None else f"{label} (a new study of about {_count(blocks)} {c.unit})"
    return Verdict(label, "", text, reason, blocks, c.mde)


def blocks_of_a_new_study(c: Comparison) -> int | None:
    """Blocks with which a new study would probably settle a contrast; None without a margin.

    First what the plan would ask for: enough to find an effect of the margin's size, and to show equivalence if there
    is none. Where that many were run, the effect lies somewhere between: then the cheaper of the two with the
    estimate as truth.
    """
    if c.margin_high is None or c.needed_difference is None or c.needed_equivalence is None:
        return None
    planned = max(c.needed_difference, c.needed_equivalence, c.floor_n)
    if planned > c.n:
        return planned
    ratio = c.scale == "ratio"
    half = math.log(c.margin_high) if ratio else c.margin_high
    effect = _effect(c)
    ways = []
    if effect > 0:
        ways.append(blocks_for_difference(c.sd, effect, alpha=c.alpha, m=c.m_family))
    if effect < half:
        ways.append(blocks_for_equivalence(c.sd, half, effect=effect, alpha=c.alpha, m=c.m_family))
    return max(c.n + 1, min(ways))


def _effect(c: Comparison) -> float:
    """Size of the estimate on the scale of the analysis."""
    return abs(math.log(c.estimate)) if c.scale == "ratio" else abs(c.estimate)


def _beyond(c: Comparison, size: float) -> bool:
    """Whether the whole interval lies on one side, further from "no effect" than `size`."""
    if c.ci_low <= c.no_effect <= c.ci_high:
        return False
    return min(effect_size(c.ci_low, c.scale), effect_size(c.ci_high, c.scale)) > size


def _size(value: float, c: Comparison) -> str:
    return f"{value:.1%}" if c.scale == "ratio" else f"{value:.3g}"


def _count(n: int) -> str:
    return str(n) if n < 1000 else "1000 or"
