"""Text in every encoding that programs write; other bytes are refused by name."""

import codecs
import io
import itertools
import zipfile

import pytest
from refused import refused

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
    "data",
    [
        "a;müßig".encode("latin-1"),
        b"ab\x00c",
        # Nearly all of it is outside Latin, so nothing distinguishes it from another encoding.
        "結果".encode("utf-16-le"),
        codecs.BOM_UTF16_LE + b"a\x00b",
        codecs.BOM_UTF32_LE + b"a\x00\x00\x00\xff",
        zipped("xl/workbook.xml"),
        zipped("mimetype").replace(b"<x/>", b"application/vnd.oasis.opendocument.spreadsheet"),
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        zipped("results/run-1.json"),
    ],
    ids=itertools.count(),
)
def test_what_is_no_text_is_said(data):
    with refused(NotTextError):
        text_of(data)
