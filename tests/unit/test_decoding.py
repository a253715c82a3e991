"""Text in every form in which programs write it; what is no text is named."""

import codecs
import io
import zipfile

import pytest

from meshtrial.decoding import NotTextError, as_utf8, text_of

TEXT = '{"treatment": "mäßig", "p50": 1.5}\r\n' * 3


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        codecs.BOM_UTF8 + TEXT.encode(),
        codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"),
        codecs.BOM_UTF32_BE + TEXT.encode("utf-32-be"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
    ],
    ids=["utf-8", "utf-8-sig", "16 LE", "16 BE", "32 LE", "32 BE", "16 LE, no mark", "16 BE, no mark"],
)
def test_every_unicode_form_is_the_same_text(data):
    assert text_of(data) == TEXT
    assert as_utf8(data) == TEXT.encode()


def test_a_mark_alone_is_no_text_and_bytes_that_are_no_text_stay_as_they_are():
    assert as_utf8(codecs.BOM_UTF16_LE) == b""
    for data in (b"PAR1\x00\x01", b"\x00" * 8, b"\x00a\x00\x00", "müßig".encode("latin-1"), b""):
        assert as_utf8(data) == data


def zipped(name):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, "<x/>")
    return packed.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            "a;müßig".encode("latin-1"),
            "is neither UTF-8 nor UTF-16 text (byte 3 is 0xfc, as in Latin-1 or another code page): save it as UTF-8",
        ),
        (b"ab\x00c", "is neither UTF-8 nor UTF-16 text (byte 2 is 0x00): save it as UTF-8"),
        # Nearly all of it beyond Latin: nothing tells it from another form.
        (
            "結果".encode("utf-16-le"),
            "is neither UTF-8 nor UTF-16 text (byte 2 is 0x9c, as in Latin-1 or another code page): save it as UTF-8",
        ),
        (codecs.BOM_UTF16_LE + b"a\x00b", "is damaged UTF-16 text, or was cut off (byte 4)"),
        (codecs.BOM_UTF32_LE + b"a\x00\x00\x00\xff", "is damaged UTF-32 text, or was cut off (byte 8)"),
        (zipped("xl/workbook.xml"), "is a spreadsheet: save its sheet as CSV"),
        (
            zipped("mimetype").replace(b"<x/>", b"application/vnd.oasis.opendocument.spreadsheet"),
            "is a spreadsheet: save its sheet as CSV",
        ),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is a spreadsheet: save its sheet as CSV"),
        (zipped("results/run-1.json"), "is a ZIP archive: unpack it"),
    ],
)
def test_what_is_no_text_is_said(data, words):
    with pytest.raises(NotTextError) as caught:
        text_of(data)
    assert str(caught.value) == words
