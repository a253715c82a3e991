"""A file of unknown form: JSON or not, its lines and rows, and where it is cut off."""

from pathlib import Path

import pytest
from refused import refused

from meshtrial.compare.formats.source import Source
from meshtrial.load.files import InputFileError


def of(data):
    return Source(Path("f"), data)


@pytest.mark.parametrize(
    ("data", "document", "first"),
    [
        (b'{"a": 1}', {"a": 1}, {"a": 1}),
        (b' \xef\xbb\xbf{"a": 1}', None, {}),
        (b'{"a": 1}\n{"b": 2}\n', {"a": 1}, {"a": 1}),
        (b"[1]", [1], {}),
        (b"{" * 5000, None, {}),
        (b"[" * 100_000, None, {}),
        (b'{"a": ' + b"9" * 5000 + b"}", None, {}),
        (b"\xff\xfe{", None, {}),
        (b"text", None, {}),
    ],
)
def test_a_document_or_none_and_never_an_error(data, document, first):
    assert (of(data).document, of(data).first_line) == (document, first)
    assert of(data).holds("a") == (document == {"a": 1})


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b'{"a": 1}', [1]),
        (b'\n {"a": 1}{"b": 2}\n\n{"c": 3}\n', [2, 2, 4]),
        (b'{"a": {\n"b": 1}\n{"c": 3}\n', [1, 3]),  # the first has no end
        (b'{"a": [\n {}]}\r\n{"c": [{', [1, 3]),  # nor has the last
        (b'{"a": 1}\n[info] done\n', [1]),
        (b'{"a": 1} done\n{"b": 1}', [1, 2]),
        (b"[1]\n[2]", [1, 2]),
    ],
)
def test_where_its_documents_begin(data, lines):
    assert of(data).documents == lines


def test_lines_that_hold_something():
    source = of(b'{"a": 1}\n\n{"b": 2}\n{"a": 3}\n')
    assert [line.data for line in source.lines("stream", b'"a"')] == [{"a": 1}, {"a": 3}]
    with refused(InputFileError):
        list(of(b'{"a": 1}\n3\n').lines("stream"))
    with refused(InputFileError):
        list(of(b'{"a": 1}\n{"b": ').lines("stream", b'"a"'))


def test_rows_with_and_without_a_header():
    assert [row.data for row in of(b"a,b\n1,2\n\n3,4\n").rows("CSV")] == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert [row.data for row in of(b'1,"x,\ny",3\n').rows("CSV", ("a", "b"))] == [{"a": "1", "b": "x,\ny"}]
