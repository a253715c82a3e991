"""What no run can be read from is named, with the command that makes a form that is read."""

import pytest

OTHER = (
    "no form of it is read; measure with fortio load -json FILE URL, say, or give a table of one number per run and "
    "response (--table FILE)"
)
STATS = "give the file beside it that ends in _stats.csv"
FORTIO = "run fortio load with -json FILE"
UNREAD = [
    ("Summary:\n  Success rate:\t100.00%\n", "oha's text: run oha with --output-format json (once --json)"),
    ("Summary:\n  Count:\t200\n", "ghz's text: run ghz with -O json"),
    ("Summary:\n  Name:\tblock\n", "ghz's text: run ghz with -O json"),
    (
        "duration (ms),status,error\n0.51,OK,\n",
        "ghz's CSV, which does not say when or how it was run: run ghz with -O json",
    ),
    (
        "Requests      [total, rate, throughput]  100, 10, 10\n",
        "vegeta's text, which is rounded: vegeta encode --to json keeps every request",
    ),
    (
        "  execution: local\n",
        "k6's text, which is rounded: run k6 with --summary-export=FILE or --out json=FILE",
    ),
    (
        "  █ TOTAL RESULTS\n\n    checks_total.......................: 90\n",
        "k6's text, which is rounded: run k6 with --summary-export=FILE or --out json=FILE",
    ),
    ("metric_name,timestamp,metric_value,check\n", "k6's CSV: run k6 with --out json=FILE"),
    ("Timestamp,User Count,Type,Name,Requests/s\n", f"Locust's history: {STATS}"),
    ("Method,Name,Error,Occurrences\n", f"Locust's list of failures: {STATS}"),
    ("Count,Message,Traceback,Nodes\n", "Locust's list of exceptions: give the file that ends in _stats.csv"),
    (
        "Type     Name      # reqs      # fails |\n",
        "Locust's text, which is rounded: run Locust with --csv NAME or --json",
    ),
    (" Name      # reqs      # fails\n", "Locust's text, which is rounded: run Locust with --csv NAME or --json"),
    (
        '"Type","Name","# requests","# failures"\n',
        "a table of a Locust before 1.0: run Locust 1.0 or later with --csv NAME",
    ),
    (
        '"Method","Name","# requests","# failures"\n',
        "a table of a Locust before 1.0: run Locust 1.0 or later with --csv NAME",
    ),
    (
        "Nighthawk - A layer 7 protocol benchmarking tool.\n",
        "Nighthawk's text: run Nighthawk with --output-format json",
    ),
    ("Fortio 1.60.3 running at 100 queries per second, 4->4 procs, for 10s: x\n", f"fortio's text: {FORTIO}"),
    ("Starting at max qps with 4 thread(s) [gomax 4] for 10s\n", f"fortio's text: {FORTIO}"),
    ("# target 99% 0.0042\n", f"fortio's text: {FORTIO}"),
    (
        '{"ts":1700000000.1,"level":"info","r":1,"msg":"Fortio"}\n{"ts":1700000001.1}\n',
        f"fortio's log in JSON: {FORTIO}",
    ),
    ("This is ApacheBench, Version 2.3 <$Revision: 1 $>\n", f"the text of ab (ApacheBench): {OTHER}"),
    ("timeStamp,elapsed,label,responseCode\n1,2,a,200\n", f"a table of JMeter: {OTHER}"),
    ("timeStamp;elapsed;label;responseCode\n1;2;a;200\n", f"a table of JMeter: {OTHER}"),
    ('<?xml version="1.0"?>\n<testResults version="1.2">\n', f"the XML of JMeter: {OTHER}"),
    ("Bombarding http://svc for 10s using 125 connection(s)\n", f"bombardier's text: {OTHER}"),
    ('{"spec":{"numberOfConnections":2},"result":{}}', f"bombardier's JSON: {OTHER}"),
    ("starting benchmark...\nfinished in 10.00s, 50.00 req/s, 1.00MB/s\n", f"h2load's text: {OTHER}"),
    ("Running 10s test @ http://svc\n10 connections\n\n", f"autocannon's text: {OTHER}"),
    (
        "Running 100 requests test @ http://svc\n10 connections with 2 pipelining factor\n",
        f"autocannon's text: {OTHER}",
    ),
    ('{"title":"x","url":"http://svc","connections":10,"sampleInt":1000,"latency":{}}', f"autocannon's JSON: {OTHER}"),
    ('{\n  "results": [\n    {\n      "command": "curl",\n "mean": 1}]}', f"hyperfine's JSON: {OTHER}"),
]


@pytest.mark.parametrize(("content", "name"), UNREAD)
def test_it_is_named_with_the_next_step(refused, content, name):
    assert refused(content) == f"is {name}"
    assert refused(content.replace("\n", "\r\n")) == f"is {name}"


@pytest.mark.parametrize(("content", "name"), [row for row in UNREAD if not row[0].startswith(("{", "<"))])
def test_a_log_before_it_hides_nothing(refused, content, name):
    log = 'Defaulted container "load" out of: load, istio-proxy\n' + "Get:1 package\n" * 2000
    assert refused(log + content) == f"is {name}"
