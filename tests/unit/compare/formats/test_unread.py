"""What no run can be read from is named, with the command that makes a form that is read."""

import pytest

from meshtrial.load.files import InputFileError

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
LOG = 'Defaulted container "load" out of: load, istio-proxy\n' + "Get:1 package\n" * 2000


@pytest.mark.parametrize("name", UNREAD)
def test_it_is_named_with_the_next_step_whatever_its_line_ends_and_whatever_log_is_before_it(refused, read, name):
    content = UNREAD[name]
    reason = refused(content)
    for other in (content.replace("\n", "\r\n"), *([LOG + content] if content[0] not in "{<" else [])):
        with pytest.raises(InputFileError) as found:
            read(other)
        assert found.value.reason == reason
