"""A file's bytes, gzip or plain; endless decompression is refused."""

import gzip
import itertools
from pathlib import Path

import pytest
from refused import refused

from meshtrial.load.files import Fields, InputFileError, read_bytes


def test_gzip_that_unpacks_without_an_end_is_refused_and_what_shrinks_as_logs_do_is_read(tmp_path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(bytes(2**26 + 1)))
    with refused(InputFileError, names=[path, 2**26]):
        read_bytes(path)
    data = b'{"latency":0.001}\n' * 1000
    path.write_bytes(gzip.compress(data))
    assert read_bytes(path) == data


def of(**data):
    return Fields(data, Path("f.json"), "k6 summary")


def test_what_is_there_and_what_is_not():
    fields = of(a=1.5, b="2.5", c="7", d=True, e="", f={"g": "3"}, h=[{"i": 1}], j=None)
    assert (fields.number("a"), fields.number("b"), fields.number("none"), fields.number("j")) == (1.5, 2.5, None, None)
    assert (fields.integer("c"), fields.integer("none")) == (7, None)
    assert (fields.flag("d"), fields.flag("none"), fields.text("e"), fields.text("b")) == (True, None, None, "2.5")
    assert fields.counts("f") == {"g": 3}
    assert fields.counts("none") == fields.counts("j") == {}
    assert fields.inside("f").integer("g") == 3
    assert fields.inside("none").integer("g") is None
    assert [item.integer("i") for item in fields.objects("h")] == [1]
    assert fields.objects("none") == fields.objects("j") == []


@pytest.mark.parametrize(
    ("ask", "value"),
    [
        (Fields.number, "x"),
        (Fields.number, True),
        (Fields.number, float("nan")),
        (Fields.number, 10**400),
        (Fields.number, []),
        (Fields.integer, 1.5),
        (Fields.integer, 1e300),
        (Fields.text, 5),
        (Fields.flag, "true"),
        (Fields.counts, {"b": "x"}),
        (Fields.counts, [1]),
        (Fields.inside, "x"),
        (Fields.inside, True),
        (Fields.inside, "@{b=1; c=2}"),
        (Fields.counts, "System.Collections.Hashtable"),
        (Fields.counts, {"b": -1}),
        (Fields.objects, {"b": 1}),
        (Fields.objects, [{}, 1]),
        (Fields.objects, ["@{b=1}"]),
    ],
    ids=itertools.count(),
)
def test_what_makes_no_sense(ask, value):
    with refused(InputFileError):
        ask(of(a=value), "a")


def test_a_field_is_named_with_what_it_is_in():
    fields = of(metrics={"http_req_duration": {"values": "@{med=4}", "points": [{"count": "x"}]}})
    duration = fields.inside("metrics").inside("http_req_duration")
    with refused(InputFileError):
        duration.inside("values")
    with refused(InputFileError):
        duration.objects("points")[0].integer("count")
