import re
import xml.etree.ElementTree as ET

import polars as pl
import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.report import Figure, palette, svg

TABLE = pl.DataFrame({"x / ms": [1.23456789]})


def drawing(text: str = "label", colour: str = palette.HUES[0]):
    with svg.style():
        figure = svg.canvas(4, 2)
        axes = figure.subplots()
        axes.plot([1, 2], [1, 3], color=colour, marker="s")
        axes.text(1, 1, text, gid="halo")
    return figure


def test_text_is_text_and_escaped_and_never_mathematics():
    text = svg.to_svg(drawing("a<b & $x$"), "alt")
    assert ">a&lt;b &amp; $x$</text>" in text
    ET.fromstring(text)


def test_coordinates_are_rounded_and_numbers_that_are_read_are_not():
    text = svg.to_svg(drawing("at least 0.00125 ms instead of 0.0125 ms"), "alt")
    assert ">at least 0.00125 ms instead of 0.0125 ms</text>" in text
    assert not re.search(r'[ "]-?\d+\.\d{3,}', re.sub(r">[^<]*<", "><", text))


def test_every_reference_finds_its_target_and_ids_of_two_figures_never_meet():
    one, two = (svg.to_svg(drawing(text), "alt") for text in ("one", "two"))
    ids, others = (set(re.findall(r'id="([^"]+)"', text)) for text in (one, two))
    assert ids
    assert not ids & others
    used = set(re.findall(r"url\(#([^)]+)\)", one)) | set(re.findall(r'href="#([^"]+)"', one))
    assert used
    assert used <= ids
    assert one == svg.to_svg(drawing("one"), "alt")


def test_positions_that_differ_in_the_last_bit_are_the_same_text():
    def drawn(left: float) -> str:
        with svg.style():
            figure = svg.canvas(4, 3)
            figure.set_layout_engine("none")
            axes = figure.add_axes((left, 0.1, 0.6, 0.6))
            axes.plot([1, 2, 3], marker="o")
        return svg.to_svg(figure, "a line")

    assert "clip-path" in drawn(0.3)
    assert drawn(0.1 + 0.2) == drawn(0.3)
    assert drawn(0.4) != drawn(0.3)


def test_alt_text_is_escaped_in_its_attribute():
    text = svg.to_svg(drawing(), 'p50 "0.5 ms" <b>')
    root = ET.fromstring(text)
    assert root.get("aria-label") == 'p50 "0.5 ms" <b>'
    assert root.get("role") == "img"
    assert "<b>" not in text


def test_a_figure_without_alt_text_is_refused():
    for alt, caption in ((" ", "caption"), ("alt", "")):
        with refused(UsageError):
            Figure(drawing, alt, caption, TABLE)


@pytest.mark.parametrize("colour", [palette.GREY, *palette.HUES])
def test_every_colour_can_be_seen_on_its_page(colour):
    # WCAG 2.2, 1.4.11: 3:1 for graphical objects. Pages as page.css has them.
    assert contrast(colour, "#ffffff") >= 4.5
    assert contrast(palette.DARK[colour], "#12161b") >= 4.5


def contrast(one: str, two: str) -> float:
    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_style_sheets_hold_the_palette():
    from meshtrial.report.markup import style_sheet

    objects, page = style_sheet("objects.css"), style_sheet("page.css")
    for colour, variable in palette.VARIABLES.items():
        assert f"{variable}: {colour};" in objects
        assert f"{variable}: {palette.DARK[colour]};" in objects
        assert f"{variable}: {palette.DARK[colour]};" in page
