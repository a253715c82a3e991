"""The words of a verdict: each has a look, and no two are told apart by colour alone."""

from meshtrial.report import palette
from meshtrial.vocabulary import Word, directions, sentence


def test_every_word_has_a_shape_of_its_own_among_those_that_share_no_direction():
    # Up, down, equivalent, inconclusive, dependent, unstable, provisional, saturated, invalid.
    assert len({(word.marker, word.filled) for word in Word}) == 9
    assert all(word.glyph and word.meaning for word in Word)


def test_every_tone_has_a_colour():
    assert {word.tone for word in Word} == {*palette.TONES, "neutral"}


def test_what_was_shown_is_a_difference_or_equivalence():
    called = {word for kind in ("latency", "resource", "level") for word in directions(kind)}
    assert {word for word in Word if word.different} == called
    assert {word for word in Word if word.conclusive} == {*called, Word.EQUIVALENT}


def test_a_kind_without_words_of_its_own_is_a_level():
    assert directions("quality") == (Word.HIGHER, Word.LOWER)


def test_a_sentence_is_a_plain_text():
    assert [sentence(Word.SLOWER, qualifier) for qualifier in ("", "material")] == ["slower", "slower (material)"]
    assert type(sentence(Word.SLOWER, "")) is str
