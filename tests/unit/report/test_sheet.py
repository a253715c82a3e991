"""What adapts to the width of a drawing."""

from itertools import pairwise

import pytest

from meshtrial.report import palette
from meshtrial.report.figures.common import added_axis
from meshtrial.report.sheet import NARROW, WIDE, Sheet

LOOKS = palette.looks_of("none", "none-aa", ["none", "none-aa", "node-proxy", "sidecar+mtls"])


def texts(sheet: Sheet) -> tuple[list[str], list[str]]:
    _, (axes,) = sheet.panels([2.0])
    sheet.rows(axes, list(LOOKS), [look.colour for look in LOOKS.values()])
    return [tick.get_text() for tick in axes.get_yticklabels()], [text.get_text() for text in axes.texts]


def test_names_stand_beside_their_rows_where_there_is_room_else_over_them():
    assert texts(WIDE) == (list(LOOKS), [])
    assert texts(NARROW) == ([], list(LOOKS))
    assert NARROW.row_in > WIDE.row_in


def test_as_many_keys_stand_on_a_line_as_fit_and_a_panel_grows_by_its_lines():
    short, long = ["none", "sidecar"], ["none", "a very long name of a treatment"]
    assert WIDE.columns(short) == 4
    assert NARROW.columns(short) == 2
    assert NARROW.columns(long) == 1
    assert WIDE.columns([]) == 4
    # A panel grows by the lines of its key.
    names = ["none", "a very long name of a treatment", "another"]
    assert NARROW.key_in(names) == pytest.approx(2 * NARROW.key_in(names[:2]))
    assert WIDE.key_in(["none", "sidecar"]) == 0


@pytest.mark.parametrize("sheet", [WIDE, NARROW, Sheet(5.5)])
def test_the_key_moves_the_title_up_by_its_lines(sheet):
    figure, (axes,) = sheet.panels([2.0])
    title = axes.set_title("title", loc="left")
    sheet.key(axes, LOOKS.values())
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == list(LOOKS)
    figure.canvas.draw()
    assert axes.get_title(loc="left") == "title"
    assert title.get_window_extent().y0 >= legend.get_window_extent().y0
    assert legend.get_window_extent().width <= figure.bbox.width


def test_what_a_line_holds_a_heading_takes_and_how_close_ticks_come_is_a_matter_of_the_width():
    texts = ("istio-ambient@details-nodelay", "−6.5 %", "◇ inconclusive (new study: 611 blocks)")
    assert WIDE.holds(*texts)
    assert not NARROW.holds(*texts)
    assert NARROW.holds("istio+mtls", "4.58×", "▲ slower, material")
    assert NARROW.wrapped("200rps · CPU a request of app and data plane").count("\n") == 1
    assert WIDE.wrapped("p50 latency / ms") == "p50 latency / ms"
    assert (NARROW.ticks, WIDE.ticks) == (4, 8)


def test_headings_and_keys_break_where_they_are_longer_than_the_sheet_also_behind_the_parts_of_a_name():
    figure, (axes,) = NARROW.panels([2.0])
    axes.set_title("achieved rate, worst run / % of asked")
    axes.set_xlabel("position in the block; bars are medians")
    axes.text(0, 0, "a remark in the drawing that has a place of its own")
    NARROW.key(axes, palette.looks_of("none", None, ["none", "istio-ambient+waypoint+observability"]).values())
    NARROW.fit(figure)
    assert axes.get_title().count("\n") == axes.get_xlabel().count("\n") == 1
    assert axes.texts[0].get_text().count("\n") == 0
    named = axes.get_legend().get_texts()[1].get_text()
    assert named.replace("\n", "") == "istio-ambient+waypoint+observability"
    assert "+\n" in named
    figure.canvas.draw()
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in axes.get_legend().get_texts())


def test_names_beside_rows_take_their_width_from_a_heading():
    heading, name = "p50 latency, against istio-ambient+waypoint", "istio-ambient+waypoint+observability"
    assert WIDE.wrapped(heading, [name]).count("\n") == WIDE.wrapped(heading).count("\n") + 1
    assert NARROW.wrapped(heading, [name]) == NARROW.wrapped(heading)


@pytest.mark.parametrize("width_in", [1.2, 1.6, 2, 2.2, 3, 6])
def test_ticks_of_what_is_added_keep_clear_of_one_another_and_inside_the_drawing(width_in):
    figure, (axes,) = Sheet(width_in).panels([1.5])
    added_axis(axes, -260, 510, "µs/request")
    figure.canvas.draw()
    labels = [label for label, at in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True) if -260 <= at <= 510]
    boxes = [label.get_window_extent() for label in labels]
    assert "0\N{NO-BREAK SPACE}µs/request" in [label.get_text() for label in labels]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert boxes[0].x0 >= figure.bbox.x0
    assert boxes[-1].x1 <= figure.bbox.x1
