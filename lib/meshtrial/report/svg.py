"""matplotlib's SVG, adapted for use inside a page: selectable text, the page's colours, ids that do not collide.

matplotlib writes a whole file with a style rule for ``*``, which would affect the page, and ids such as ``figure_1``
that every figure has.
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
    """Return an empty drawing that pyplot does not know."""
    figure = Canvas(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def style() -> Any:
    """Return the context in which figures are drawn and written."""
    return matplotlib.rc_context(cast(Any, STYLE))


def tip(artist: Artist, *texts: str) -> None:
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


def standalone(svg: str) -> str:
    """Return the SVG as a file on white, for readers that strip SVG from HTML."""
    rule = "<style>svg{color:#1c2128;background:#fff;font-family:system-ui,sans-serif}</style>"
    return svg.replace(">", ">" + rule, 1)


def data_uri(svg: str) -> str:
    """Return an SVG as a ``data:`` address."""
    return "data:image/svg+xml;base64," + base64.b64encode(standalone(svg).encode()).decode()


def _adapt(element: ElementTree.Element) -> None:
    """Adapt an element to any page; its text stays."""
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
        _add_titles(element, json.loads(name.removeprefix(_TIP)))
    for attribute, value in element.attrib.items():
        if attribute not in ("id", "href"):
            element.set(attribute, _DIGITS.sub(_rounded, " ".join(value.split())))


def _declarations(text: str) -> str:
    """Return the declarations of a style with the page's colours and without a font family."""
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


def _add_titles(group: ElementTree.Element, texts: list[str]) -> None:
    """Add titles to marks; browsers show them under the pointer without a script."""
    marks = [group] if len(texts) == 1 else list(group.iter(f"{_SVG}use"))
    # Marks outside the axes are not written, so marks and texts can no longer be matched.
    if len(marks) != len(texts):
        return
    for mark, text in zip(marks, texts, strict=True):
        title = ElementTree.Element(f"{_SVG}title")
        title.text = text
        mark.insert(0, title)


def _rounded(number: re.Match[str]) -> str:
    """Round a coordinate to a hundredth of a point."""
    return f"{float(number.group()):.2f}".rstrip("0").rstrip(".")


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
