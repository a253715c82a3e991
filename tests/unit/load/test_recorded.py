import dataclasses
import json

import pytest
from refused import missing, refused

from meshtrial.errors import UsageError
from meshtrial.load.files import InputFileError
from meshtrial.load.recorded import differences, impossible, merge_results, read_recorded
from meshtrial.load.result import read_result


def test_an_old_result_gives_quantiles_with_their_buckets(fixtures):
    found = read_recorded(fixtures / "fortio-1.3.json", 5)
    assert found.kind == "fortio"
    # p50 lies in (1, 2] ms at 1.5 ms; p99 in (3, 4] ms.
    assert found.responses["latency_p50_s"] == pytest.approx(0.0015)
    assert found.bounds["latency_p50_s"] == pytest.approx(0.001)
    assert "latency_p999_s" not in found.responses  # 500 requests hold half a request above p99.9
    assert found.responses["error_ratio"] == pytest.approx(3 / 500)
    assert len(found.notes) == 1  # this version does not separate failed requests


def test_nighthawk(fixtures):
    found = read_recorded(fixtures / "nighthawk.json", 1)
    assert (found.kind, found.notes) == ("nighthawk", ())
    # 1 + 9 of 20 requests lie up to 60 ms: the median ends its bucket.
    assert found.responses["latency_p50_s"] == pytest.approx(0.060)


def test_an_access_log_is_exact(fortio):
    sent = fortio.run(100, 2, 10, lambda thread, i: 0.001 + 0.001 * (i % 3))
    output = fortio.output(sent, 100, 2, 10)
    found = read_recorded(output.access_log_path, 100)
    assert (found.kind, found.settings) == ("access log", None)
    assert found.responses["latency_p50_s"] == pytest.approx(0.002)
    assert found.bounds["latency_p50_s"] == 1e-6
    assert found.responses["requests"] == 1000


def test_a_bucket_ends_where_the_smallest_and_the_largest_latency_say(fortio):
    # At -r 0.000001 all edges end at 0.1 s: what takes longer is one bucket that begins there.
    sent = fortio.run(10, 10, 100, lambda thread, i: 0.501 + 0.002 * (i % 2))
    path = fortio.output(sent, 10, 10, 100, Resolution=1e-6).json_path
    (bucket,) = read_result(path).latency.buckets
    assert (bucket.start_s, bucket.end_s) == (pytest.approx(0.1), 0.503)
    # The same for the remaining requests, without failed ones.
    failed = [dataclasses.replace(s, ok=s.iteration > 4) for s in sent]
    for every in (path, fortio.output(failed, 10, 10, 100, name="b", Resolution=1e-6).json_path):
        found = read_recorded(every, 10)
        assert found.responses["latency_p50_s"] == pytest.approx(0.502, abs=1e-5)
        assert found.bounds["latency_p50_s"] == pytest.approx(0.002)


def test_failed_requests_are_taken_out_of_the_histogram(fortio):
    sent = fortio.run(100, 2, 10, lambda thread, i: 0.0015)
    sent = [dataclasses.replace(s, ok=False, latency_s=3.0) if s.iteration < 100 else s for s in sent]
    found = read_recorded(fortio.output(sent, 100, 2, 10).json_path, 10)
    assert found.responses["latency_p90_s"] <= 0.002  # of the 800 good ones; over all requests it would be 3 s
    assert found.responses["error_ratio"] == pytest.approx(0.2)
    assert found.notes == ()


def test_settings_that_differ_are_listed_by_name(fortio):
    sent = fortio.run(100, 2, 10, lambda thread, i: 0.0015)
    a = read_result(fortio.output(sent, 100, 2, 10, name="a").json_path)
    b = read_result(fortio.output(sent, 200, 2, 10, name="b", H2=True, Version="1.60.0").json_path)
    found = differences([a, b])
    assert [str(d) for d in found if d.blocking] == [
        "client differs: fast, std",
        "rate (rps) differs: 100, 200",
        "HTTP/2 differs: no, yes",
    ]
    assert [d.setting for d in found if not d.blocking] == ["version"]
    assert differences([a, a]) == ()


def test_what_an_old_file_does_not_say_is_not_held_against_it(fixtures, fortio):
    old = read_result(fixtures / "fortio-1.3.json")
    new = read_result(fortio.output(fortio.run(100, 8, 5, lambda thread, i: 0.0015), 100, 8, 5).json_path)
    assert [d.setting for d in differences([old, new])] == ["version"]


def test_pooled_quantiles_of_two_generators(fortio):
    # At -r 0.001: 1000 requests in (0, 1] ms and 1000 in (2, 3] ms; p75 is in the middle of the latter.
    a = fortio.output(fortio.run(100, 2, 10, lambda thread, i: 0.0005), 100, 2, 10, name="a")
    b = fortio.output(fortio.run(100, 2, 10, lambda thread, i: 0.003), 100, 2, 10, name="b")
    responses, bounds = merge_results([read_result(o.json_path) for o in (a, b)], 10)
    assert responses["latency_p75_s"] == pytest.approx(0.0025)
    assert bounds["latency_p75_s"] == pytest.approx(0.001)
    c = fortio.output(fortio.run(100, 2, 10, lambda thread, i: 0.003), 100, 2, 10, name="c", Resolution=1e-4)
    with refused(UsageError, names=[a.json_path, 0.001, c.json_path, 0.0001]):
        merge_results([read_result(o.json_path) for o in (a, c)], 10)


HISTOGRAM = "DurationHistogram"


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({HISTOGRAM: {"Max": 0.0021}}, [HISTOGRAM, "Max", 0.0021, 0.003]),
        ({HISTOGRAM: {"Min": 0.0021, "Avg": 0.0022}}, [HISTOGRAM, "Min", 0.0021, 0.001]),
        ({HISTOGRAM: {"Max": None}}, [HISTOGRAM, "Max"]),
        ({HISTOGRAM: {"Avg": None}}, [HISTOGRAM, "Avg"]),
        ({HISTOGRAM: {"Min": -1}}, [HISTOGRAM, -1]),
        ({"ActualQPS": 1e12}, ["1e+12"]),
        ({"ActualQPS": -5}, [-5]),
        ({"ActualQPS": 1e-9}, [500, "1e-09"]),
        ({"ActualDuration": -5}, ["-5e-09", "actual_duration_s"]),
        ({"ActualDuration": 1e30}, ["1e+21"]),
        ({"NumThreads": -4}, [-4, "threads"]),
    ],
)
def test_a_result_of_no_run_is_refused(fixtures, tmp_path, changes, names):
    data = json.loads((fixtures / "fortio-1.3.json").read_text())
    for name, change in changes.items():
        data[name] = data[name] | change if isinstance(change, dict) else change
    path = tmp_path / "x.json"
    path.write_text(json.dumps(data))
    with refused(InputFileError, names=[path, *names]):
        read_recorded(path, 5)


def test_a_latency_that_no_answer_takes_is_refused_wherever_its_bucket_lies(fixtures, tmp_path):
    data = json.loads((fixtures / "fortio-1.3.json").read_text())
    data[HISTOGRAM]["Data"][-1]["End"] = 1e30
    path = tmp_path / "x.json"
    path.write_text(json.dumps(data))
    with refused(InputFileError, names=[path, HISTOGRAM, "1e+30"]):
        read_recorded(path, 5)


@pytest.mark.parametrize(
    ("responses", "names"),
    [
        ({"latency_p50_s": 0.001, "latency_max_s": 0.001, "requests": 5.0, "error_ratio": 1.0}, []),
        ({"latency_p50_s": 0.00105, "latency_max_s": 0.001}, []),  # within both bounds
        ({"latency_p50_s": 0.0012, "latency_max_s": 0.001}, ["maximum", "p50"]),
        ({"latency_p50_s": 0.0012, "latency_p99_s": 0.001}, ["p99", "p50"]),
        ({"latency_mean_s": 1e30}, ["1e+30"]),
        ({"latency_p50_s": -1.0}, [-1]),
        ({"error_ratio": 1.5}, [1.5]),
    ],
)
def test_impossible_numbers_are_distinguished_from_coarse_ones(responses, names):
    reason = impossible(responses, {"latency_p50_s": 1e-4})
    assert bool(reason) == bool(names)
    assert missing(reason, names) == []
