"""Outputs of load generators from which no run can be read, and the command that makes one that can.

Opinion: a file that is refused is named, and so is the next step.
"""

from __future__ import annotations

import re

from meshtrial.compare.formats.source import Source, shown
from meshtrial.load.files import InputFileError

_OTHER_TOOL = (
    "no form of it is read; measure with fortio load -json FILE URL, say, or give a table of one number per run and "
    "response (--table FILE)"
)
# What it is, how one of its lines begins, and what to do.
_UNREAD = (
    ("oha's text", r"Summary:\s+Success rate:", "run oha with --output-format json (once --json)"),
    ("ghz's text", r"Summary:\s+(Count|Name):", "run ghz with -O json"),
    (
        "ghz's CSV, which does not say when or how it was run",
        r"duration \(ms\),status,error",
        "run ghz with -O json",
    ),
    (
        "vegeta's text, which is rounded",
        r"Requests +\[total, rate",
        "vegeta encode --to json keeps every request",
    ),
    ("vegeta's binary", r"[^\n]{0,20}\x06Result[\s\S]{0,40}\x06Attack", "vegeta encode --to json FILE > FILE.json"),
    (
        "k6's text, which is rounded",
        r" *(execution: local|/\\ {2,}|(checks|checks_total|http_req_duration)\.{3,})",
        "run k6 with --summary-export=FILE or --out json=FILE",
    ),
    ("k6's CSV", r"metric_name,timestamp,metric_value", "run k6 with --out json=FILE"),
    (
        "Locust's history",
        r'"?Timestamp"?,"?User Count"?,"?Type"?,"?Name"?',
        "give the file beside it that ends in _stats.csv",
    ),
    (
        "Locust's list of failures",
        r'"?Method"?,"?Name"?,"?Error"?,"?Occurrences"?',
        "give the file beside it that ends in _stats.csv",
    ),
    ("Locust's list of exceptions", r"Count,Message,Traceback,Nodes", "give the file that ends in _stats.csv"),
    ("Locust's text, which is rounded", r" *(Type +)?Name +# reqs", "run Locust with --csv NAME or --json"),
    (
        "a table of a Locust before 1.0",
        r'"(Type|Method)","Name","# requests"',
        "run Locust 1.0 or later with --csv NAME",
    ),
    ("Nighthawk's text", r"Nighthawk - A layer 7 protocol", "run Nighthawk with --output-format json"),
    (
        "fortio's text",
        r"Fortio \S+ running at |Starting at \S+ qps with |# target [\d.]+% |All done \d+ calls ",
        "run fortio load with -json FILE",
    ),
    ("fortio's log in JSON", r'\{"ts": ?[\d.]+, ?"level":', "run fortio load with -json FILE"),
    ("the text of ab (ApacheBench)", r"This is ApacheBench|Percentage of the requests served within", _OTHER_TOOL),
    ("a table of JMeter", r'"?timeStamp"?[,;\t]"?elapsed"?[,;\t]', _OTHER_TOOL),
    ("the XML of JMeter", r"<testResults\b", _OTHER_TOOL),
    ("bombardier's text", r"Bombarding \S+ ", _OTHER_TOOL),
    ("bombardier's JSON", r'\{\s*"spec":\s*\{\s*"numberOfConnections"', _OTHER_TOOL),
    ("h2load's text", r"starting benchmark\.\.\.|finished in [\d.]+[a-z]+, [\d.]+ req/s", _OTHER_TOOL),
    ("autocannon's text", r"Running \S+ (requests )?test @ \S+\n\d+ connections", _OTHER_TOOL),
    ("autocannon's JSON", r'\{[^{}]*"sampleInt":', _OTHER_TOOL),
    ("hyperfine's JSON", r'\{\s*"results":\s*\[\s*\{\s*"command":', _OTHER_TOOL),
)


def refuse_unread(source: Source) -> None:
    """Refuse a file of no known form with what it is; JSON that nobody here knows is left to its reader."""
    for name, begin, advice in _UNREAD:
        if re.search(f"^(?:{begin})", source.head, re.MULTILINE):
            raise InputFileError(source.path, f"is {name}: {advice}")
    if source.data.startswith(b"PAR1") or source.path.suffix in (".csv", ".parquet"):
        reason = "is a table; give it as one (--table FILE; in Python compare_table), and name its treatments"
        raise InputFileError(source.path, reason)
    if source.head[:1] in ("{", "["):
        return
    text = source.text.strip()
    first = text.partition("\n")[0]
    document = re.search(r"^(\{|\[\s*\{)", text, re.MULTILINE)
    if document and Source(source.path, text[document.start() :].encode()).document is not None:
        reason = f"has other lines before its JSON document, from {shown(first)} on; keep the document alone"
        raise InputFileError(source.path, reason)
    reason = f"is the output of no generator that is known (docs/reference/formats.md); it begins with {shown(first)}"
    raise InputFileError(source.path, reason)
