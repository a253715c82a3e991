"""The verdicts of a pipeline: a Markdown table, JUnit XML, and JSON for github-action-benchmark and Bencher.

Treatments, labels and messages come from records and from other tools' tables, and may hold anything. The Markdown
template escapes every value by numeric references, which Markdown never reads as structure. Names are written as code,
so that no site turns them into mentions or links. The standard library writes the XML.

Trackers watch one number per name from run to run. They are given the effect against the baseline of the same study: it
was measured beside its baseline, whereas a level also moves with the machine. The A/A twin is included, as what a
machine does without a change. Names do not depend on verdicts, so that a series continues.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from meshtrial.design.responses import REGISTRY
from meshtrial.inference.gate import GateOutcome, Judged
from meshtrial.records.schema import VerdictRow
from meshtrial.report import wording
from meshtrial.report.frames import Contrasts
from meshtrial.report.markup import TEMPLATES, cell
from meshtrial.report.tables.verdicts import MARKDOWN, Line, VerdictColumn, columns_of, in_words

# A name of these characters only can be written as code.
_PLAIN_NAME = re.compile(r"[\w.+@/:=-]+(?: [\w.+@/:=-]+)*")
_STRUCTURE = re.compile(
    r"[\\`*{}\[\]<>#|~@&$]|(?<=\w):(?=//)|(?i:www)(?=\.)|(?<![^\W_])_|_(?![^\W_])|^(?:[-+]|\d+[.)])(?= )"
)
# Characters that XML 1.0 (section 2.2) excludes, even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REPLACEMENT = "\ufffd"
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


class _Escaped(str):
    """Markdown that is already escaped."""


def one_line(value: object) -> str:
    """Return any value as one line that XML and a table's cell can hold."""
    return " ".join(_NOT_XML.sub(_REPLACEMENT, str(value)).split())


def _text(value: object) -> _Escaped:
    if isinstance(value, _Escaped):
        return value
    # Some sites search for @names after resolving references; a zero-width space prevents that.
    return _Escaped(
        _STRUCTURE.sub(
            lambda found: "".join(f"&#{ord(sign)};" for sign in found[0].replace("@", "@\u200b")), one_line(value)
        )
    )


def _name(value: object) -> _Escaped:
    """Return a name as code, or as text if it has characters of Markdown."""
    text = one_line(value)
    return _Escaped(f"`{text}`") if _PLAIN_NAME.fullmatch(text) else _text(text)


def markdown(title: str, contrasts: Contrasts, outcome: GateOutcome) -> str:
    """Return the primary contrasts, including the A/A twin's, as a Markdown table below the gate's outcome.

    Without rules, the table holds the verdicts only.
    """
    shown = contrasts.where(lambda row: not row.exploratory)
    judged = {one.declared.key: one for one in outcome.judged}
    columns = columns_of(MARKDOWN)
    rows: dict[str, list[list[_Escaped]]] = {load: [] for load in shown.loads}
    for row in shown.rows:
        one = None if row.twin else judged.get(row.key)
        line = Line(row, shown, gate="–" if one is None else _answer(one, outcome))
        cells = [_cell(column, column.value_in(MARKDOWN, line)) for column in columns]
        rows.setdefault(row.load, []).append(cells)
    for one in outcome.judged:
        if one.row is None:  # a declared contrast that has no row
            known = {
                "treatment": one.declared.treatment,
                "against": one.declared.baseline,
                "response": one.declared.response.label,
                "verdict": one.sentence,
                "gate": _answer(one, outcome),
            }
            cells = [_cell(column, known.get(column.heading)) for column in columns]
            rows.setdefault(one.declared.load, []).append(cells)
    # This environment writes Markdown, not HTML: `finalize` escapes every value.
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), finalize=_text, undefined=StrictUndefined, trim_blocks=True
    )
    text = environment.get_template("summary.md.j2").render(
        title=title,
        mark="" if not outcome.rules else "\u274c" if outcome.fired else "\u2705",
        outcome=outcome,
        columns=columns,
        loads=[(load, cells) for load, cells in rows.items() if cells],
        rules=list(_rule_sentences(outcome)),
        warnings=wording.warnings(shown.rows),
    )
    # Absent parts of the template leave empty lines.
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _rule_sentences(outcome: GateOutcome) -> Iterator[str]:
    if outcome.rules:
        yield f"Rules: {outcome.rules}. They do not apply to the A/A twin and to exploratory responses."
        if outcome.false_alarms:
            share, families = wording.rounded_percent(outcome.false_alarms), len(outcome.families)
            of = f"{families} famil{'ies' if families > 1 else 'y'}, one per primary response and load"
            yield (
                "If all treatments were equal, a difference found by chance would fire this gate in at most about "
                f"{share} of cases ({of})."
            )


def _cell(column: VerdictColumn, value: object) -> _Escaped:
    content = cell(value)
    text = _name(content.text) if column.name else _text(content.text)
    return _Escaped(text + (f" ({_text(content.note)})" if content.note else ""))


def _answer(one: Judged, outcome: GateOutcome) -> str:
    return one.broken or ("passes" if outcome.rules else "–")


def junit(name: str, outcome: GateOutcome) -> str:
    """Return JUnit XML with one test case per primary contrast: failed if the gate fires, skipped if inconclusive."""
    suite = _element("testsuite", name=name)
    for one in outcome.judged:
        declared = one.declared
        label = f"{declared.treatment} against {declared.baseline}: {declared.response.label}"
        classname = f"{name}.{declared.load}" if declared.load else name
        case = _element("testcase", classname=classname, name=label)
        text = in_words(one.row) if one.row else f"{one}."
        if one.broken:
            case.append(_element("failure", text, message=f"{one.sentence} ({one.broken})", type=one.word))
        elif not one.word.conclusive:
            case.append(_element("skipped", message=text))
        else:
            case.append(_element("system-out", text))
        suite.append(case)
    if outcome.fired and not outcome.judged:
        case = _element("testcase", classname=name, name="primary contrasts")
        case.append(_element("failure", outcome.line, message=outcome.line, type="missing"))
        suite.append(case)
    failures, skipped = (str(len(suite.findall(f"testcase/{kind}"))) for kind in ("failure", "skipped"))
    tally = {"tests": str(len(suite)), "failures": failures, "errors": "0", "skipped": skipped}
    suite.attrib |= tally
    top = _element("testsuites", name="meshtrial", **tally)
    top.append(suite)
    ElementTree.indent(top)
    return f"{_XML}{ElementTree.tostring(top, encoding='unicode')}\n"


def _element(tag: str, text: str = "", **attributes: str) -> ElementTree.Element:
    element = ElementTree.Element(tag, {key: one_line(value) for key, value in attributes.items()})
    element.text = one_line(text) or None
    return element


# --- trackers ---------------------------------------------------------------------------------------------------------

_SMALLER_IS_BETTER = ("latency", "resource")
_JSON: dict[str, Any] = {"indent": 1, "ensure_ascii": False, "allow_nan": False}


def benchmark_json(title: str, contrasts: Contrasts) -> str:
    """Return the primary contrasts for `customSmallerIsBetter` of github-action-benchmark.

    A value is the ratio to the baseline, or the difference in SI units where there is no ratio. Responses of which more
    is better are left out.
    """
    entries = []
    for row in contrasts.rows:
        ratio, difference = _effects(row)
        chosen = ratio or difference
        is_left_out = row.response in REGISTRY and REGISTRY[row.response].kind not in _SMALLER_IS_BETTER
        if row.exploratory or chosen is None or is_left_out:
            continue
        entry = {
            "name": f"{_series(title, row)}, {row.label}",
            "unit": "ratio" if ratio else f"{row.response}, difference",
            "value": chosen["value"],
            "extra": f"{wording.effect_in_full(row)}: {row.sentence}",
        }
        if {"lower_value", "upper_value"} <= chosen.keys():
            entry["range"] = f"{chosen['lower_value']:.4g} to {chosen['upper_value']:.4g}"
        entries.append(entry)
    return json.dumps(entries, **_JSON) + "\n"


def bencher(title: str, contrasts: Contrasts) -> str:
    """Return the primary contrasts in Bencher Metric Format (https://bencher.dev/bmf.json).

    Each response has two measures, its ratio and its difference in SI units, with the ends of their intervals.
    """
    benchmarks: dict[str, dict[str, Any]] = {}
    for row in (row for row in contrasts.rows if not row.exploratory):
        for scale, effect in zip(("ratio", "difference"), _effects(row), strict=True):
            if effect is not None:
                benchmarks.setdefault(_series(title, row), {})[f"{row.response} {scale}"] = effect
    return json.dumps(benchmarks, **_JSON) + "\n"


def _series(title: str, row: VerdictRow) -> str:
    at = f" at {row.load}" if row.load else ""
    return f"{title}: {row.treatment} against {row.baseline}{at}"


def _effects(row: VerdictRow) -> list[dict[str, float] | None]:
    """Return ratio and difference with the ends of their intervals that are finite; None for a missing one."""
    effects: list[dict[str, float] | None] = []
    for value, low, high in (
        (row.ratio, row.ci_low, row.ci_high),
        (row.difference, row.difference_low, row.difference_high),
    ):
        named = {"value": value, "lower_value": low, "upper_value": high}
        finite = {name: one for name, one in named.items() if one is not None and math.isfinite(one)}
        effects.append(finite if "value" in finite else None)
    return effects
