"""matplotlib's SVG, made fit to stand inside a page: text as text, colours of the page, no ids that collide.

matplotlib writes a whole file with a style rule for ``*`` in it, which would reach the page around it,
and ids (``figure_1``) that every figure has.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from typing import Any, cast
from xml.etree import ElementTree

import matplotlib
from matplotlib.artist import Artist
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

from meshtrial.report.palette import INK, PAPER, VARIABLES

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_TIP = "tip:"
_OWN = "\ue000"  # stands for the prefix of a figure's ids until that is known
_REFERENCE = re.compile(r"(?:(?<=url\(#)|(?<=^#))[^)]+")
_DIGITS = re.compile(r"-?\d+\.\d{3,}")
_LARGEST = 1.7  # css pixels a point on a wide page
_COLOURS = {INK: "currentColor", "#000000": "currentColor", PAPER: "var(--mt-paper, #fff)"} | {
    colour: f"var({variable}, {colour})" for colour, variable in VARIABLES.items()
}
ElementTree.register_namespace("", _SVG.strip("{}"))
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "meshtrial",
    "text.parse_math": False,  # a treatment's name is text, whatever it holds
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # metrics that matplotlib ships: the same layout on every machine
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 7.0,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.5,
    "grid.alpha": 0.16,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.6,
    "hatch.linewidth": 0.7,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color", "hatch.color"),
        INK,
    ),
}


def canvas(width_in: float, height_in: float) -> Canvas:
    """An empty drawing that belongs to no window, no pyplot and no list of open figures."""
    figure = Canvas(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def style() -> Any:
    """Context in which a figure is drawn and written."""
    return matplotlib.rc_context(cast(Any, STYLE))


def tip(artist: Artist, *texts: str) -> None:
    """Let a drawn mark, or every mark of a line in its order, say these words when a pointer rests on it."""
    artist.set_gid(_TIP + json.dumps(texts))


def to_svg(figure: Canvas, alt: str) -> str:
    """Write a drawing as an SVG element for a page; ``alt`` says what it shows to those who do not see it."""
    buffer = io.StringIO()
    with style():
        # Drawn once, with its layout: savefig would draw it all twice.
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    root = ElementTree.fromstring(buffer.getvalue())
    for element in list(root.iter()):
        _adapt(element)
    _own_ids(root)
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
    return text.replace(_OWN, "m" + hashlib.sha256(text.encode()).hexdigest()[:8])


def standalone(svg: str) -> str:
    """The same as a file of its own, on white: for places that strip SVG out of HTML."""
    rule = "<style>svg{color:#1c2128;background:#fff;font-family:system-ui,sans-serif}</style>"
    return svg.replace(">", ">" + rule, 1)


def data_uri(svg: str) -> str:
    """A standalone SVG as a ``data:`` address."""
    return "data:image/svg+xml;base64," + base64.b64encode(standalone(svg).encode()).decode()


def _adapt(element: ElementTree.Element) -> None:
    """Make an element fit into any page; its text is what somebody reads, and stays."""
    for child in list(element):
        # The rule of the style is for ``*`` and would reach the page.
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
        _say(element, json.loads(name.removeprefix(_TIP)))
    for attribute, value in element.attrib.items():
        if attribute not in ("id", "href"):
            element.set(attribute, _DIGITS.sub(_rounded, " ".join(value.split())))


def _declarations(text: str) -> str:
    """The declarations of a style, in the page's colours and in its font."""
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


def _say(group: ElementTree.Element, texts: list[str]) -> None:
    """Titles for what has something to say: a browser shows them beside the pointer, without a script."""
    marks = [group] if len(texts) == 1 else list(group.iter(f"{_SVG}use"))
    # Marks that lie outside the axes are not written; then nobody knows which is which.
    if len(marks) != len(texts):
        return
    for mark, text in zip(marks, texts, strict=True):
        title = ElementTree.Element(f"{_SVG}title")
        title.text = text
        mark.insert(0, title)


def _rounded(number: re.Match[str]) -> str:
    """A coordinate to a hundredth of a point."""
    return f"{float(number.group()):.2f}".rstrip("0").rstrip(".")


def _own_ids(root: ElementTree.Element) -> None:
    """Keep only ids that are referred to: numbers in their order, behind a prefix of the figure's content.

    matplotlib's ids are digests of positions to the last bit, and its layout does not give that twice.
    """
    used = {name for element in root.iter() for value in element.attrib.values() for name in _REFERENCE.findall(value)}
    own: dict[str, str] = {}
    for element in root.iter():
        name = element.attrib.pop("id", "")
        if name in used:
            own[name] = f"{_OWN}-{len(own)}"
            element.set("id", own[name])
    for element in root.iter():
        for attribute, value in element.attrib.items():
            element.set(attribute, _REFERENCE.sub(lambda name: own.get(name[0], name[0]), value))
