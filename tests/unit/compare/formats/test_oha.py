"""oha's JSON and CSV, in seconds; requests cut off at the end of a timed run are no failures."""

import pytest
from refused import missing


def test_percentiles_as_oha_computed_them(read, whole):
    found = read("oha.json", 0.1)
    listed = whole["latencyPercentiles"]
    assert found.responses["latency_p50_s"] == listed["p50"]
    assert found.responses["latency_p999_s"] == listed["p99.9"]
    assert found.responses["latency_mean_s"] == whole["summary"]["average"]
    assert found.responses["achieved_rps"] == whole["summary"]["requestsPerSec"]
    assert found.start_unix_s is None
    # 290 and 10 responses; two more requests were in flight at the end, which its rate includes.
    assert (found.responses["requests"], found.settings.requests) == (300, 302)
    assert found.responses["error_ratio"] == pytest.approx(10 / 300)
    assert "oha's own percentiles" in found.notes[0]


WHOLE = "oha.json"


def test_what_failed(read, whole):
    whole |= {
        "statusCodeDistribution": {"200": 90, "503": 5},
        "errorDistribution": {"refused": 5, "aborted due to deadline": 7},
    }
    found = read(whole)
    assert found.responses["requests"] == 100
    assert found.responses["error_ratio"] == pytest.approx(0.1)
    assert found.settings.requests == 107  # as many as its rate implies
    assert "include failed requests" in found.notes[-1]


def test_percentiles_of_the_good_answers_are_taken_where_they_are(read, whole):
    whole |= {"statusCodeDistribution": {"200": 95, "503": 5}, "errorDistribution": {}}
    whole["latencyPercentilesSuccessful"] = {key: 2 * value for key, value in whole["latencyPercentiles"].items()}
    whole["summary"]["slowest"] *= 2
    found = read(whole)
    assert found.responses["latency_p50_s"] == 2 * whole["latencyPercentiles"]["p50"]
    assert not any("include failed requests" in note for note in found.notes)
    # Its average and maximum include the five others.
    assert {"latency_mean_s", "latency_max_s"}.isdisjoint(found.responses)
    whole["statusCodeDistribution"] = {"200": 100}
    assert read(whole).responses["latency_max_s"] == whole["summary"]["slowest"]


def test_answers_that_stand_twice(refused, fixture_text):
    header, *rows = fixture_text("oha.csv").splitlines()
    said = refused("\n".join([header, *rows, *rows]) + "\n")
    assert missing(said, [2, "runs", len(rows), "requests"]) == []


def test_no_answer_at_all(read, whole):
    whole |= {"statusCodeDistribution": {}, "errorDistribution": {"refused": 6}}
    whole["latencyPercentiles"] = dict.fromkeys(whole["latencyPercentiles"])  # NaN is null in its JSON
    whole["summary"] |= {"slowest": None, "fastest": None, "average": None, "sizePerRequest": None}
    found = read(whole)
    assert found.responses["error_ratio"] == 1
    assert not [name for name in found.responses if name.startswith("latency_")]


def test_a_row_of_the_csv_that_began_before_the_run_is_refused(refused, fixture_text):
    header, first, *rows = fixture_text("oha.csv").splitlines()
    early = ",".join(["-1e9", *first.split(",")[1:]])
    assert missing(refused("\n".join([header, early, *rows]) + "\n"), ["request-start"]) == []


def test_every_answer_of_the_csv_without_the_failed_ones(read, fixture_text):
    rows = [line.split(",") for line in fixture_text("oha.csv").splitlines()[1:]]
    good = sorted(float(row[4]) for row in rows if row[6] == "200")
    found = read("oha.csv")
    assert len(good) == len(rows) - 1 == 23
    assert found.responses["latency_p50_s"] == pytest.approx(good[11])
    assert found.responses["latency_max_s"] == good[-1]
    assert found.responses["requests"] == 24
    assert found.responses["error_ratio"] == pytest.approx(1 / 24)
    assert "without a response are not in oha's CSV" in found.notes[0]
