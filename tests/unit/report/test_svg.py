"""Drawings: SVG for pages, panels and keys, and the mark of an analysis after the fact."""

import re
import xml.etree.ElementTree as ET

import polars as pl
import pytest

from meshtrial.report import figures, palette, sheet, tables
from meshtrial.report.marking import COLUMN, marked
from meshtrial.report.sheet import added_axis

TABLE = pl.DataFrame({"x / ms": [1.23456789]})


def drawing(text: str = "label", colour: str = palette.HUES[0]):
    with sheet.style():
        figure = sheet.canvas(4, 2)
        axes = figure.subplots()
        axes.plot([1, 2], [1, 3], color=colour, marker="s")
        axes.text(1, 1, text, gid="halo")
    return figure


def test_text_is_text_and_escaped_and_never_mathematics():
    text = sheet.to_svg(drawing("a<b & $x$"), "alt")
    assert ">a&lt;b &amp; $x$</text>" in text
    ET.fromstring(text)


def test_coordinates_are_rounded_and_numbers_that_are_read_are_not():
    text = sheet.to_svg(drawing("at least 0.00125 ms instead of 0.0125 ms"), "alt")
    assert ">at least 0.00125 ms instead of 0.0125 ms</text>" in text
    assert not re.search(r'[ "]-?\d+\.\d{3,}', re.sub(r">[^<]*<", "><", text))


def test_every_reference_finds_its_target_and_ids_of_two_figures_never_meet():
    one, two = (sheet.to_svg(drawing(text), "alt") for text in ("one", "two"))
    ids, others = (set(re.findall(r'id="([^"]+)"', text)) for text in (one, two))
    assert ids
    assert not ids & others
    used = set(re.findall(r"url\(#([^)]+)\)", one)) | set(re.findall(r'href="#([^"]+)"', one))
    assert used
    assert used <= ids
    assert one == sheet.to_svg(drawing("one"), "alt")


def test_positions_that_differ_in_the_last_bit_are_the_same_text():
    def drawn(left: float) -> str:
        with sheet.style():
            figure = sheet.canvas(4, 3)
            figure.set_layout_engine("none")
            axes = figure.add_axes((left, 0.1, 0.6, 0.6))
            axes.plot([1, 2, 3], marker="o")
        return sheet.to_svg(figure, "a line")

    assert "clip-path" in drawn(0.3)
    assert drawn(0.1 + 0.2) == drawn(0.3)
    assert drawn(0.4) != drawn(0.3)


def test_alt_text_is_escaped_in_its_attribute():
    text = sheet.to_svg(drawing(), 'p50 "0.5 ms" <b>')
    root = ET.fromstring(text)
    assert root.get("aria-label") == 'p50 "0.5 ms" <b>'
    assert root.get("role") == "img"
    assert "<b>" not in text


@pytest.mark.parametrize("colour", [palette.GREY, *palette.HUES])
def test_every_colour_can_be_seen_on_its_page(colour):
    # WCAG 2.2, 1.4.11: 3:1 for graphical objects. Pages with page.css.
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


LOOKS = palette.looks_of("none", "none-aa", ["none", "none-aa", "node-proxy", "sidecar+mtls"])


def test_names_stand_over_their_rows_the_first_on_top():
    _, (axes,) = sheet.panels([2.0])
    sheet.rows(axes, list(LOOKS), [look.colour for look in LOOKS.values()])
    assert [text.get_text() for text in axes.texts] == list(LOOKS)
    assert not axes.get_yticklabels()
    bottom, top = axes.get_ylim()
    assert bottom > top


def test_a_panel_grows_by_the_lines_of_its_key():
    short, long = ["none", "sidecar"], ["none", "a very long name of a treatment"]
    assert sheet.key_in(short) == 0
    assert sheet.key_in([*long, "another"]) == pytest.approx(2 * sheet.key_in(long))
    assert sheet.key_in(long) > 0


def test_the_key_moves_the_title_up_by_its_lines():
    figure, (axes,) = sheet.panels([2.0])
    title = axes.set_title("title", loc="left")
    sheet.key(axes, LOOKS.values())
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == list(LOOKS)
    figure.canvas.draw()
    assert axes.get_title(loc="left") == "title"
    assert title.get_window_extent().y0 >= legend.get_window_extent().y0
    assert legend.get_window_extent().width <= figure.bbox.width


def test_a_line_holds_texts_that_do_not_touch():
    assert sheet.fits_on_line("istio+mtls", "4.58×", "▲ slower, material")
    assert not sheet.fits_on_line("istio-ambient@details-nodelay", "−6.5 %", "◇ inconclusive (new study: 611 blocks)")


def test_headings_and_keys_break_where_they_are_longer_than_the_drawing_also_behind_the_parts_of_a_name():
    figure, (axes,) = sheet.panels([2.0])
    axes.set_title("achieved rate of the worst run of all blocks / % of asked")
    axes.set_xlabel("position in the block; bars are medians over all of them")
    axes.text(0, 0, "a remark in the drawing that has a place of its own, however long it may be")
    name = "istio-ambient@details-nodelay+waypoint+authorization+observability"
    sheet.key(axes, palette.looks_of("none", None, ["none", name]).values())
    sheet.fit(figure)
    assert axes.get_title().count("\n") == axes.get_xlabel().count("\n") == 1
    assert axes.texts[0].get_text().count("\n") == 0
    named = axes.get_legend().get_texts()[1].get_text()
    assert named.replace("\n", "") == name
    assert "+\n" in named
    figure.canvas.draw()
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in axes.get_legend().get_texts())


def test_ticks_of_what_is_added_are_round_signed_and_few():
    figure, (axes,) = sheet.panels([1.5])
    added_axis(axes, -260, 510, 3)
    figure.canvas.draw()
    labels = {label.get_text() for label in axes.get_xticklabels()}
    assert {"0", "+400"} <= labels
    assert axes.get_xlim() == (-260, 510)


SAID = "margin 10 % instead of 5 %, declared before the runs"


def text_of(svg: str) -> str:
    return " ".join(re.findall(r">([^<>]+)</text>", svg))


def test_a_figure_says_it_in_drawing_words_caption_and_numbers(data):
    own, later = figures.forest(data), marked(figures.forest(data), SAID)
    assert "After the fact: margin 10 % instead of 5 %" in text_of(later.svg)
    assert later.alt.startswith(f"After the fact: {SAID}.")
    assert later.caption.startswith(f"After the fact: {SAID}.")
    assert set(later.table[COLUMN]) == {SAID}
    assert later.table.drop(COLUMN).equals(own.table)
    assert "After the fact" not in text_of(own.svg)


def test_without_anything_said_nothing_is_changed(data):
    figure = figures.forest(data)
    assert marked(figure, "") is figure


def test_what_is_said_is_text_and_never_markup(data):
    later = marked(tables.verdict_table(data), "baseline <b>x</b>")
    assert "<b>x</b>" not in later.html
