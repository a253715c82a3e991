"""What a gate found, for machines and pull requests: the verdict table as Markdown, and JUnit's XML.

Treatments, labels and messages come from records and other people's tables and may hold anything. The Markdown is a
template in which every value is escaped by numeric references, which no Markdown reads as structure; names stand in
code, where nobody is mentioned and nothing is linked. The XML is written by the standard library.
"""

from __future__ import annotations

import re
from functools import cache
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from meshtrial.inference.gate import GateOutcome, Judged
from meshtrial.report import wording
from meshtrial.report.frames import Contrasts
from meshtrial.report.markup import TEMPLATES, cell
from meshtrial.report.tables.verdict_columns import MARKDOWN, Line, VerdictColumn, columns_of
from meshtrial.report.tables.verdicts import in_words

# What is read as it stands: a name of these characters alone can be written as code.
_PLAIN_NAME = re.compile(r"[\w.+@/:=-]+(?: [\w.+@/:=-]+)*")
_STRUCTURE = re.compile(
    r"[\\`*{}\[\]<>#|~@&$]|(?<=\w):(?=//)|(?i:www)(?=\.)|(?<![^\W_])_|_(?![^\W_])|^(?:[-+]|\d+[.)])(?= )"
)
# XML 1.0, section 2.2: what a document cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REPLACEMENT = "\ufffd"
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


class _Escaped(str):
    """Markdown that is not escaped again."""


def _references(text: str) -> str:
    # Some sites look for @names after the references are resolved: a space of no width ends that.
    return "".join(f"&#{ord(sign)};" for sign in text.replace("@", "@\u200b"))


def one_line(value: object) -> str:
    """Any value as one line that XML and a table's cell can hold."""
    return " ".join(_NOT_XML.sub(_REPLACEMENT, str(value)).split())


def _text(value: object) -> _Escaped:
    """Any value as text that Markdown shows as it is."""
    if isinstance(value, _Escaped):
        return value
    return _Escaped(_STRUCTURE.sub(lambda found: _references(found[0]), one_line(value)))


def _name(value: object) -> _Escaped:
    """A name as code; one with signs of Markdown in it as text."""
    text = one_line(value)
    return _Escaped(f"`{text}`") if _PLAIN_NAME.fullmatch(text) else _text(text)


@cache
def _environment() -> Environment:
    # No HTML is written here: `finalize` escapes every value for Markdown instead.
    return Environment(loader=FileSystemLoader(TEMPLATES), finalize=_text, undefined=StrictUndefined, trim_blocks=True)


def markdown(title: str, contrasts: Contrasts, outcome: GateOutcome) -> str:
    """The primary contrasts, the A/A twin's among them, as a Markdown table with the gate's answer on top.

    Without rules it is the verdicts alone.
    """
    found = contrasts.where(lambda row: not row.exploratory)
    judged = {one.declared.key: one for one in outcome.judged}
    columns = columns_of(MARKDOWN)
    rows: list[tuple[str, list[_Escaped]]] = []
    for row in found.rows:
        one = None if row.twin else judged.get(row.key)
        line = Line(row, found, gate="–" if one is None else _answer(one, outcome))
        rows.append((row.load, [_cell(column, column.shows(MARKDOWN, line)) for column in columns]))
    for one in outcome.judged:
        if one.row is None:
            known = _absent(one, outcome)
            rows.append((one.declared.load, [_cell(column, known.get(column.heading)) for column in columns]))
    loads = dict.fromkeys([*found.loads, *(load for load, _ in rows)])
    by_load = [(load, [cells for where, cells in rows if where == load]) for load in loads]
    text = (
        _environment()
        .get_template("summary.md.j2")
        .render(
            title=title,
            mark="" if not outcome.rules else "\u274c" if outcome.fired else "\u2705",
            outcome=outcome,
            columns=columns,
            loads=[(load, cells) for load, cells in by_load if cells],
            rules=rule_sentences(outcome),
            warnings=wording.warnings(found.rows),
        )
    )
    # What is absent leaves empty lines behind.
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def rule_sentences(outcome: GateOutcome) -> list[str]:
    """The rules, and how often chance calls a difference that fires."""
    if not outcome.rules:
        return []
    families = len(outcome.families)
    said = [f"Rules: {outcome.rules}. The A/A twin and exploratory responses have no say."]
    if outcome.false_alarms:
        share = wording.rounded_percent(outcome.false_alarms)
        of = f"{families} famil{'ies' if families > 1 else 'y'}: a primary response at a load each"
        said.append(
            "Were all treatments equal, chance would make a difference fire this gate in at most about "
            f"{share} of cases ({of})."
        )
    return said


def _cell(column: VerdictColumn, value: object) -> _Escaped:
    shown = cell(value)
    text = _name(shown.text) if column.name else _text(shown.text)
    return _Escaped(text + (f" ({_text(shown.note)})" if shown.note else ""))


def _absent(one: Judged, outcome: GateOutcome) -> dict[str, str]:
    """What is known of a declared contrast without a row, by column."""
    declared = one.declared
    return {
        "treatment": declared.treatment,
        "against": declared.baseline,
        "response": declared.response.label,
        "verdict": one.sentence,
        "gate": _answer(one, outcome),
    }


def _answer(one: Judged, outcome: GateOutcome) -> str:
    return one.broken or ("passes" if outcome.rules else "–")


def junit(name: str, outcome: GateOutcome, counted: str = "blocks") -> str:
    """A test case a primary contrast: failed where the gate fires, skipped where nothing was settled.

    ``counted`` is what the rows' ``n_blocks`` counts: blocks, or runs.
    """
    cases = [_case(name, one, counted) for one in outcome.judged]
    if outcome.fired and not cases:
        cases = [_element("testcase", classname=name, name="primary contrasts")]
        cases[0].append(_element("failure", outcome.line, message=outcome.line, type="missing"))
    tally = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
    }
    suite = _element("testsuite", name=name, **tally)
    suite.extend(cases)
    top = _element("testsuites", name="meshtrial", **tally)
    top.append(suite)
    ElementTree.indent(top)
    return f"{_XML}{ElementTree.tostring(top, encoding='unicode')}\n"


def _case(suite: str, one: Judged, counted: str) -> ElementTree.Element:
    declared = one.declared
    classname = f"{suite}.{declared.load}" if declared.load else suite
    label = f"{declared.treatment} against {declared.baseline}: {declared.response.label}"
    case = _element("testcase", classname=classname, name=label)
    said = in_words(one.row, counted) if one.row else f"{one}."
    if one.broken:
        case.append(_element("failure", said, message=f"{one.sentence} ({one.broken})", type=one.word))
    elif not one.word.conclusive:
        case.append(_element("skipped", message=said))
    else:
        case.append(_element("system-out", said))
    return case


def _element(tag: str, text: str = "", **attributes: str) -> ElementTree.Element:
    made = ElementTree.Element(tag, {key: one_line(value) for key, value in attributes.items()})
    made.text = one_line(text) or None
    return made
