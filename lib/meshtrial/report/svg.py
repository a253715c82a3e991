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
from urllib.parse import quote, unquote

import matplotlib
from matplotlib.artist import Artist
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

from meshtrial.report.markup import part
from meshtrial.report.palette import INK, PAPER, VARIABLES

_TIP = "tip:"
_MARK = re.compile(r"(<use\b[^>]*)/>")
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

# An id where it is given, and where it is referred to.
_ID = re.compile(r"""( id="|url\(#|href="#)([^")]+)(?=[")])""")


def canvas(width_in: float, height_in: float) -> Canvas:
    """An empty drawing that belongs to no window, no pyplot and no list of open figures."""
    figure = Canvas(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def style() -> Any:
    """Context in which a figure is drawn and written."""
    return matplotlib.rc_context(cast(Any, STYLE))


def to_svg(figure: Canvas, alt: str) -> str:
    """Write a drawing as an SVG element for a page; ``alt`` says what it shows to those who do not see it."""
    buffer = io.StringIO()
    with style():
        # Drawn once, with its layout: savefig would draw it all twice.
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    raw = buffer.getvalue()
    return adapt(raw[raw.index("<svg") :], alt)


def tip(artist: Artist, *texts: str) -> None:
    """Let a drawn mark, or every mark of a line in its order, say these words when a pointer rests on it."""
    artist.set_gid(_TIP + quote(json.dumps(texts), safe=""))


def adapt(svg: str, alt: str) -> str:
    """Make a figure's SVG safe and fitting inside any page."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*</defs>", "", svg)
    svg = _colours(svg)
    svg = re.sub(r"font: (?:(bold|\d+) )?([\d.]+)px [^;\"]+", _font, svg)
    svg = re.sub(r"font-family: [^;\"]+;? ?", "", svg)
    svg = re.sub(r" transform=\"rotate\(-?0 [^)]*\)\"", "", svg)
    svg = re.sub(r"<[^>]+>", _rounded, svg)
    svg = _tips(svg)
    svg = _own_ids(svg)
    svg = re.sub(r">\s+<", "><", svg)
    svg = re.sub(r"\s*\n\s*", " ", svg)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    width, height = box.groups() if box else ("0", "0")
    head = str(part("svg_start", alt, width, height, f"{float(width) / 72:.2f}"))
    return re.sub(r"^<svg[^>]*>", lambda _: head, svg, count=1)


def standalone(svg: str) -> str:
    """The same as a file of its own, on white: for places that strip SVG out of HTML."""
    rule = "<style>svg{color:#1c2128;background:#fff;font-family:system-ui,sans-serif}</style>"
    return re.sub(r"^(<svg[^>]*>)", lambda m: m.group(1) + rule, svg, count=1)


def for_page(wide: str, narrow: str) -> str:
    """Both drawings of a figure for one page, of which a screen shows one."""
    if not narrow:
        return wide
    return wide.replace('class="mt-chart"', 'class="mt-chart mt-wide-chart"', 1) + narrow.replace(
        'class="mt-chart"', 'class="mt-chart mt-narrow"', 1
    )


def data_uri(svg: str) -> str:
    """A standalone SVG as a ``data:`` address."""
    return "data:image/svg+xml;base64," + base64.b64encode(standalone(svg).encode()).decode()


def _rounded(tag: re.Match[str]) -> str:
    """Coordinates to a hundredth of a point; text between tags is what somebody reads, and stays."""
    return re.sub(r'(?<=[ "])-?\d+\.\d{3,}', lambda m: f"{float(m.group()):.2f}".rstrip("0").rstrip("."), tag.group())


def _colours(svg: str) -> str:
    svg = re.sub(rf"{INK}|#000000", "currentColor", svg)
    svg = svg.replace(PAPER, "var(--mt-paper, #fff)")
    for colour, variable in VARIABLES.items():
        svg = svg.replace(f": {colour}", f": var({variable}, {colour})")
    return svg


def _font(match: re.Match[str]) -> str:
    weight = f"font-weight: {match.group(1)}; " if match.group(1) else ""
    return f"{weight}font-size: {match.group(2)}px"


def _tips(svg: str) -> str:
    """Titles for the marks that have something to say: what a browser shows beside the pointer, without a script."""
    # Every artist is a group with an id, so a line's marks end where the next id begins.
    first, *rest = re.split(r'(?=<g id=")', svg)
    return first + "".join(map(_titled, rest))


def _titled(group: str) -> str:
    named = re.match(rf'<g id="{_TIP}([^"]*)">', group)
    if named is None:
        return group
    texts: list[str] = json.loads(unquote(named.group(1)))
    body = group[named.end() :]
    if len(texts) == 1:
        return f"<g>{part('tip', texts[0])}{body}"
    # Marks that lie outside the axes are not written; then nobody knows which is which.
    if len(_MARK.findall(body)) != len(texts):
        return f"<g>{body}"
    said = iter(texts)
    return "<g>" + _MARK.sub(lambda mark: f"{mark.group(1)}>{part('tip', next(said))}</use>", body)


def _own_ids(svg: str) -> str:
    """Keep only ids that are referred to: numbers in their order, behind a prefix of the figure's content.

    matplotlib's ids are digests of positions to the last bit, and its layout does not give that twice.
    """
    used = set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg))
    svg = re.sub(r' id="halo[^"]*"', ' class="mt-halo"', svg)
    svg = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", svg)
    numbers = {name: number for number, name in enumerate(re.findall(r' id="([^"]+)"', svg))}
    svg = _ID.sub(lambda found: f"{found[1]}{numbers.get(found[2], found[2])}", svg)
    prefix = "m" + hashlib.sha256(svg.encode()).hexdigest()[:8]
    return _ID.sub(lambda found: f"{found[1]}{prefix}-{found[2]}", svg)
