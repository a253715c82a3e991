"""One look per treatment, the same in every figure of a study: colour, marker and line together.

Colour is never the only carrier. The hues are told apart with the common colour-vision deficiencies in
neighbouring pairs, and each has a light and a dark value of at least 3:1 against its background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshtrial.design.study import Study

# Stand-ins that no data can produce; the SVG writer turns them into `currentColor` and `var(...)`.
INK = "#010203"
PAPER = "#fefdfc"
GREY = "#5b6471"
HUES = ("#0065a8", "#c24a07", "#00785a", "#96407f", "#866200", "#0b7d92", "#b4243f", "#59640c")
# The same on a dark page, in the same order; objects.css holds them as variables.
DARK = {
    GREY: "#aab4c0",
    "#0065a8": "#5ab2f0",
    "#c24a07": "#ff9358",
    "#00785a": "#36c79b",
    "#96407f": "#e18fcd",
    "#866200": "#e3ba3c",
    "#0b7d92": "#4ec8dc",
    "#b4243f": "#ff8296",
    "#59640c": "#b9c94c",
}
VARIABLES = {GREY: "--mt-t0"} | {hue: f"--mt-t{index}" for index, hue in enumerate(HUES, start=1)}
_MARKERS = ("s", "^", "D", "v", "P", "p", "h", "d")
_DASHES: tuple[Any, ...] = ("-", (0, (6, 1.6)), (0, (4, 1.4, 1, 1.4)), (0, (9, 2)), (0, (2.4, 1.2)))


@dataclass(frozen=True)
class Look:
    """How one treatment is drawn."""

    name: str
    colour: str
    marker: str
    dash: Any
    filled: bool

    @property
    def face(self) -> str:
        """Fill of its markers."""
        return self.colour if self.filled else "none"


def looks(study: Study) -> dict[str, Look]:
    """The look of every treatment by name, in the order in which figures list them: baseline, twin, the others."""
    twin = study.twin.name if study.twin else None
    return looks_of(study.baseline.name, twin, [t.name for t in study.treatments])


def looks_of(baseline: str, twin: str | None, names: Sequence[str]) -> dict[str, Look]:
    """The look of every named treatment: the baseline and its twin in grey, the others in the hues' order."""
    found = [Look(baseline, GREY, "o", "-", True)]
    if twin is not None:
        found.append(Look(twin, GREY, "o", (0, (2, 1.6)), False))
    others = [name for name in names if name not in (baseline, twin)]
    for index, name in enumerate(others):
        # Past the last hue colours come again, with an open marker and another dash: still one look each.
        turn, place = divmod(index, len(HUES))
        dash = _DASHES[(place + turn) % len(_DASHES)]
        found.append(Look(name, HUES[place], _MARKERS[place % len(_MARKERS)], dash, turn % 2 == 0))
    return {look.name: look for look in found}


def look_of(all_looks: Mapping[str, Look], name: str) -> Look:
    """A treatment's look; a name that the plan does not hold gets plain ink, so that a figure is still drawn."""
    return all_looks.get(name, Look(name, INK, "o", "-", False))
