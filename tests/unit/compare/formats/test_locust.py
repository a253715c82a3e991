"""Locust's table and JSON: two digits of milliseconds, failed requests among them."""

import json

import pytest
from refused import missing


def test_the_row_of_all_requests(read):
    found = read("locust_stats.csv")
    assert found.kind == "Locust table"
    assert (found.responses["latency_p50_s"], found.responses["latency_p99_s"]) == (0.011, 0.017)
    assert found.bounds["latency_p50_s"] == 0.001
    assert found.responses["latency_mean_s"] == pytest.approx(0.006973080865658567)
    assert (found.responses["requests"], found.responses["error_ratio"]) == (201, 0)
    assert found.responses["achieved_rps"] == pytest.approx(100.43991762320599)
    assert found.settings.closed_loop
    assert found.start_unix_s is None


@pytest.mark.parametrize(
    ("printed", "step_s"), [("99", 0.001), ("100", 0.01), ("990", 0.01), ("1500", 0.1), ("26000", 1.0)]
)
def test_the_larger_the_coarser(read, fixture_text, printed, step_s):
    table = fixture_text("locust_stats.csv").replace("19,19,19\r\n", f"{printed},{printed},{printed}\r\n")
    table = table.replace("19,19,19\n", f"{printed},{printed},{printed}\n").replace("19.369325003935955", printed)
    assert read(table, 0.1).bounds["latency_p999_s"] == pytest.approx(step_s)


def test_a_table_without_requests_or_end(refused, fixture_text):
    header, *rows = fixture_text("locust_stats.csv").splitlines()
    refused("\n".join((header, *rows[:-1])))
    empty = ",Aggregated,0,0" + ",0" * 7 + ",N/A" * 11
    assert missing(refused(f"{header}\n{empty}\n"), [0]) == []


def test_locust_1_0_writes_its_names_in_quotes(read, fixture_text):
    header, *rows = fixture_text("locust_stats.csv").splitlines()
    quoted = ",".join(f'"{name}"' for name in header.split(","))
    rows[-1] = rows[-1].replace(",Aggregated,", '"None","Aggregated",')
    assert read("\n".join([quoted, *rows]) + "\n").responses == read("locust_stats.csv").responses


def test_an_entry_or_the_row_of_all_requests_stands_there_once(refused, fixture_text):
    entries = json.loads(fixture_text("locust.json"))
    assert missing(refused(entries * 3), [3, "runs", "GET", "/echo"]) == []
    header, *rows = fixture_text("locust_stats.csv").splitlines()
    assert missing(refused("\n".join([header, *rows, *rows]) + "\n"), [2, "runs"]) == []


def test_counts_of_all_entries_together(read):
    found = read("locust.json")
    assert found.kind == "Locust JSON"
    # 114 of 234 lie up to 6.5 ms and 59 more at 11 ms: the 117th is among these, between 10.5 and 11.5.
    assert found.responses["latency_p50_s"] == pytest.approx(0.0105 + (117 - 114) / 59 * 0.001)
    assert found.bounds["latency_p50_s"] == pytest.approx(0.001)
    assert found.responses["requests"] == 234
    assert found.start_unix_s == pytest.approx(1795426725.185, abs=1e-3)
    assert found.settings.actual_rps == pytest.approx(234 / (1795426727.4944153 - 1795426725.1849582))


def test_a_latency_below_half_a_millisecond_is_kept_as_zero(read, fixture_text):
    whole = json.loads(fixture_text("locust.json"))[:1]
    whole[0] |= {"response_times": {"0": 100}, "num_requests": 100}
    found = read(whole)
    assert 0 <= found.responses["latency_p50_s"] <= 0.0005
    # Its smallest latency is 0.384 ms.
    assert found.bounds["latency_p50_s"] == pytest.approx(0.0005 - 0.000384, abs=1e-6)
