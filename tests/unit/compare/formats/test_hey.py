"""hey's text and CSV: four decimals of seconds."""

import pytest


def test_the_text(read):
    found = read("hey.txt")
    assert (found.responses["latency_p50_s"], found.responses["latency_p99_s"]) == (0.0005, 0.0024)
    assert (found.responses["latency_mean_s"], found.responses["latency_max_s"]) == (0.0006, 0.0030)
    assert set(found.bounds.values()) == {1e-4}
    assert (found.responses["requests"], found.responses["error_ratio"]) == (300, 0)
    assert found.responses["achieved_rps"] == 199.68
    assert found.settings.actual_duration_s == 1.5024
    assert found.start_unix_s is None
    assert "hey -o csv" in found.further


def test_an_older_version_prints_one_percent_sign(read, fixture_text):
    assert read(fixture_text("hey.txt").replace("%%", "%")).responses == read("hey.txt").responses


def test_failures_with_and_without_an_answer(read, fixture_text):
    text = fixture_text("hey.txt").replace(
        "  [200]\t300 responses\n",
        "  [200]\t290 responses\n  [503]\t10 responses\n\nError distribution:\n"
        '  [20]\tGet "http://127.0.0.1:1/": dial tcp 127.0.0.1:1: connect: connection refused\n',
    )
    found = read(text)
    assert found.responses["requests"] == 320
    assert found.responses["error_ratio"] == pytest.approx(30 / 320)
    assert "include failed requests" in found.notes[-1]


def test_a_run_without_an_answer(refused, fixture_text):
    text = fixture_text("hey.txt").replace("0.0006 secs", " NaN secs").replace("  [200]\t300 responses\n", "")
    refused(text + "Error distribution:\n  [6]\tconnection refused\n")


def test_beyond_a_million_requests_hey_divides_by_too_few(read, fixture_text):
    found = read(fixture_text("hey.txt").replace("[200]\t300 ", "[200]\t3000000 "))
    assert found.responses["achieved_rps"] == pytest.approx(3_000_000 / 1.5024)
    assert "latency_mean_s" not in found.responses


def test_every_answer_of_the_csv(read):
    found = read("hey.csv")
    # The tenth and the eleventh of 20 are 0.4 and 0.5 ms.
    assert found.responses["latency_p50_s"] == pytest.approx(0.00045)
    assert found.bounds["latency_p50_s"] == 1e-4
    assert found.responses["latency_max_s"] == 0.0037
    assert (found.responses["requests"], found.responses["error_ratio"]) == (20, 0)
    assert found.responses["achieved_rps"] == pytest.approx(20 / 0.1034)  # the last began at 0.1014 s, took 2 ms
    assert "without a response are not in hey's CSV" in found.notes[0]


def test_an_older_csv_has_no_status(read, fixture_text):
    old = "\n".join(",".join(line.split(",")[:6]) for line in fixture_text("hey.csv").splitlines())
    found = read(old)
    assert found.responses["latency_p50_s"] == pytest.approx(0.00045)
    assert "error_ratio" not in found.responses
    assert "achieved_rps" not in found.responses


def test_failed_answers_are_taken_out(read, fixture_text):
    found = read(fixture_text("hey.csv").replace("0.0037,0.0000,0.0000,0.0000,0.0003,0.0000,200",
                                                 "0.0037,0.0000,0.0000,0.0000,0.0003,0.0000,503"))  # fmt: skip
    assert found.responses["error_ratio"] == pytest.approx(1 / 20)
    assert found.responses["latency_max_s"] == 0.0020
