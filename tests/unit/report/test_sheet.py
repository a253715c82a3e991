"""What a drawing's width decides."""

import pytest

from meshtrial.report import palette, sheet
from meshtrial.report.sheet import added_axis

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
