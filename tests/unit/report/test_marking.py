"""The mark of an analysis after the fact: on tables, sentences, and in a figure's drawing, words and numbers."""

import re

from meshtrial.report import figures, tables
from meshtrial.report.marking import COLUMN, marked

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
