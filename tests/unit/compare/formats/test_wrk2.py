"""wrk2's and wrk's text, as both printed it against a server on the same machine."""

import pytest


def test_a_percentile_that_the_spectrum_lists_is_taken_from_there(read):
    found = read("wrk2.txt", 0.1)
    assert found.kind == "wrk2"
    # 1.099 ms in the spectrum, 1.10ms above it; p99 and p99.9 are in the table only.
    assert found.responses["latency_p50_s"] == pytest.approx(0.001099)
    assert found.responses["latency_p95_s"] == pytest.approx(0.002173)
    assert found.responses["latency_p99_s"] == pytest.approx(0.00417)
    assert found.responses["latency_p999_s"] == pytest.approx(0.00517)
    # Three digits of a histogram: 1 us below 2048 us, 2 us above; two decimals of a millisecond are 10 us.
    assert found.bounds["latency_p50_s"] == pytest.approx(1e-6)
    assert found.bounds["latency_p95_s"] == pytest.approx(2e-6)
    assert found.bounds["latency_p99_s"] == pytest.approx(1e-5)
    assert found.responses["latency_mean_s"] == pytest.approx(0.001177)
    assert found.responses["latency_max_s"] == pytest.approx(0.005496)


def test_what_it_sent_and_what_failed(read):
    found = read("wrk2.txt")
    assert found.responses["requests"] == 2601
    assert found.responses["error_ratio"] == pytest.approx(234 / 2601)
    assert "include failed requests" in found.notes[-1]
    settings = found.settings
    assert (settings.threads, settings.requested_duration_s, settings.actual_duration_s) == (2, 13.0, 13.0)
    assert (settings.actual_rps, settings.requested_rps, settings.closed_loop) == (200.03, None, False)
    assert settings.body_bytes == pytest.approx(194.39 * 1024 / 2601)
    assert found.start_unix_s is None


def test_the_floor_is_asked_of_the_requests_behind_the_percentiles(read):
    # 598 requests after the calibration, 234 of them may have failed: 3.64 lie beyond p99.
    assert "latency_p99_s" in read("wrk2.txt", 3.6).responses
    assert "latency_p99_s" not in read("wrk2.txt", 3.7).responses


def test_the_uncorrected_table_is_left_out(read, fixture_text):
    text = fixture_text("wrk2.txt")
    table = text[text.index("  Latency Distribution") : text.index("  2601 requests")]
    other = table.replace(
        "Recorded Latency", "Uncorrected Latency (measured without taking delayed starts into account)"
    )
    other = other.replace("1.10ms", "150.00us").replace("1.099     0.5", "0.150     0.5")
    assert read(text.replace(table, table + "\n" + other)).responses == read("wrk2.txt").responses


@pytest.mark.parametrize(
    ("printed", "seconds"), [("850.00us", 850e-6), ("1.37ms", 1.37e-3), ("1.05s", 1.05), ("1.50m", 90.0)]
)
def test_units(read, fixture_text, printed, seconds):
    text = fixture_text("wrk.txt").replace("    99%    7.09ms", f"    99%  {printed} ")
    for other in ("73.00us", "339.00us", "2.15ms", "25.43ms"):  # all are the same latency
        text = text.replace(other, printed)
    assert read(text).responses["latency_p99_s"] == pytest.approx(seconds)


ERRORS = "  Socket errors: connect 1, read 2, write 3, timeout 400\n"


def test_lost_connections_are_failed_requests_and_idle_ones_are_not(read, fixture_text):
    found = read(fixture_text("wrk2.txt").replace("  Non-2xx or 3xx responses: 234\n", ERRORS))
    assert found.responses["requests"] == 2607
    assert found.responses["error_ratio"] == pytest.approx(6 / 2607)
    assert not any("include failed requests" in note for note in found.notes)


def test_wrk_counts_late_answers_among_its_requests(read, fixture_text):
    text = fixture_text("wrk.txt")
    found = read(text.replace("Requests/sec", f"{ERRORS}Requests/sec"))
    assert found.responses["requests"] == 36786 + 6
    assert found.responses["error_ratio"] == pytest.approx(406 / 36792)
    assert not any("include failed requests" in note for note in found.notes)
    # 367.86 of 36786 answers lie beyond p99, and of those that are not late 363.86.
    assert "latency_p99_s" in read(text, 364.0).responses
    assert "latency_p99_s" not in read(text.replace("Requests/sec", f"{ERRORS}Requests/sec"), 364.0).responses
    bad = text.replace("Requests/sec", f"{ERRORS}  Non-2xx or 3xx responses: 36700\nRequests/sec")
    assert read(bad).responses["error_ratio"] == pytest.approx(1.0)  # an answer may be late and bad


def test_a_text_without_its_spectrum_has_the_percentiles_above_it(read, fixture_text):
    text = fixture_text("wrk2.txt")
    short = text[: text.index("\n  Detailed")] + text[text.index("\n  2601 requests") :]
    found = read(short)
    assert found.kind == "wrk2"
    assert found.responses["latency_p50_s"] == pytest.approx(0.0011)
    assert found.bounds["latency_p50_s"] == pytest.approx(1e-5)
    assert found.responses["latency_mean_s"] == pytest.approx(0.00118)
    assert found.pool is None


def test_a_spectrum_that_contradicts_itself(refused, fixture_text):
    text = fixture_text("wrk2.txt")
    ended = text.replace("       5.499     1.000000          598          inf\n", "").replace(
        "598       640.00", "597       640.00"
    )
    refused(ended)
    falling = text.replace("0.986     0.400000", "0.786     0.400000")
    refused(falling)
    refused(text.replace("0.400000          240", "0.400000          140"))


def test_without_latency_there_is_only_a_mean(refused, fixture_text):
    text = fixture_text("wrk2.txt")
    table = text[text.index("  Latency Distribution") : text.index("  2601 requests")]
    refused(text.replace(table, ""))


def test_wrk_is_a_closed_loop(read):
    found = read("wrk.txt")
    assert (found.kind, found.settings.generator, found.settings.closed_loop) == ("wrk", "wrk", True)
    assert found.responses["latency_p50_s"] == pytest.approx(73e-6)
    assert found.bounds["latency_p50_s"] == pytest.approx(1e-6)  # of two decimals of us only the first is measured
    assert found.responses["latency_p99_s"] == pytest.approx(0.00709)
    assert found.responses["latency_mean_s"] == pytest.approx(652.03e-6)
    assert found.responses["latency_max_s"] == pytest.approx(0.02543)
    assert (found.responses["requests"], found.responses["error_ratio"]) == (36786, 0)
