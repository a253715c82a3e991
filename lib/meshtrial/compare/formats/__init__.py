"""Files of load generators that somebody already has, each form in a module of its own (docs/reference/formats.md).

Opinion: a file is one run of one treatment. What a form does not carry is said and not guessed; what carries too
little is refused with what is missing and the command that makes it. Facts come from the tools' own sources, which each
module names.
"""

from __future__ import annotations

import re
from pathlib import Path

from meshtrial.compare.formats import ghz, hey, k6, locust, nighthawk, oha, vegeta, wrk2
from meshtrial.compare.formats.source import Format, Source
from meshtrial.load.files import InputFileError
from meshtrial.load.recorded import Recorded, read_recorded

FORMATS: tuple[Format, ...] = (
    k6.STREAM,
    vegeta.STREAM,
    k6.SUMMARY,
    vegeta.REPORT,
    oha.SUMMARY,
    ghz.FORMAT,
    nighthawk.FORMAT,
    locust.JSON,
    wrk2.FORMAT,
    hey.TEXT,
    hey.TABLE,
    oha.TABLE,
    locust.TABLE,
    vegeta.TABLE,
    vegeta.HISTOGRAM,
)

# What is known and carries too little: how it begins, and what does carry enough.
_TOO_LITTLE = (
    (r"Summary:\s+Success rate:", "is oha's text: run oha with --output-format json (once --json)"),
    (r"Summary:\s+(Count|Name):", "is ghz's text: run ghz with -O json"),
    (r"duration \(ms\),status,error", "is ghz's CSV, which does not say when or how it was run: run ghz with -O json"),
    (
        r"Requests +\[total, rate",
        "is vegeta's text, which is rounded: vegeta encode --to json keeps every request",
    ),
    (
        r"(execution: local|/\\)|[\s\S]*(checks_total|http_req_duration)\.\.\.",
        "is k6's text, which is rounded: run k6 with --summary-export=FILE or --out json=FILE",
    ),
    (r"metric_name,timestamp,metric_value", "is k6's CSV: run k6 with --out json=FILE"),
    (r"Timestamp,User Count,Type,Name", "is Locust's history: give the file beside it that ends in _stats.csv"),
    (r"Method,Name,Error,Occurrences", "is Locust's list of failures: give the file beside it that ends in _stats.csv"),
    (r"Count,Message,Traceback,Nodes", "is Locust's list of exceptions: give the file that ends in _stats.csv"),
    (r"Type +Name +# reqs", "is Locust's text, which is rounded: run Locust with --csv NAME or --json"),
    (r"Nighthawk - A layer 7 protocol", "is Nighthawk's text: run Nighthawk with --output-format json"),
)


def read_file(path: Path, sample_floor: float) -> Recorded:
    """Read a file of any form that is known: fortio's results and access logs, and those of :data:`FORMATS`."""
    source = Source.read(path)
    for known in FORMATS:
        if known.recognises(source):
            return known.read(source, sample_floor)
    for begin, said in _TOO_LITTLE:
        if re.match(begin, source.head):
            raise InputFileError(path, said)
    if source.data[:400].count(b"Result") and b"Attack" in source.data[:400] and b"\x00" in source.data[:400]:
        raise InputFileError(path, "is vegeta's binary: vegeta encode --to json FILE > FILE.json")
    if source.data.startswith(b"PAR1") or path.suffix in (".csv", ".parquet"):
        raise InputFileError(
            path, "is a table; give it as one (--table FILE; in Python compare_table), and name its treatments"
        )
    try:
        return read_recorded(path, sample_floor)
    except (AttributeError, TypeError) as error:
        # JSON of the right names and the wrong shapes: somebody else's file, or one that was edited.
        raise InputFileError(path, f"is not a whole fortio result: a field has another shape ({error})") from error
