"""A file's form is recognised by its content; an error for too little content names a form that has enough."""

import functools
import gzip
import json

import pytest
from refused import missing

from meshtrial import paths
from meshtrial.compare.formats import FORMATS, read_file
from meshtrial.compare.formats.source import Source
from meshtrial.load.files import InputFileError

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
    forms = page.partition("\n### what the counters mean\n")[0]
    assert forms.count(f"\n| {kind.lower()} |") == 1


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
        del whole["details"]  # its own percentiles are used then
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


RESULT = {
    "DurationHistogram": {
        "Count": 2,
        "Min": 0.001,
        "Max": 0.002,
        "Avg": 0.0015,
        "Data": [{"Start": 0.001, "End": 0.002, "Count": 2}],
    },
    "RequestedQPS": "100",
}
LOG = '{"latency":0.001,"timestamp":1000000000,"thread":0,"iter":0,"ok":true,"details":"200"}\n'
TEXTS = {**dict.fromkeys(KINDS), "fortio.json": json.dumps(RESULT, indent=1), "fortio.log": LOG}


@pytest.mark.parametrize("name", TEXTS)
def test_several_runs_in_one_file_are_refused_with_their_number(refused, fixture_text, name):
    text = TEXTS[name] or fixture_text(name)
    assert missing(refused(text * 2), [2, "runs", "one"]) == []
    packed = gzip.compress(text.replace("\n", "\r\n").encode(), mtime=0) * 3
    assert missing(refused(packed), [3, "runs", "one"]) == []


def test_where_several_runs_begin_is_said(refused, fixture_text):
    wrk = fixture_text("wrk.txt")
    refused(f"rate 10\n{wrk}\nrate 20\n{wrk}")
    refused(wrk * 5)
    refused(wrk + fixture_text("hey.txt"))
    oha = fixture_text("oha.json")  # ends without a line end
    refused(oha.rstrip() * 2)
    refused(fixture_text("vegeta.json") * 3)
    refused(fixture_text("k6-samples.json") * 2)
    refused([RESULT, RESULT, RESULT])
    refused([json.loads(fixture_text("locust.json"))] * 2)


@pytest.mark.parametrize(
    ("name", "cut", "runs"),
    [
        ("wrk2.txt", "  1 threads", 2),
        ("wrk2.txt", "Requests/sec", 2),
        ("hey.txt", "  Slowest", 2),
        ("ghz.json", '"host"', 2),
    ],
)
def test_a_run_that_was_cut_off_is_one_too(refused, fixture_text, name, cut, runs):
    text = fixture_text(name)
    assert missing(refused(text[: text.index(cut)] + "\n" + text), [runs, "runs"]) == []
    assert missing(refused(text + text[: text.index(cut)]), [runs, "runs"]) == []


@pytest.mark.parametrize("name", ["wrk2.txt", "wrk.txt", "hey.txt", "vegeta-hist.txt"])
def test_the_log_of_a_container_may_stand_around_a_text(read, fixture_text, name):
    log = 'Defaulted container "load" out of: load, istio-proxy\n' + "Get:1 package\n" * 2000
    assert read(f"{log}{fixture_text(name)}done\n").responses == read(name).responses


def test_json_stands_alone(refused, fixture_text):
    ghz = fixture_text("ghz.json")
    refused(f"Defaulted container\n\n{ghz}")
    refused(f"{ghz.rstrip()}\n\ncommand terminated\n")


def test_a_file_of_nobody_known_is_asked_as_fortio(refused):
    refused({"summary": {}, "latencies": 1})
    assert missing(refused("3.5\n"), ["docs/reference/formats.md", "'3.5'"]) == []


UNREAD = {
    "oha's text": "Summary:\n  Success rate:\t100.00%\n",
    "ghz's text": "Summary:\n  Count:\t200\n",
    "ghz's text 2": "Summary:\n  Name:\tblock\n",
    "ghz's CSV": "duration (ms),status,error\n0.51,OK,\n",
    "vegeta's text": "Requests      [total, rate, throughput]  100, 10, 10\n",
    "k6's text": "  execution: local\n",
    "k6's text 2": "  █ TOTAL RESULTS\n\n    checks_total.......................: 90\n",
    "k6's CSV": "metric_name,timestamp,metric_value,check\n",
    "Locust's history": "Timestamp,User Count,Type,Name,Requests/s\n",
    "Locust's list of failures": "Method,Name,Error,Occurrences\n",
    "Locust's list of exceptions": "Count,Message,Traceback,Nodes\n",
    "Locust's text": "Type     Name      # reqs      # fails |\n",
    "Locust's text 2": " Name      # reqs      # fails\n",
    "a table of a Locust before 1.0": '"Type","Name","# requests","# failures"\n',
    "a table of a Locust before 1.0 2": '"Method","Name","# requests","# failures"\n',
    "Nighthawk's text": "Nighthawk - A layer 7 protocol benchmarking tool.\n",
    "fortio's text": "Fortio 1.60.3 running at 100 queries per second, 4->4 procs, for 10s: x\n",
    "fortio's text 2": "Starting at max qps with 4 thread(s) [gomax 4] for 10s\n",
    "fortio's text 3": "# target 99% 0.0042\n",
    "fortio's log in JSON": '{"ts":1700000000.1,"level":"info","r":1,"msg":"Fortio"}\n{"ts":1700000001.1}\n',
    "the text of ab": "This is ApacheBench, Version 2.3 <$Revision: 1 $>\n",
    "a table of JMeter": "timeStamp,elapsed,label,responseCode\n1,2,a,200\n",
    "a table of JMeter 2": "timeStamp;elapsed;label;responseCode\n1;2;a;200\n",
    "the XML of JMeter": '<?xml version="1.0"?>\n<testResults version="1.2">\n',
    "bombardier's text": "Bombarding http://svc for 10s using 125 connection(s)\n",
    "bombardier's JSON": '{"spec":{"numberOfConnections":2},"result":{}}',
    "h2load's text": "starting benchmark...\nfinished in 10.00s, 50.00 req/s, 1.00MB/s\n",
    "autocannon's text": "Running 10s test @ http://svc\n10 connections\n\n",
    "autocannon's text 2": "Running 100 requests test @ http://svc\n10 connections with 2 pipelining factor\n",
    "autocannon's JSON": '{"title":"x","url":"http://svc","connections":10,"sampleInt":1000,"latency":{}}',
    "hyperfine's JSON": '{\n  "results": [\n    {\n      "command": "curl",\n "mean": 1}]}',
}
BEFORE = 'Defaulted container "load" out of: load, istio-proxy\n' + "Get:1 package\n" * 2000


@pytest.mark.parametrize("name", UNREAD)
def test_it_is_named_with_the_next_step_whatever_its_line_ends_and_whatever_log_is_before_it(refused, read, name):
    content = UNREAD[name]
    reason = refused(content)
    for other in (content.replace("\n", "\r\n"), *([BEFORE + content] if content[0] not in "{<" else [])):
        with pytest.raises(InputFileError) as found:
            read(other)
        assert found.value.reason == reason
