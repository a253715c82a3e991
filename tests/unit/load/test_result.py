import gzip
import itertools
from pathlib import Path

import pytest
from refused import refused

from meshtrial.errors import RecordError, UsageError
from meshtrial.load.files import InputFileError, parse_duration_s, parse_time_ns
from meshtrial.load.result import read_result

HERE = Path(__file__).parents[2] / "fixtures" / "load"


def test_a_present_result_in_full(fortio):
    sent = [fortio.Sent(0, i, fortio.START_NS + i, 0.002, i != 3, "200" if i != 3 else "-1") for i in range(4)]
    result = read_result(fortio.output(sent, 42.5, 2, 3).json_path)
    assert (result.generator, result.client, result.version) == ("fortio", "fast", "1.68.1")
    assert (result.requested_rps, result.requested_duration_s, result.threads) == (42.5, 3.0, 2)
    assert (result.latency.count, result.error_count, result.sockets) == (4, 1, 2)
    assert result.return_codes == {"200": 3, "-1": 1}
    assert (result.keepalive, result.catchup, result.uniform, result.timeout_s) == (True, True, True, 5.0)


def test_version_1_3_lacks_what_later_ones_have():
    result = read_result(HERE / "fortio-1.3.json")
    assert (result.version, result.requested_rps, result.threads) == ("1.3.0", 100.0, 8)
    assert result.latency.count == 500
    assert result.errors is None
    assert result.error_count == 3  # 500 requests, 497 of them 200
    assert (result.sockets, result.resolution_s, result.uniform, result.catchup, result.client) == (None,) * 5


def test_nighthawk_writes_counts_as_strings():
    result = read_result(HERE / "nighthawk.json")
    assert (result.generator, result.client) == ("nighthawk", None)
    assert (result.latency.count, result.return_codes, result.error_count) == (20, {"200": 20}, 0)
    assert result.latency.buckets[1].count == 9
    assert result.requested_rps == 4.0


def test_gzip_is_read_whatever_the_name(tmp_path):
    packed = tmp_path / "run.json"
    packed.write_bytes(gzip.compress((HERE / "fortio-1.3.json").read_bytes()))
    assert read_result(packed).latency.count == 500


def test_a_closed_loop_has_no_rate(fortio):
    result = read_result(fortio.output([fortio.Sent(0, 0, fortio.START_NS, 0.1)], 0, 1, 3).json_path)
    assert result.closed_loop
    assert result.requested_rps is None


GOOD = (HERE / "fortio-1.3.json").read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n",
        GOOD[: len(GOOD) // 2],
        GOOD[:60],
        gzip.compress(GOOD, mtime=0)[:200],
        b"\xff\xfe",
        b"\xff\xfe\x00",
        b"{\xff}",
        b"Requests/sec: 12\n",
        b"[]",
        b'{"latencies": 1, "b": 2}',
        b'{"DurationHistogram": {"Data": []}}',
        b'{"DurationHistogram": {"Count": "many"}}',
        b'{"DurationHistogram": {"Count": 2.5}}',
        b'{"DurationHistogram": "Count=3"}',
        b'{"DurationHistogram": {"Count": 3, "Data": 5}}',
        b'{"DurationHistogram": {"Count": 3, "Data": [{"Start": 0, "End": 1, "Count": 2}]}}',
        b'{"DurationHistogram": {"Count": 3, "Data": [{"Start": 0, "Count": 3}]}}',
        b'{"error": true, "message": "init error", "exception": "refused"}',
    ],
    ids=itertools.count(),
)
def test_what_cannot_be_read_is_said_with_file_and_reason(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with refused(InputFileError) as caught:
        read_result(path)
    assert isinstance(caught.value, RecordError)
    assert isinstance(caught.value, UsageError)
    assert caught.value.exit_code == 2


def test_a_missing_file_and_a_folder(tmp_path):
    with refused(InputFileError):
        read_result(tmp_path / "none.json")
    with refused(InputFileError):
        read_result(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01.000000001Z", 1_000_000_001),
        ("1970-01-01T01:00:00.5+01:00", 500_000_000),
        ("2026-11-21T02:46:03.144895755Z", 1_795_229_163_144_895_755),
        ("yesterday", None),
    ],
)
def test_times_keep_their_nanoseconds(text, expected):
    assert parse_time_ns(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5s", 5.0), ("1m30.5s", 90.5), ("1h0m0s", 3600.0), ("250ms", 0.25), ("10µs", 1e-5), ("until stop", None)],
)
def test_durations_as_go_writes_them(text, expected):
    assert parse_duration_s(text) == (None if expected is None else pytest.approx(expected))
