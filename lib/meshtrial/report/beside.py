"""Figures beside each other, each as it is drawn for a narrow sheet; below each other where there is no room."""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial.report import svg
from meshtrial.report.figure import Figure
from meshtrial.report.markup import Fragment, part


def beside(titles: Sequence[str], figures: Sequence[Figure]) -> Fragment:
    """Put figures into columns.

    Parameters
    ----------
    titles : sequence of str
        One over each.
    figures : sequence of Figure
    """
    drawn = [part("image", figure.alt, svg.data_uri(figure.narrow), "") for figure in figures]
    captions = [figure.caption for figure in figures]
    columns = list(zip(titles, drawn, captions, strict=True))
    text = "\n\n".join(f"{title}\n{figure!r}" for title, figure in zip(titles, figures, strict=True))
    return Fragment(part("beside", columns), text)
