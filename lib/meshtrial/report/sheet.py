"""The panels that figures are drawn on, their axes, keys and marks, and the SVG that a page holds.

All panels have one width, and letters that stay legible when a screen scales the drawing: a phone of 400 px shows a
point as 1.2 px, a wide page as 1.7 px. So a drawing is narrow, names are above their rows, and nothing adapts to a
screen.

matplotlib writes a whole SVG file with a style rule for ``*``, which would affect the page. Its ids, such as
``figure_1``, are the same in every figure. So `to_svg` writes an element whose text can be selected, with the page's
colours and ids that do not collide.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast
from xml.etree import ElementTree

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from meshtrial.report import wording
from meshtrial.report.palette import INK, PAPER, VARIABLES, TreatmentStyle

WIDTH_IN = 4.2
ROW_IN = 0.42  # height of a row with its name above it
TICKS = 5  # labelled ticks that fit along the width
SMALL = 8.5  # size of the smallest letters in points: 10 px on a phone of 400 px
_CHARACTER_IN, _HANDLE_IN = 0.075, 0.55  # widths of a small letter, and of a key without its label
_LETTER_IN = 0.085  # width of a letter in a heading
_AXIS_IN = 0.4  # width of the numbers beside an axis
_KEY_IN = 0.19  # height of a line of keys


def panels(heights_in: Sequence[float], *, sharex: bool = False) -> tuple[Canvas, list[Axes]]:
    """Return a drawing, and its panels from top to bottom."""
    figure = canvas(WIDTH_IN, sum(heights_in))
    axes = figure.subplots(
        len(heights_in), 1, squeeze=False, sharex=sharex, gridspec_kw={"height_ratios": list(heights_in)}
    )
    return figure, [row[0] for row in axes]


def rows(axes: Axes, names: Sequence[str], colours: Sequence[str]) -> None:
    """Name the rows of a panel, from the top; each name is above its row."""
    axes.set_ylim(len(names) - 0.4, -0.8)
    axes.set_yticks([])
    for place, (name, colour) in enumerate(zip(names, colours, strict=True)):
        across = axes.get_yaxis_transform()
        text = axes.text(0, place - 0.38, name, transform=across, color=colour, weight="bold", size=SMALL, gid="halo")
        text.set_in_layout(False)  # a long name may extend over the next panel


def fits_on_line(*texts: str) -> bool:
    """Whether small texts fit side by side on one line."""
    return _CHARACTER_IN * sum(map(len, texts)) <= WIDTH_IN


def fit(canvas: Canvas) -> None:
    """Wrap headings and axis labels that are wider than the drawing."""
    for axes in canvas.axes:
        titles = (one for one in axes.get_children() if isinstance(one, Text) and one not in axes.texts)
        for text in (axes.xaxis.label, *titles):
            lines = text.get_text().splitlines()
            text.set_text("\n".join(_lines(line, (WIDTH_IN - _AXIS_IN) / _LETTER_IN) for line in lines))


def set_heading(axes: Axes, text: str, names: Iterable[str]) -> None:
    """Set a heading that fits beside the names of a panel's rows, which are on its left."""
    longest = max((len(line) for name in names for line in name.splitlines()), default=0)
    axes.set_title(_lines(text, (WIDTH_IN - _AXIS_IN / 2 - _CHARACTER_IN * longest) / _LETTER_IN))


def key_in(names: Sequence[str]) -> float:
    """Return the height of a key's lines beyond the first, which its panel must have in addition."""
    return _KEY_IN * (-(-len(names) // _columns(names)) - 1)


def key(axes: Axes, looks: Iterable[TreatmentStyle], *, lines: bool = True) -> None:
    """Name the treatments above a panel, each with its line and marker. The panel's title moves up."""
    handles = [
        Line2D([], [], **look.marks(5) | {"linestyle": look.dash if lines else "none"}, label=look.name)
        for look in looks
    ]
    legend(axes, handles, loc="lower left", bbox_to_anchor=(0, 1.0), labelcolor="linecolor", handlelength=2.4)


def legend(axes: Axes, handles: Sequence[Artist], **options: Any) -> None:
    """Draw keys above a panel, as many per line as fit. The panel's title moves up."""
    columns = _columns([str(handle.get_label()) for handle in handles])
    for handle in handles:
        handle.set_label(_lines(str(handle.get_label()), (WIDTH_IN - _HANDLE_IN) / _CHARACTER_IN))
    lines = max(str(handle.get_label()).count("\n") + 1 for handle in handles)
    axes.legend(handles=handles, ncols=columns, borderaxespad=0.2, columnspacing=1.2, handletextpad=0.5, **options)
    if axes.get_title(loc="left"):
        axes.set_title(axes.get_title(loc="left"), pad=8 + 14 * lines * -(-len(handles) // columns))


def _columns(labels: Iterable[str]) -> int:
    longest = max(map(len, labels), default=0)
    return max(1, min(4, int(WIDTH_IN / (_HANDLE_IN + _CHARACTER_IN * longest))))


def _lines(text: str, letters: float) -> str:
    """Wrap a text at a number of letters; a treatment's name may break after the plus signs that join its parts."""
    return textwrap.fill(text.replace("+", "+ "), max(12, int(letters))).replace("+ ", "+")


_BELOW = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
_FACTORS = (1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0)


def tick_values(low: float, high: float, most: int = 7) -> list[float]:
    """Return round factors between two ratios, including 1, spaced so that labels do not touch."""
    candidates = {f * 10.0**k for k in range(5) for f in _FACTORS if k == 0 or f in (1, 2, 5)} | set(_BELOW)
    gap = (math.log(high) - math.log(low)) / most
    chosen = [1.0] if low <= 1 <= high else []

    def roundness(value: float) -> tuple[int, bool]:
        digits = f"{value:.2g}".strip("0").replace(".", "").strip("0")
        return len(digits), digits not in ("1", "2", "5")

    # Rounder values come first, so that a crowded axis keeps 2 and 5 rather than 1.05.
    for value in sorted(candidates, key=roundness):
        if low <= value <= high and all(abs(math.log(value / c)) >= gap for c in chosen):
            chosen.append(value)
    return sorted(chosen)


def factor_axis(axes: Axes, low: float, high: float, most: int = 7) -> None:
    """Make a logarithmic axis of ratios, labelled 0.9×, 1×, 2×."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(tick_values(low, high, most)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}{wording.TIMES}"))


def added_axis(axes: Axes, low: float, high: float, most: int = 7) -> None:
    """Make an axis of added amounts, labelled −0.1, 0, +0.1."""
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 4, 5, 10]))
    # Rounding removes the error of binary fractions, which is far below the last digit of a tick.
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: wording.signed(round(value, 9))))


def log_axis(axes: Axes, which: Literal["x", "y"], low: float, high: float, most: int = 6) -> None:
    """Make a logarithmic axis of plain values, labelled 0.1, 0.2, 0.5, 1."""
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    axis = {"x": axes.xaxis, "y": axes.yaxis}[which]
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    span = math.log10(high / low)
    steps: tuple[float, ...] = (1,) if span > most - 1 else (1, 3) if span > 2.6 else (1, 2, 5)
    if span < 0.7:
        steps = (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9) if span >= 0.25 else tuple(1 + 0.1 * i for i in range(90))
    inside = [value for d in decades for s in steps if low <= (value := s * 10.0**d) <= high]
    while len(inside) > most + 2:
        inside = inside[::2]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}".replace(",", "\u202f")))


def estimate(
    axis: Axes,
    place: float,
    ends: Sequence[float],
    middle: float,
    look: TreatmentStyle,
    *,
    upright: bool = False,
    marker: str = "",
    filled: bool = True,
    size: float = 6.5,
    tip: str = "",
) -> None:
    """Draw an interval as a line with its estimate as a mark; `tip` is the mark's text under the pointer."""
    line, dot = ([place] * len(ends), ends), ([place], [middle])
    axis.plot(*(line if upright else line[::-1]), color=look.colour, linewidth=2, solid_capstyle="butt")
    style = {"marker": marker or look.marker, "markerfacecolor": look.colour if filled else PAPER}
    (mark,) = axis.plot(*(dot if upright else dot[::-1]), **look.marks(size) | style, markeredgewidth=1.4)
    if tip:
        set_tips(mark, tip)


def strip(
    axes: Axes, places: Sequence[float], values: Sequence[float], look: TreatmentStyle, *, upright: bool = True
) -> None:
    """Draw every value as a dot, at its place on the other axis."""
    # Imported late: it takes longer to load than matplotlib, and not every command draws.
    import seaborn

    seaborn.stripplot(
        x=places if upright else values,
        y=values if upright else places,
        orient="x" if upright else "y",
        native_scale=True,
        jitter=False,
        ax=axes,
        marker=look.marker,
        size=4,
        facecolors=look.face,
        edgecolor=look.colour,
        linewidth=0.9,
        alpha=0.7,
    )


def spaced(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions near ``values`` that are at least ``gap`` apart and between two bounds."""
    positions = [0.0] * len(values)
    ranked = sorted(range(len(values)), key=lambda i: values[i])
    floor = low
    for index in ranked:
        positions[index] = max(values[index], floor)
        floor = positions[index] + gap
    # Positions pushed above the upper bound move back down.
    ceiling = high
    for index in reversed(ranked):
        positions[index] = min(positions[index], ceiling)
        ceiling = positions[index] - gap
    return positions


# --- SVG --------------------------------------------------------------------------------------------------------------

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_TIP = "tip:"
_PREFIX = "\ue000"  # placeholder for the prefix of a figure's ids, which is known last
_REFERENCE = re.compile(r"(?:(?<=url\(#)|(?<=^#))[^)]+")
_DIGITS = re.compile(r"-?\d+\.\d{3,}")
_LARGEST = 1.7  # CSS pixels per point on a wide page
_COLOURS = {INK: "currentColor", "#000000": "currentColor", PAPER: "var(--mt-paper, #fff)"} | {
    colour: f"var({variable}, {colour})" for colour, variable in VARIABLES.items()
}
ElementTree.register_namespace("", _SVG.strip("{}"))
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "meshtrial",
    "text.parse_math": False,  # a treatment's name is text, even with dollar signs
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # metrics that matplotlib ships: the same layout on every machine
    **dict.fromkeys(("font.size", "axes.labelsize"), 9.0),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), SMALL),
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 7.0,
    **dict.fromkeys(("legend.frameon", "axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width", "hatch.linewidth"), 0.7),
    "lines.linewidth": 1.6,
    "grid.linewidth": 0.5,
    "grid.alpha": 0.16,
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 3.0),
    **dict.fromkeys(("xtick.minor.size", "ytick.minor.size"), 0),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color", "hatch.color"),
        INK,
    ),
}


def canvas(width_in: float, height_in: float) -> Canvas:
    """Return an empty drawing that pyplot does not know."""
    figure = Canvas(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def style() -> Any:
    """Return the context in which figures are drawn and written."""
    return matplotlib.rc_context(cast(Any, STYLE))


def set_tips(artist: Artist, *texts: str) -> None:
    """Give a mark, or each mark of a line in order, a text that browsers show under the pointer."""
    artist.set_gid(_TIP + json.dumps(texts))


def to_svg(figure: Canvas, alt: str) -> str:
    """Write a drawing as an SVG element for a page; ``alt`` describes it for readers who cannot see it."""
    buffer = io.StringIO()
    with style():
        # Write directly: savefig would draw everything twice.
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    root = ElementTree.fromstring(buffer.getvalue())
    for element in list(root.iter()):
        _adapt(element)
    _rename_ids(root)
    box = root.attrib["viewBox"]
    width_px = _LARGEST * float(box.split()[2])
    root.attrib = {
        "class": "mt-chart",
        "role": "img",
        "aria-label": alt,
        "viewBox": box,
        "style": f"max-width:{width_px:.0f}px;stroke-linejoin:round;stroke-linecap:butt",
        "fill": "currentColor",
    }
    text = ElementTree.tostring(root, encoding="unicode")
    return text.replace(_PREFIX, "m" + hashlib.sha256(text.encode()).hexdigest()[:8])


def data_uri(svg: str) -> str:
    """Return an SVG as a ``data:`` address, on white for readers that strip SVG from HTML."""
    rule = "<style>svg{color:#1c2128;background:#fff;font-family:system-ui,sans-serif}</style>"
    return "data:image/svg+xml;base64," + base64.b64encode(svg.replace(">", f">{rule}", 1).encode()).decode()


def _declarations(text: str) -> str:
    kept: dict[str, str] = {}
    for declaration in text.split(";"):
        name, _, value = map(str.strip, declaration.partition(":"))
        if name == "font":
            *weight, size = value.partition("px")[0].split()
            kept |= {"font-weight": weight[0]} if weight else {}
            kept["font-size"] = f"{size}px"
        elif name and name != "font-family":
            kept[name] = _COLOURS.get(value, value)
    return ";".join(f"{name}:{value}" for name, value in kept.items())


def _adapt(element: ElementTree.Element) -> None:
    for child in list(element):
        # The style's rule is for ``*``, which would affect the page.
        if child.tag in (f"{_SVG}metadata", f"{_SVG}style") or (child.tag == f"{_SVG}defs" and not len(child)):
            element.remove(child)
    element.text = element.text if element.text and element.text.strip() else None
    element.tail = None
    if _HREF in element.attrib:
        element.set("href", element.attrib.pop(_HREF))
    if "style" in element.attrib:
        element.set("style", _declarations(element.attrib["style"]))
    if element.get("transform", "").startswith(("rotate(-0 ", "rotate(0 ")):
        del element.attrib["transform"]
    name = element.get("id", "")
    if name == "halo":
        element.set("class", "mt-halo")
    elif name.startswith(_TIP):
        texts = json.loads(name.removeprefix(_TIP))
        marks = [element] if len(texts) == 1 else list(element.iter(f"{_SVG}use"))
        # Marks outside the axes are not written; then marks and texts can no longer be matched.
        for mark, text in zip(marks, texts, strict=True) if len(marks) == len(texts) else ():
            title = ElementTree.Element(f"{_SVG}title")
            title.text = text
            mark.insert(0, title)
    for attribute, value in element.attrib.items():
        if attribute not in ("id", "href"):
            # Coordinates are rounded to a hundredth of a point.
            shortened = _DIGITS.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value)
            element.set(attribute, " ".join(shortened.split()))


def _rename_ids(root: ElementTree.Element) -> None:
    """Keep only ids that are referred to, as numbers with a prefix derived from the figure's content.

    matplotlib derives ids from exact positions, which its layout does not reproduce.
    """
    used = {name for element in root.iter() for value in element.attrib.values() for name in _REFERENCE.findall(value)}
    names: dict[str, str] = {}
    for element in root.iter():
        name = element.attrib.pop("id", "")
        if name in used:
            names[name] = f"{_PREFIX}-{len(names)}"
            element.set("id", names[name])
    for element in root.iter():
        for attribute, value in element.attrib.items():
            element.set(attribute, _REFERENCE.sub(lambda name: names.get(name[0], name[0]), value))
