"""The gate's files: a Markdown table that no name can break, and XML that says failed, skipped or passed."""

import json
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import jsonschema
import mistune
import pytest
from unit.report.synth import Shape, study_data

from meshtrial.design.responses import REGISTRY, Response
from meshtrial.inference.gate import DeclaredContrast, declared_by, judge, read_rules
from meshtrial.report import frames, summary
from meshtrial.report.frames import Contrasts, contrasts
from meshtrial.vocabulary import Warning

P50 = REGISTRY["latency_p50_s"]
NASTY = [
    "a|b",
    "a\\|b",
    "`a`|``b",
    "<script>alert(1)</script>",
    "<!-- hidden",
    "[a](https://evil.example)",
    "![a](x)",
    "*a* **b** _c_ ~~d~~",
    "a\n## b",
    "&lt;b&gt; &amp;",
    "a & b",
    "_a_ __b__ c_d_",
    "$a$",
    "https://evil.example",
    "www.evil.example",
    "\x00\x1b[31m",
]


def rendered(markdown: str) -> ElementTree.Element:
    """Return the Markdown as a tree, as a Markdown reader parses it."""
    page = mistune.create_markdown(escape=False, plugins=["table", "strikethrough", "url"])(markdown)
    return ElementTree.fromstring(f"<page>{page}</page>")


def texts(tree: ElementTree.Element, path: str) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in tree.findall(path)]


@pytest.fixture
def answer(make_row):
    def run(verdicts, fail_on=("slower",), require=(), *, extra=(), missing=(), response=P50, **changes):
        """Return contrasts of treatments with these verdicts, and the gate's result."""
        rows = [
            make_row(treatment=name, verdict=word, response=response.name, label=response.label, **changes)
            for name, word in verdicts.items()
        ]
        declared = [DeclaredContrast("l", response, name, "none") for name in (*verdicts, *missing)]
        outcome = judge(rows, declared, read_rules(fail_on, require), 0.05)
        return Contrasts((*rows, *extra), {}, ("l",)), outcome

    return run


def test_the_answer_stands_on_top_and_a_row_says_which_rule_it_breaks(answer):
    text = summary.markdown("a study", *answer({"b": "equivalent", "c": "slower"}))
    assert text.startswith("## a study\n\n\u274c **gate fired: 1 of 2 primary contrasts: c against none, p50 latency")
    rows = texts(rendered(text), "table/tbody/tr")
    assert [(row[0], row[1], row[3], row[-1]) for row in rows] == [
        ("b", "none", "equivalent", "passes"),
        ("c", "none", "slower", "--fail-on slower"),
    ]
    assert "\u2705 **gate passed: 1 primary contrast: 1 equivalent**" in summary.markdown(
        "s", *answer({"b": "equivalent"})
    )


def test_the_rules_are_said_with_what_chance_does(answer):
    text = summary.markdown("s", *answer({"b": "slower"}))
    assert "- Rules: --fail-on slower. They do not apply to the A/A twin and to exploratory responses.\n" in text
    assert "at most about 2.5 % of cases (1 family" in text.replace("\u00a0", " ")
    assert "chance" not in summary.markdown("s", *answer({"b": "slower"}, (), ["equivalent"]))


def test_without_rules_it_is_the_table_alone(answer):
    text = summary.markdown("s", *answer({"b": "slower"}, ()))
    assert "gate passed" not in text
    assert "gate fired" not in text
    assert "Rules" not in text
    assert texts(rendered(text), "table/tbody/tr")[0][-1] == "–"


def test_the_twin_is_marked_and_exploratory_rows_are_left_out(answer, make_row):
    extra = (make_row(treatment="none-aa", twin=True), make_row(treatment="x", exploratory=True))
    rows = texts(rendered(summary.markdown("s", *answer({"b": "equivalent"}, extra=extra))), "table/tbody/tr")
    assert [(row[0], row[-1]) for row in rows] == [("b", "passes"), ("none-aa (A/A twin)", "–")]


def test_a_contrast_without_a_row_stands_in_the_table(answer):
    text = summary.markdown("s", *answer({"b": "equivalent"}, (), ["equivalent"], missing=["gone"]))
    row = texts(rendered(text), "table/tbody/tr")[1]
    assert row[0::3] == ["gone", "no verdict: the response was not reported", "–"]
    assert row[-1] == "--require equivalent"


@pytest.mark.parametrize("name", NASTY)
def test_no_name_breaks_the_markdown(answer, name):
    label = Response("x", name, "latency", "ms", 1e3)
    given = answer({name: "slower"}, response=label, warnings=(Warning("code", name),), baseline="none")
    page = rendered(summary.markdown(name, *given))
    rows = texts(page, "table/tbody/tr")
    assert [len(row) for row in rows] == [8]
    shown = " ".join("".join(sign if sign.isprintable() else "\ufffd" for sign in name.replace("\n", " ")).split())
    assert rows[0][0].replace("\u200b", "") == shown
    assert {node.tag for node in page.iter()} <= {
        *("page", "h2", "h3", "p", "strong", "code", "ul", "li", "table", "thead", "tbody", "tr", "th", "td")
    }
    assert len(page.findall("h2")) == 1


def test_nobody_is_called_by_a_name(answer):
    text = summary.markdown("s", *answer({"none@app": "slower", "<b>@someone": "slower"}))
    assert "`none@app`" in text
    assert "@someone" not in unescape(text)


def test_a_study_has_a_table_a_load(data):
    outcome = judge(data.verdicts, declared_by(data.plan), read_rules(["slower"]), 0.05)
    text = summary.markdown("ambient_vs_no_mesh", frames.contrasts(data), outcome)
    # Text without Markdown structure is not escaped.
    assert text.startswith("## ambient_vs_no_mesh\n")
    page = rendered(text)
    loads = [load for load in frames.loads(data) if any(row.load == load for row in data.verdicts)]
    assert ["".join(title.itertext()) for title in page.findall("h3")] == loads
    primary = [row for row in data.verdicts if not row.exploratory]
    assert len(texts(page, "table/tbody/tr")) == len(primary)
    assert "\n\n\n" not in text


def cases(text: str) -> dict[str, str]:
    """Return the outcome of each test case."""
    found = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        inside = {node.tag for node in case} - {"system-out"}
        found[case.attrib["name"]] = inside.pop() if inside else "passed"
    return found


def test_junit_has_a_case_a_primary_contrast(answer, make_row):
    verdicts = {
        "a": "slower",
        "b": "equivalent",
        "c": "inconclusive",
        "d": "unstable",
        "e": "saturated",
        "f": "invalid",
    }
    _, outcome = answer(verdicts, extra=(make_row(treatment="x", exploratory=True),))
    text = summary.junit("study", outcome)
    assert list(cases(text).values()) == ["failure", "passed", "skipped", "skipped", "skipped", "skipped"]
    suite = ElementTree.fromstring(text).find("testsuite")
    assert suite is not None
    assert {key: suite.attrib[key] for key in ("tests", "failures", "skipped", "errors")} == {
        "tests": "6",
        "failures": "1",
        "skipped": "4",
        "errors": "0",
    }


def test_junit_says_the_verdict_where_it_fails(answer):
    _, outcome = answer({"a": "slower"}, n_blocks=8, ratio=1.5, ci_low=1.2, ci_high=1.8)
    failure = ElementTree.fromstring(summary.junit("study", outcome)).find(".//failure")
    assert failure is not None
    assert failure.attrib == {"message": "slower (--fail-on slower)", "type": "slower"}
    effect = "+50.0 % (+20.0 to +80.0 %) over 8 blocks in this session"
    assert failure.text == f"a against none at l, p50 latency, typical run's: slower, {effect}."


def test_junit_fails_what_is_open_where_a_verdict_is_required(answer):
    _, outcome = answer({"a": "inconclusive", "b": "equivalent"}, (), ["equivalent"], missing=["gone"])
    assert list(cases(summary.junit("study", outcome)).values()) == ["failure", "passed", "failure"]


def test_junit_fails_where_there_was_nothing_to_judge():
    outcome = judge([], (), read_rules(["slower"]), 0.05)
    assert cases(summary.junit("study", outcome)) == {"primary contrasts": "failure"}
    assert cases(summary.junit("study", judge([], (), read_rules(), 0.05))) == {}


@pytest.mark.parametrize("name", [*NASTY, '"]]>', "\ud800"])
def test_no_name_breaks_the_xml(answer, name):
    label = Response("x", name, "latency", "ms", 1e3)
    _, outcome = answer({name: "slower", "b": "inconclusive"}, response=label)
    text = summary.junit(name, outcome)
    text.encode()
    assert list(cases(text).values()) == ["failure", "skipped"]


# --- trackers ---------------------------------------------------------------------------------------------------------

# https://bencher.dev/bmf.json
BMF = {
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
                    "additionalProperties": False,
                    "required": ["value"],
                }
            },
        }
    },
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Contrasts:
    return contrasts(study_data(tmp_path_factory.mktemp("study"), Shape()))


def test_bencher_gets_every_primary_effect_on_both_scales_with_its_interval(shown):
    given = json.loads(summary.bencher("study", shown))
    jsonschema.validate(given, BMF)
    row = next(r for r in shown.rows if r.response == "latency_p50_s" and r.treatment == "node-proxy")
    measures = given[f"study: node-proxy against none at {row.load}"]
    assert measures["latency_p50_s ratio"] == {
        "value": row.ratio,
        "lower_value": row.ci_low,
        "upper_value": row.ci_high,
    }
    assert measures["latency_p50_s difference"]["value"] == row.difference
    assert any("none-aa" in name for name in given)
    # Bencher takes names of measures of at most 64 characters.
    assert all(len(name) <= 64 for one in given.values() for name in one)


def test_an_open_interval_leaves_its_end_out_and_a_missing_effect_its_measure(shown):
    row = next(r for r in shown.rows if r.response == "latency_p50_s" and r.treatment == "node-proxy")
    odd = replace(shown, rows=(replace(row, ci_high=float("inf"), difference=None),))
    (measures,) = json.loads(summary.bencher("study", odd)).values()
    assert measures == {"latency_p50_s ratio": {"value": row.ratio, "lower_value": row.ci_low}}
    (entry,) = json.loads(summary.benchmark_json("study", odd))
    assert "range" not in entry


def test_github_action_benchmark_gets_what_it_reads(shown):
    """Its README asks for name, unit and a number, and takes range and extra as text."""
    given = json.loads(summary.benchmark_json("study", shown))
    kinds = {"name": str, "unit": str, "value": float, "range": str, "extra": str}
    assert given
    for entry in given:
        assert {"name", "unit", "value"} <= set(entry) <= set(kinds)
        assert all(isinstance(value, kinds[name]) for name, value in entry.items())
    names = [entry["name"] for entry in given]
    assert len(set(names)) == len(names)
    row = next(r for r in shown.rows if r.response == "latency_p50_s" and r.treatment == "node-proxy")
    entry = next(entry for entry in given if row.treatment in entry["name"] and row.label in entry["name"])
    assert (entry["value"], entry["unit"]) == (row.ratio, "ratio")
    assert row.sentence in entry["extra"]


def test_more_is_better_is_not_given_to_a_tool_for_which_less_is(shown):
    row = next(r for r in shown.rows if r.response == "latency_p50_s")
    search = replace(shown, rows=(replace(row, response="capacity_rps"),))
    assert json.loads(summary.benchmark_json("study", search)) == []
    assert json.loads(summary.bencher("study", search))
