"""Does a verdict depend on one block? It is computed again without each block in turn."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from meshtrial.stats.comparison import Comparison, Warning
from meshtrial.stats.contrast import block_differences, margin_differences
from meshtrial.stats.ranktests import FloatArray, leave_one_out_p, smallest_p
from meshtrial.stats.verdict import Verdict
from meshtrial.vocabulary import VerdictLabel


def influence(
    treatment: FloatArray,
    baseline: FloatArray,
    comparison: Comparison,
    verdict: Verdict,
    p_adjusted: float | None,
    p_equivalence_adjusted: float | None,
    blocks: Sequence[Hashable],
) -> tuple[Warning, ...]:
    """Warn where the verdict would be another one without a single block.

    The family's correction is held at what it was for the full data. Where n - 1 blocks cannot reach it at all, the
    raw p-value is used: a study at its floor is not fragile by that alone.
    """
    c, n = comparison, comparison.n
    hidden = c.coarse and not verdict.label.conclusive
    if (
        c.provisional
        or hidden
        or verdict.label
        in (VerdictLabel.INVALID, VerdictLabel.SATURATED, VerdictLabel.UNSTABLE, VerdictLabel.DEPENDENT)
        or p_adjusted is None
    ):
        return ()
    d, atol = block_differences(treatment, baseline, c.scale)
    one_sided = bool((d > 0).all() or (d < 0).all())
    if verdict.label.different and c.effect.p <= c.alpha and one_sided and smallest_p(n - 1) * c.m_floor <= c.alpha:
        return ()  # every block on one side, and n - 1 of them can show it
    factor = _factor(c.effect.p, p_adjusted, smallest_p(n - 1), c)
    differs = [p * factor <= c.alpha for p in leave_one_out_p(d, "two-sided", atol)]
    equal = [False] * n
    if c.against is not None and p_equivalence_adjusted is not None:
        x, tied, margin = margin_differences(treatment, baseline, c.against, as_ratio=c.ratio is not None)
        factor = _factor(c.against.p_equivalence, p_equivalence_adjusted, smallest_p(n - 1, "greater"), c)
        below = leave_one_out_p(x - margin, "less", tied)
        above = leave_one_out_p(x + margin, "greater", tied)
        equal = [max(both) * factor <= c.alpha for both in zip(below, above, strict=True)]
    if verdict.label.different:
        flips, becomes = [not x for x in differs], "not be shown"
    elif verdict.label is VerdictLabel.EQUIVALENT:
        flips, becomes = [x or not y for x, y in zip(differs, equal, strict=True)], f"not be {VerdictLabel.EQUIVALENT}"
    else:
        flips, becomes = [x or y for x, y in zip(differs, equal, strict=True)], "be conclusive"
    deciding = [str(block) for block, flip in zip(blocks, flips, strict=True) if flip]
    if not deciding:
        return ()
    names = ", ".join(deciding[:5])
    which = (
        f"block {names}"
        if len(deciding) == 1
        else f"any one of {len(deciding)} blocks ({names}{', ...' * (len(deciding) > 5)})"
    )
    text = f"without {which} the verdict would {becomes}: read its run logs and gates, keep it, and plan a larger study"
    return (Warning("influential-block", text),)


def _factor(p: float, adjusted: float, smallest: float, c: Comparison) -> float:
    factor = min(adjusted / p, float(c.m_family)) if p > 0 else float(c.m_family)
    return factor if smallest * factor <= c.alpha else 1.0
