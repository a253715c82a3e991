"""Do neighbouring blocks resemble each other? Of the baseline that is harmless, of the effect it is not."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.stats.comparison import Scale
from meshtrial.stats.rankchecks import lag_one
from meshtrial.stats.residuals import LEVEL, log_table
from meshtrial.stats.warning import Warning


def autocorrelation(baseline: ArrayLike, *, scale: Scale = "ratio") -> tuple[Warning, ...]:
    """Likeness of the baseline in neighbouring blocks.

    Parameters
    ----------
    baseline : (blocks,) array_like
        The control arm in order of time.
    scale : {"ratio", "difference"}
        Scale of the analysis.

    Returns
    -------
    tuple of Warning
        ``"autocorrelation"`` or nothing (nothing below 8 blocks).
    """
    _, table = log_table({"baseline": baseline}, scale)
    r, p = lag_one(table[np.isfinite(table)])
    if p > LEVEL:
        return ()
    text = (
        f"the baseline resembles its last block (lag-1 {r:.2f}, p = {p:.2g}): the machine wanders slowly; pairing "
        "by block takes it out, unpaired comparisons of these runs would not hold"
    )
    return (Warning("autocorrelation", text),)


def dependent_blocks(treatment: ArrayLike, baseline: ArrayLike, *, scale: Scale = "ratio") -> tuple[Warning, ...]:
    """Likeness of neighbouring block differences: the one dependence that the exact test does not survive.

    Parameters
    ----------
    treatment, baseline : (blocks,) array_like
        The two arms in order of time.
    scale : {"ratio", "difference"}
        Scale of the analysis.

    Returns
    -------
    tuple of Warning
        ``"dependent-blocks"`` or nothing (nothing below 8 blocks).
    """
    _, table = log_table({"t": treatment, "b": baseline}, scale)
    d = table[:, 0] - table[:, 1]
    r, p = lag_one(d[np.isfinite(d)])
    if p > LEVEL:
        return ()
    text = (
        f"the effect resembles its last block (lag-1 {r:.2f}, p = {p:.2g}): this arm feels the machine more than "
        "its baseline, and its p-value is too small; pause longer between blocks, or spread them over more time"
    )
    return (Warning("dependent-blocks", text),)
