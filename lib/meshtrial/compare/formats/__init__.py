"""Result files of load generators, one module per generator (docs/reference/formats.md).

A file is one run of one treatment. Facts that a format does not contain are reported as missing, never guessed. Files
that cannot be read, or contain too little, are refused by the name of their format, with a command that makes a
readable file. Facts on formats are from the sources of the generators, which each module cites.
"""

import json
import re
from pathlib import Path

from meshtrial.compare.formats import ghz, hey, k6, locust, nighthawk, oha, vegeta, wrk2
from meshtrial.compare.formats.source import Format, Source, beginning, few, holding, several_runs
from meshtrial.load.files import InputFileError, excerpt, read_bytes
from meshtrial.load.recorded import Recorded, read_recorded


def _read_fortio(source: Source, sample_floor: float) -> Recorded:
    """Read fortio's result or access log, or Nighthawk's fortio export."""
    try:
        return read_recorded(source.path, sample_floor)
    except (AttributeError, TypeError) as error:
        # The JSON has the expected names but other types: a foreign or edited file.
        reason = f"is an invalid fortio result: a field has an unexpected type ({error})"
        raise InputFileError(source.path, reason) from error


_FORTIO_RESULT = Format(holding("DurationHistogram"), _read_fortio)
FORMATS: tuple[Format, ...] = (
    Format(beginning(r'latency,|\{"latency"'), _read_fortio, stream=True),
    k6.STREAM,
    vegeta.STREAM,
    _FORTIO_RESULT,
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

_TEXTS = (wrk2.FORMAT, hey.TEXT, vegeta.HISTOGRAM)


def read_file(path: Path, sample_floor: float) -> Recorded:
    """Read a file of any known format."""
    source = Source(path, read_bytes(path))
    known = next((form for form in FORMATS if form.recognises(source)), None)
    if known is None:
        refuse_unread(source)
        _refuse_results(source)
        known = _FORTIO_RESULT  # its reader names what the JSON lacks
    elif not known.stream:
        _require_one_run(source, known)
    return known.read(source, sample_floor)


def _require_one_run(source: Source, known: Format) -> None:
    """Refuse several JSON documents, texts or tables, also of different generators."""
    if not known.once:
        source.require_one_document()
        return
    lines: dict[int, str] = {}
    for form in _TEXTS if known in _TEXTS else (known,):
        lines |= source.lines_like(form.once)
    if len(lines) > 1:
        begins = few([*dict.fromkeys(lines.values())])
        raise several_runs(source.path, len(lines), f"lines {few(sorted(lines))} begin with {begins}")


def _refuse_results(source: Source) -> None:
    """Refuse a list of results, and several results of which the first is truncated."""
    results = source.document if isinstance(source.document, list) else []
    parts = [Source(source.path, json.dumps(result).encode()) for result in results[:2]]
    if len(parts) > 1 and all(any(form.recognises(part) for form in FORMATS) for part in parts):
        raise several_runs(source.path, len(results), f"a list of {len(results)} JSON documents")
    if source.document is None:
        source.require_one_document()


_OTHER_TOOL = (
    "this tool is not supported; measure with e.g. fortio load -json FILE URL, or give a table with one number per "
    "run and response (--table FILE)"
)
# Name, beginning of one of its lines, and advice.
_STATS = "give the file whose name ends in _stats.csv"
_UNREAD = (
    ("oha's text", r"Summary:\s+Success rate:", "run oha with --output-format json (formerly --json)"),
    ("ghz's text", r"Summary:\s+(Count|Name):", "run ghz with -O json"),
    ("ghz's CSV, which lacks start and settings", r"duration \(ms\),status,error", "run ghz with -O json"),
    ("vegeta's text, which is rounded", r"Requests +\[total, rate", "use vegeta encode --to json"),
    ("vegeta's binary", r"[^\n]{0,20}\x06Result[\s\S]{0,40}\x06Attack", "run vegeta encode --to json FILE > FILE.json"),
    (
        "k6's text, which is rounded",
        r" *(execution: local|/\\ {2,}|(checks|checks_total|http_req_duration)\.{3,})",
        "run k6 with --summary-export=FILE or --out json=FILE",
    ),
    ("k6's CSV", r"metric_name,timestamp,metric_value", "run k6 with --out json=FILE"),
    ("Locust's history", r'"?Timestamp"?,"?User Count"?,"?Type"?,"?Name"?', _STATS),
    ("Locust's list of failures", r'"?Method"?,"?Name"?,"?Error"?,"?Occurrences"?', _STATS),
    ("Locust's list of exceptions", r"Count,Message,Traceback,Nodes", _STATS),
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
    """Refuse a file of no known format and name it; unknown JSON is left to the reader of fortio's."""
    for name, begin, advice in _UNREAD:
        if re.search(f"^(?:{begin})", source.head, re.MULTILINE):
            raise InputFileError(source.path, f"is {name}; {advice}")
    if source.data.startswith(b"PAR1") or source.path.suffix in (".csv", ".parquet"):
        reason = "is a table; give it with --table FILE (in Python compare_table), and name its treatments"
        raise InputFileError(source.path, reason)
    if source.head[:1] in ("{", "["):
        return
    text = source.text.strip()
    first = text.partition("\n")[0]
    document = re.search(r"^(\{|\[\s*\{)", text, re.MULTILINE)
    if document and Source(source.path, text[document.start() :].encode()).document is not None:
        reason = f"has other lines before its JSON document ({excerpt(first)}); remove them"
        raise InputFileError(source.path, reason)
    reason = f"has no known format (docs/reference/formats.md); it begins with {excerpt(first)}"
    raise InputFileError(source.path, reason)
