"""One style per treatment, the same in every figure of a study: colour, marker and line.

Colour never carries meaning alone. Neighbouring hues can be distinguished with the common colour-vision deficiencies,
and each has a light and a dark value with a contrast of at least 3:1 against its background.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshtrial.design.study import Study

# Stand-ins that data cannot contain; the SVG writer replaces them by `currentColor` and `var(...)`.
INK = "#010203"
PAPER = "#fefdfc"
GREY = "#5b6471"
# Grey and the treatments' hues, each with its value for a light page and for a dark one.
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
HUES = tuple(colour for colour in DARK if colour != GREY)
VARIABLES = {colour: f"--mt-t{index}" for index, colour in enumerate(DARK)}
# The same for the tones of verdicts (`meshtrial.vocabulary`).
TONES = {
    "worse": ("#b23a00", "#ff9a66"),
    "better": ("#00608f", "#63bdf0"),
    "same": ("#1f6f54", "#57cfa6"),
    "open": ("#6b5200", "#e0bd55"),
    "stopped": ("#a3122f", "#ff8097"),
}
_MARKERS = ("s", "^", "D", "v", "P", "p", "h", "d")
_DASHES: tuple[Any, ...] = ("-", (0, (6, 1.6)), (0, (4, 1.4, 1, 1.4)), (0, (9, 2)), (0, (2.4, 1.2)))


def variables(*, dark: bool) -> str:
    """Return all colours as variables of a style sheet."""
    colours = {VARIABLES[light]: other if dark else light for light, other in DARK.items()}
    colours |= {f"--mt-{tone}": pair[dark] for tone, pair in TONES.items()}
    return " ".join(f"{name}: {colour};" for name, colour in colours.items())


@dataclass(frozen=True)
class TreatmentStyle:
    """How one treatment is drawn."""

    name: str
    colour: str
    marker: str
    dash: Any
    filled: bool

    @property
    def face(self) -> str:
        """Fill colour of the markers."""
        return self.colour if self.filled else "none"

    def line(self, width: float = 1.4) -> dict[str, Any]:
        """Return matplotlib's options for the line."""
        return {"color": self.colour, "linestyle": self.dash, "linewidth": width}

    def marks(self, size: float) -> dict[str, Any]:
        """Return matplotlib's options for markers without a line."""
        face = {"markerfacecolor": self.face}
        return {"color": self.colour, "linestyle": "none", "marker": self.marker, "markersize": size} | face


class Styles(dict[str, TreatmentStyle]):
    """Styles by name in display order; a name that the plan lacks is drawn in plain ink."""

    def __missing__(self, name: str) -> TreatmentStyle:
        return TreatmentStyle(name, INK, "o", "-", False)


def looks(study: Study) -> Styles:
    """Return the style of every treatment of a study: baseline, twin, the others."""
    twin = study.twin.name if study.twin else None
    return looks_of(study.baseline.name, twin, [t.name for t in study.treatments])


def looks_of(baseline: str, twin: str | None, names: Sequence[str]) -> Styles:
    """Return the style of every named treatment: baseline and twin in grey, the others in the order of the hues."""
    result = Styles({baseline: TreatmentStyle(baseline, GREY, "o", "-", True)})
    if twin is not None:
        result[twin] = TreatmentStyle(twin, GREY, "o", (0, (2, 1.6)), False)
    for index, name in enumerate(name for name in names if name not in (baseline, twin)):
        # After the last hue, colours repeat with an open marker and another dash, so looks stay distinct.
        turn, place = divmod(index, len(HUES))
        dash = _DASHES[(place + turn) % len(_DASHES)]
        result[name] = TreatmentStyle(name, HUES[place], _MARKERS[place % len(_MARKERS)], dash, turn % 2 == 0)
    return result
