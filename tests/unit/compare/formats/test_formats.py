"""Which form a file has is told by what it holds; where it carries too little, what carries enough."""

import functools
import gzip
import json

import pytest
from refused import missing

from meshtrial import paths
from meshtrial.compare.formats import FORMATS, read_file
from meshtrial.compare.formats.source import Source

KINDS = {
    "ghz.json": "ghz",
    "hey.csv": "hey CSV",
    "hey.txt": "hey",
    "k6-samples.json": "k6 samples",
    "k6-summary-export.json": "k6 summary",
    "k6-handle-summary.json": "k6 summary",
    "k6-versioned.json": "k6 summary",
    "locust.json": "Locust JSON",
    "locust_stats.csv": "Locust table",
    "nighthawk.json": "nighthawk",
    "oha.csv": "oha CSV",
    "oha.json": "oha",
    "vegeta.csv": "vegeta requests",
    "vegeta.json": "vegeta requests",
    "vegeta-hist.txt": "vegeta histogram",
    "vegeta-report.json": "vegeta report",
    "wrk.txt": "wrk",
    "wrk2.txt": "wrk2",
}
K6_GOOD = "{expected_response:true}"
# As Windows writes them: with a mark, and without.
FORMS = ("utf-8-sig", "utf-16", "utf-16-le")


def test_there_is_an_output_of_every_form(fixtures):
    assert {path.name for path in fixtures.iterdir()} == set(KINDS)


@pytest.mark.parametrize("kind", sorted(set(KINDS.values())))
def test_the_page_has_a_row_of_every_form(kind):
    page = (paths.CHECKOUT / "docs" / "reference" / "formats.md").read_text().lower()
    assert page.count(f"\n| {kind.lower()} |") == 1


@pytest.mark.parametrize("name", KINDS)
def test_one_form_alone_knows_a_file_whatever_its_name(fixtures, tmp_path, name):
    data = (fixtures / name).read_bytes()
    assert sum(known.recognises(Source(tmp_path, data)) for known in FORMATS) == 1
    for suffix, content in (
        ("", data),
        (".csv", data),
        (".json.gz", gzip.compress(data)),
        *((f".{form}", data.replace(b"\n", b"\r\n").decode().encode(form)) for form in FORMS),
    ):
        path = tmp_path / f"x{suffix}"
        path.write_bytes(content)
        assert read_file(path, 1.0).kind == KINDS[name]


@pytest.mark.parametrize("name", KINDS)
def test_a_latency_is_a_latency_in_seconds(read, name):
    # All of these were measured against a server on the same machine: between 10 us and a second.
    found = read(name)
    latencies = {key: value for key, value in found.responses.items() if key.startswith("latency_")}
    assert "latency_p50_s" in latencies
    assert all(1e-5 < value < 1 for value in latencies.values()), latencies
    ordered = [latencies[key] for key in ("latency_p50_s", "latency_p90_s", "latency_p99_s") if key in latencies]
    assert ordered == sorted(ordered)


@pytest.mark.parametrize(
    ("name", "place", "end", "said"),
    [
        ("k6-summary-export.json", ("metrics", f"http_req_duration{K6_GOOD}", "min"), 1e4, "minimum"),
        ("k6-handle-summary.json", ("metrics", f"http_req_duration{K6_GOOD}", "values", "min"), 1e4, "minimum"),
        ("vegeta-report.json", ("latencies", "min"), 1e10, "minimum"),
        ("vegeta-report.json", ("latencies", "max"), 1, "maximum"),
        ("oha.json", ("summary", "fastest"), 10, "minimum"),
        ("oha.json", ("summary", "slowest"), 1e-9, "maximum"),
        ("ghz.json", ("fastest",), 1e10, "minimum"),
        ("locust.json", (0, "min_response_time"), 1e4, "minimum"),
        ("locust.json", (0, "max_response_time"), 1e-4, "maximum"),
    ],
)
def test_latencies_beyond_the_ends_that_a_file_names_are_refused(refused, fixtures, name, place, end, said):
    whole = json.loads((fixtures / name).read_text())
    if name == "ghz.json":
        del whole["details"]  # its own percentiles are taken then
    elif name == "locust.json":
        whole = whole[:1]
    *way, last = place
    functools.reduce(lambda at, key: at[key], way, whole)[last] = end
    assert missing(refused(whole), [said]) == []


@pytest.mark.parametrize(
    ("name", "written", "instead"),
    [
        ("hey.txt", "Fastest:\t0.0001", "Fastest:\t0.1001"),
        ("locust_stats.csv", "Min Response Time,Max Response Time", "Max Response Time,Min Response Time"),
    ],
)
def test_latencies_beyond_the_ends_of_a_text_or_a_table_are_refused(refused, fixture_text, name, written, instead):
    text = fixture_text(name)
    assert written in text
    assert missing(refused(text.replace(written, instead)), ["smaller"]) == []


@pytest.mark.parametrize("name", KINDS)
def test_what_its_latencies_are_is_said(read, name):
    assert any("from the" in note or "own percentiles" in note for note in read(name).notes)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("Summary:\n  Success rate:\t100.00%\n", "oha's text: run oha with --output-format json"),
        ("\nSummary:\n  Count:\t200\n", "ghz's text: run ghz with -O json"),
        ("duration (ms),status,error\n0.51,OK,\n", "ghz's CSV"),
        ("Requests      [total, rate, throughput]  100, 10, 10\n", "vegeta's text"),
        ("  execution: local\n", "k6's text, which is rounded: run k6 with --summary-export=FILE"),
        ("  █ TOTAL RESULTS\n\n    checks_total.......................: 90\n", "k6's text"),
        ("metric_name,timestamp,metric_value,check\n", "k6's CSV: run k6 with --out json=FILE"),
        (
            "Timestamp,User Count,Type,Name,Requests/s\n",
            "Locust's history: give the file beside it that ends in _stats",
        ),
        ("Method,Name,Error,Occurrences\n", "Locust's list of failures"),
        ("Count,Message,Traceback,Nodes\n", "Locust's list of exceptions"),
        ("Type     Name      # reqs      # fails |\n", "Locust's text"),
        (
            "Nighthawk - A layer 7 protocol benchmarking tool.\n",
            "Nighthawk's text: run Nighthawk with --output-format json",
        ),
    ],
)
def test_what_carries_too_little_is_named_with_the_way_that_works(refused, content, said):
    assert said in refused(content)


def test_a_file_of_nobody_known_is_asked_as_fortio(refused):
    nothing = refused({"summary": {}, "latencies": 1})
    assert nothing == "is not a fortio result: no DurationHistogram (it holds summary, latencies)"
    assert refused("Fortio 1.68 running at 100 queries per second") == "is not JSON (line 1: Expecting value)"
