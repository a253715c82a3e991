"""What the columns of every frame mean that the public functions return."""

from __future__ import annotations

import polars as pl

from meshtrial.errors import UsageError
from meshtrial.records.columns import FRAMES


def columns(frame: str) -> pl.DataFrame:
    """What the columns of a frame mean.

    Parameters
    ----------
    frame : str
        ``verdicts``, ``runs``, ``responses``, ``requests`` or ``series``: the method that returns it.

    Returns
    -------
    polars.DataFrame
        Columns ``name``, ``type``, ``unit`` and ``meaning``.

    Examples
    --------
    >>> import meshtrial as mt
    >>> mt.columns("runs").filter(name="deploy_s").row(0)
    ('deploy_s', 'Float64', 's', 'from nothing to ready')
    """
    if frame not in FRAMES:
        raise UsageError(f"columns({frame!r}): is no frame; there are {', '.join(FRAMES)}")
    return pl.DataFrame(
        [(name, str(one.kind), one.unit, one.meaning) for name, one in FRAMES[frame].items()],
        schema=["name", "type", "unit", "meaning"],
        orient="row",
    )
