"""Verdict labels: each has a style, and no two are distinguished by colour alone."""

import pytest
from commandline import SAMPLE

from meshtrial.inference import read_study
from meshtrial.records.store import StudyStore
from meshtrial.report import palette, tables
from meshtrial.report.figures import forest
from meshtrial.vocabulary import VerdictLabel, directions, sentence


def test_every_word_has_a_shape_of_its_own_among_those_that_share_no_direction():
    # Up, down, equivalent, inconclusive, dependent, unstable, provisional, saturated, invalid.
    assert len({(word.marker, word.filled) for word in VerdictLabel}) == 9
    assert all(word.glyph and word.meaning for word in VerdictLabel)


def test_every_tone_has_a_colour():
    assert {word.tone for word in VerdictLabel} == {*palette.TONES, "neutral"}


def test_what_was_shown_is_a_difference_or_equivalence():
    called = {word for kind in ("latency", "resource", "level") for word in directions(kind)}
    assert {word for word in VerdictLabel if word.different} == called
    assert {word for word in VerdictLabel if word.conclusive} == {*called, VerdictLabel.EQUIVALENT}


def test_a_sentence_is_a_plain_text():
    assert [sentence(VerdictLabel.SLOWER, qualifier) for qualifier in ("", "material")] == [
        "slower",
        "slower (material)",
    ]
    assert type(sentence(VerdictLabel.SLOWER, "")) is str


def test_tables_and_figures_take_sign_tone_and_meaning_from_here(monkeypatch: pytest.MonkeyPatch):
    study = read_study(StudyStore.open(SAMPLE))
    before = VerdictLabel.EQUIVALENT.glyph
    for name, value in {"glyph": "@", "tone": "worse", "meaning": "shown to be as good as none"}.items():
        monkeypatch.setattr(VerdictLabel.EQUIVALENT, name, value)
    table = tables.verdict_table(study)
    html, figure = table._repr_html_(), forest(study).svg
    assert 'mt-worse">@ equivalent</span>' in html
    assert "@ equivalent: shown to be as good as none" in repr(table)
    assert "@ equivalent" in figure
    assert not [shown for shown in (html, repr(table), figure) if before in shown]
