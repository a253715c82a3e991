"""Files of load generators that somebody already has, each form in a module of its own (docs/reference/formats.md).

Opinion: a file is one run of one treatment. What a form does not carry is said and not guessed; what carries too
little is refused with what is missing and the command that makes it. Facts come from the tools' own sources, which each
module names.
"""

from __future__ import annotations

import json
from pathlib import Path

from meshtrial.compare.formats import fortio, ghz, hey, k6, locust, nighthawk, oha, vegeta, wrk2
from meshtrial.compare.formats.source import Format, Source, few, several_runs
from meshtrial.compare.formats.unread import refuse_unread
from meshtrial.load.recorded import Recorded

FORMATS: tuple[Format, ...] = (
    fortio.LOG,
    k6.STREAM,
    vegeta.STREAM,
    fortio.RESULT,
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
    """Read a file of any form that is known."""
    source = Source.read(path)
    known = next((form for form in FORMATS if form.recognises(source)), None)
    if known is None:
        refuse_unread(source)
        _refuse_results(source)
        known = fortio.RESULT  # whose reader says what its JSON lacks
    elif not known.stream:
        _require_one_run(source, known)
    return known.read(source, sample_floor)


def _require_one_run(source: Source, known: Format) -> None:
    """Refuse several JSON documents, and several texts or tables, also of different generators."""
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
    """Refuse a list of results, and results of which the first was cut off."""
    results = source.document if isinstance(source.document, list) else []
    parts = [Source(source.path, json.dumps(result).encode()) for result in results[:2]]
    if len(parts) > 1 and all(any(form.recognises(part) for form in FORMATS) for part in parts):
        raise several_runs(source.path, len(results), f"a list of {len(results)} JSON documents")
    if source.document is None:
        source.require_one_document()
