import gzip
import itertools

import polars as pl
import pytest
from refused import refused

from meshtrial.load import accesslog
from meshtrial.load.accesslog import SCHEMA, read_access_log
from meshtrial.load.files import InputFileError

LINE = '{"latency":0.000213,"timestamp":1795229163145016042,"thread":1,"iter":0,"ok":true,"details":"200"}\n'
OTHER = '{"latency":0.000100,"timestamp":1795229163145000000,"thread":0,"iter":0,"ok":false,"details":"-1"}\n'


@pytest.fixture
def write(tmp_path):
    def writer(content):
        path = tmp_path / "a.log"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return writer


def test_a_row_a_request_sorted_by_thread_and_iteration(write):
    frame = read_access_log(write(LINE + OTHER))
    assert frame.schema == pl.Schema(SCHEMA)
    assert frame.rows() == [
        (0, 0, 1795229163145000000, 0.0001, False, "-1"),
        (1, 0, 1795229163145016042, 0.000213, True, "200"),
    ]


def test_gzip(write):
    assert read_access_log(write(gzip.compress((LINE + OTHER).encode()))).height == 2


@pytest.mark.parametrize("form", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_a_log_that_went_through_windows_is_the_same(write, form):
    assert read_access_log(write((LINE + OTHER).replace("\n", "\r\n").encode(form))).height == 2


@pytest.mark.parametrize("details", ["200", "-1", "SERVING", "a, b", '\\"c\\"', "d}"])
def test_a_large_log_is_read_in_pieces_as_it_is_in_one(write, fortio, monkeypatch, details):
    text = fortio.log_text(fortio.run(100, 4, 3, lambda thread, i: 0.001 + thread / 1e3))
    text = text.replace('"200"', f'"{details}"', 7)
    whole = read_access_log(write(gzip.compress(text.encode())))  # what is packed is unpacked at once
    monkeypatch.setattr(accesslog, "PIECE_BYTES", 1000)
    assert read_access_log(write(text)).equals(whole)
    assert whole["code"].value_counts().height == (1 if details == "200" else 2)


def test_influx_has_no_iteration_so_it_is_counted_in_order_of_start(write):
    text = (
        'latency,thread=0,ok=true value=0.001000,details="200" 1795229163002000000\n'
        'latency,thread=0,ok=false value=0.001500,details="-1" 1795229163000000000\n'
    )
    assert read_access_log(write(text)).rows() == [
        (0, 0, 1795229163000000000, 0.0015, False, "-1"),
        (0, 1, 1795229163002000000, 0.001, True, "200"),
    ]


def test_an_old_log_without_iter_and_ok(write):
    text = '{"latency":0.2,"timestamp":5000000000,"thread":0}\n{"latency":0.1,"timestamp":1000000000,"thread":0}\n'
    assert read_access_log(write(text)).rows() == [(0, 0, 10**9, 0.1, True, ""), (0, 1, 5 * 10**9, 0.2, True, "")]


def test_details_in_go_quotes_that_json_does_not_know(write):
    # %q of a gRPC error with a bell, a byte and an escaped backslash before an x.
    text = LINE.replace('"200"', r'"\a \x00 \v \U0001f600 \\x41 \" end"')
    assert read_access_log(write(text))["code"][0] == '\a \x00 \v \U0001f600 \\x41 " end'


@pytest.mark.parametrize(
    "content",
    [
        "",
        LINE + OTHER[:40],
        LINE + OTHER[:-1],
        LINE + "2026-11-21 GET / 200\n",
        LINE + '{"latency": 1}\n',
        LINE + OTHER.replace("0.000100", '"fast"'),
        "[1]\n",
        "latency,thread=0 nonsense\n",
        LINE + OTHER + LINE,
        # 2 s that start 1 s after a request of 3 s, on the same connection
        '{"latency":3,"timestamp":1000000000,"thread":0,"iter":0}\n'
        '{"latency":2,"timestamp":2000000000,"thread":0,"iter":1}\n',
    ],
    ids=itertools.count(),
)
def test_what_is_not_one_whole_log_is_refused(write, content):
    path = write(content)
    with refused(InputFileError):
        read_access_log(path)


def test_fractions_of_a_microsecond_are_not_an_overlap(write):
    # The log rounds 1.0000004 ms up to 1.000001 ms: the next start is then 0.6 us "too early".
    text = (
        '{"latency":0.001001,"timestamp":1000000000,"thread":0,"iter":0}\n'
        '{"latency":0.001000,"timestamp":1001000400,"thread":0,"iter":1}\n'
    )
    assert read_access_log(write(text)).height == 2
