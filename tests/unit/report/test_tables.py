import dataclasses
import html
import re
import shlex
import statistics
from dataclasses import replace

import pytest
from unit.report.synth import VARIANTS, asked, changed, row_of

from meshtrial.design.study import Treatment
from meshtrial.records.mechanism import ComponentCalls, Mechanism, write_mechanism
from meshtrial.records.schema import Proof
from meshtrial.report import tables
from meshtrial.report.tables.costs import mechanism
from meshtrial.report.tables.validity import together
from meshtrial.stats.verdict import block_count
from meshtrial.vocabulary import Warning

NAMES = ("verdict_sentence", "verdict_table", "exploratory_table", "validity", "design", "method_and_limits")
MAKE = {name: getattr(tables, name) for name in (*NAMES, "provenance", "cost")}


def visible(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", text))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", MAKE)
def test_every_table_shows_itself_without_a_value_that_is_none_and_has_scoped_headers(variants, variant, name):
    fragment = MAKE[name](variants[variant])
    shown = visible(fragment._repr_html_()) + repr(fragment)
    assert "None" not in re.sub(r"<style.*?</style>", "", shown, flags=re.DOTALL)
    assert "nan" not in re.findall(r"\w+", shown)
    # Headers have a scope, and a wide table scrolls by itself.
    assert fragment.html.count("<table ") == fragment.html.count('role="group" tabindex="0"')
    assert fragment.html.count("<table ") == fragment.html.count("<table aria-label=")
    assert all('scope="' in head for head in re.findall(r"<th\b[^>]*>", fragment.html))


def test_the_sentence_names_effect_ratio_and_class(variants):
    text = tables.headline(variants["usual"]).replace("\u00a0", " ")
    row = row_of(variants["usual"], "sidecar+mtls")
    assert text.startswith("Against none, at 2\u202f000 requests per second over 10 connections: ")
    assert f"sidecar+mtls is slower at p50 ({row.ratio:.2f}×, +{row.difference * 1e3:.3f} ms, material)" in text
    assert "uses more CPU per request of app and data plane" in text
    assert text.count(".") - len(re.findall(r"\d\.\d", text)) == 1  # one sentence


def test_a_time_or_a_number_of_events_is_not_used(variants):
    usual = variants["usual"]
    found = changed(usual, lambda row: row.response == "path_cpu_s_per_request", response="longest_gap_s")
    text = tables.headline(asked(found, primary=("latency_p50_s", "longest_gap_s"))).replace("\u00a0", " ")
    assert "and has more silence around the restart at its longest" in text
    assert "uses" not in text


@pytest.mark.parametrize(
    ("word", "side", "sentence"),
    [
        ("saturated", "", "it did not reach the requested rate"),
        ("saturated", "the baseline", "its baseline did not reach the requested rate"),
        ("invalid", "both", "neither it nor its baseline has a valid result"),
    ],
)
def test_the_headline_names_the_side_that_stopped(data, word, side, sentence):
    stopped = changed(data, lambda row: row.treatment == "node-proxy", verdict=word, qualifier=side)
    text = tables.headline(stopped)
    assert f"node-proxy is {word}: {sentence}" in text


def test_inconclusive_comes_with_blocks_and_the_detectable_effect(data):
    row = next(r for r in data.verdicts if r.verdict == "inconclusive")
    text = tables.verdict_table(data).text.replace("\u00a0", " ")
    assert f"a new study of {block_count(row.blocks_needed)} blocks" in text
    assert f"detects {100 * row.mde:.2g} %" in text


def test_counters_that_differ_in_one_number_are_one_range():
    assert together(["at least 520", "at least 518", "at least 520"]) == "at least 518 to 520"
    assert together(["refused", "reset", "closed"]) == "refused · reset · and 1 more"


def test_an_unfinished_plan_is_said(data):
    half = dataclasses.replace(
        data, runs=data.runs[:12], table=data.table.filter(data.table["sequence"] < 12), verdicts=()
    )
    assert tables.headline(half).startswith("No verdict: 3 of 10 planned blocks")


def test_too_few_blocks_are_said_before_any_number(synth, tmp_path):
    data = synth.study_data(tmp_path, synth.Shape(blocks=4, requests=200))
    # Two contrasts: 2 * 2^(1-n) <= 0.05 needs n = 7.
    assert "at least 7 blocks are needed" in tables.design(data).text


def test_the_command_makes_the_same_plan_again(data):
    words = shlex.split(tables.reproduce_command(data.plan))
    assert words[:3] == ["meshtrial", "run", "ambient_vs_no_mesh"]
    given = dict(pair.split("=", 1) for pair in words[4::2])
    assert words[3::2] == ["-p"] * len(given)
    assert given == {"profile": "quick", "seed": "7", "blocks": "10", "keepalive": "True"}


def test_the_command_quotes_what_a_shell_would_read(data):
    options = {"parameters": {"seed": 3, "rps": 0.0, "margin": "p50=5%; rm -rf /", "study_dir": "/home/me"}}
    assert (
        tables.reproduce_command(asked(data, options=options).plan)
        == "meshtrial run ambient_vs_no_mesh -p seed=3 -p 'margin=p50=5%; rm -rf /'"
    )


def test_provenance_holds_what_verifying_needs_and_no_machine_path(data):
    fragment = tables.provenance(data)
    assert f'data-mt-plan="{data.plan.sha256}"' in fragment.html
    assert f'data-mt-verdicts="{tables.verdicts_sha256(data)}"' in fragment.html
    assert tables.recorded_at(data).startswith("data/studies/ambient_vs_no_mesh/")
    assert str(data.path.parent.parent) not in fragment.html
    for text in ("Example CPU", "6.1.0-example", "1.40.0/RELEASE", "0123456789abcdef", "git dirty"):
        assert text in fragment.html


def test_a_version_that_changed_within_the_study_is_a_warning(data):
    runs = (dataclasses.replace(data.runs[0], versions={"fortio": "1.60.0"}), *data.runs[1:])
    text = tables.provenance(dataclasses.replace(data, runs=runs)).text
    assert "WARNING: it changed within the study" in text


def test_versions_that_treatments_differ_in_are_told_by_treatment(data):
    images = {"none": {}, "node-proxy": {"image proxy": "proxy:2 (sha256:cd)"}}
    told = {"image proxy": "proxy:1 (sha256:ab)"}
    runs = tuple(dataclasses.replace(r, versions={"fortio": "1", **images.get(r.treatment, told)}) for r in data.runs)
    assert {"none", "node-proxy"} < {run.treatment for run in runs}
    text = " ".join(tables.provenance(dataclasses.replace(data, runs=runs)).text.split())
    assert "proxy:2 (sha256:cd) in node-proxy" in text
    assert "WARNING" not in text
    assert "fortio (in the runs) 1 " in text


def test_a_study_of_versions_has_a_table_of_what_ran_in_each(data):
    names = {"none": "none", "node-proxy": "sidecar@1.30", "sidecar+mtls": "sidecar@1.31"}
    told = {
        "none": {"fortio": "1"},
        "sidecar@1.30": {"fortio": "1", "mesh sidecar@1.30": "1.30.4", "image proxy": "proxy:2 (sha256:cd)"},
        "sidecar@1.31": {"fortio": "1", "mesh sidecar@1.31": "1.31.1", "image proxy": "proxy:3 (sha256:ef)"},
    }
    runs = [run for run in data.runs if run.treatment in names]
    runs = [dataclasses.replace(r, treatment=names[r.treatment], versions=told[names[r.treatment]]) for r in runs]
    other = asked(data, treatments=tuple(map(Treatment.parse, told)), baseline=Treatment.parse("none"))
    lines = tables.provenance(dataclasses.replace(other, runs=tuple(runs))).text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Versions of sidecar, as the runs recorded them"))
    rows = [line.split() for line in lines[start + 1 : start + 8]]
    assert ["program", "sidecar@1.30", "sidecar@1.31"] in rows
    assert ["image", "proxy", "proxy:2", "(sha256:cd)", "proxy:3", "(sha256:ef)"] in rows
    assert ["mesh", "sidecar", "1.30.4", "1.31.1"] in rows
    assert not any(row[:1] == ["fortio"] for row in rows)


def test_nested_descriptions_of_the_host_are_read_too(data):
    nested = {"testbed": data.environment, "user": "somebody", "hostname": "secret-host"}
    text = tables.provenance(dataclasses.replace(data, environment=nested)).text
    assert re.search(r"CPU\s+Example CPU", text)
    assert "secret-host" not in text
    assert "somebody" not in text


def test_missing_percentiles_are_explained(variants):
    assert "Not reported: p99.9." in tables.method_and_limits(variants["usual"]).text
    assert "Not reported" not in tables.method_and_limits(variants["p999"]).text


def test_cost_is_told_by_part_and_together(data):
    # Headings keep numbers together: a narrow space inside, and a non-breaking one before the unit.
    text = tables.cost(data).text.replace("\u00a0", " ").replace("\u202f", " ")
    for heading in ("app / cores per 1 000 rps", "data plane / cores per 1 000 rps", "all parts", "above the baseline"):
        assert heading in text
    assert "policy server /" not in text
    runs = [run for run in data.included_runs() if run.treatment == "node-proxy"]
    cores = 1000 * statistics.median(run.responses["path_cpu_s_per_request"] for run in runs)
    row = next(line for line in text.splitlines() if line.startswith("node-proxy"))
    assert f"{cores:.4f}"[:5] in row


@pytest.mark.parametrize("name", MAKE)
def test_hostile_text_from_records_is_escaped(data, name):
    bad = '<img src=x onerror=alert(1)>"&'
    proof = Proof(bad, "before", False, bad, bad)
    runs = (dataclasses.replace(data.runs[0], valid=False, reasons=(bad,), proofs=(proof,), versions={bad: bad}),)
    said = {"treatment": bad, "label": bad, "qualifier": bad, "warnings": (Warning(bad, bad),)}
    hostile = dataclasses.replace(
        changed(data, lambda row: row.treatment == "node-proxy", **said),
        runs=(*runs, *data.runs[1:]),
        environment={bad: bad, "nested": {bad: [bad]}},
    )
    assert "<img" not in MAKE[name](hostile).html


def test_exploratory_warnings_of_the_course_are_folded_under_validity_and_others_are_not_there(data):
    drift, other = Warning("drift", "runs drift by +9 %; keep blocks short"), Warning("below-floor", "3 blocks; run 4")
    fragment = tables.validity(changed(data, lambda row: row.exploratory, warnings=(drift, other)))
    assert fragment.html.count("CPU per request of app: runs drift by +9 %") == 1
    assert "run 4" not in fragment.html
    assert "runs drift" not in tables.validity(data).html


def test_a_whole_study_of_a_treatment_and_its_twin_says_that_nothing_else_was_compared(data):
    one = dataclasses.replace(data, verdicts=tuple(row for row in data.verdicts if row.twin))
    assert one.verdicts
    assert tables.headline(one) == "Only the A/A twin was compared: none is the only treatment."


def test_counts_are_a_request_by_treatment_and_component(data, tmp_path):
    study = replace(data, path=tmp_path)
    assert mechanism(study).text == ""
    app = ComponentCalls("app", "app", {"read": 200, "write": 100, "futex": 50}, 25)
    proxy = ComponentCalls("<b>proxy</b>", "data plane", {"readv": 400}, None)
    both = (Mechanism("none", "200rps-4c", 100, 50, (app,)), Mechanism("node-proxy", "200rps-4c", 100, 50, (proxy,)))
    write_mechanism(tmp_path, both)
    shown = mechanism(study)
    row = next(line for line in shown.text.splitlines() if line.startswith("app "))
    assert row.split()[1:5] == ["3.50", "2", "1", "0.500"] or row.split()[1:5] == ["3.50", "2.00", "1.00", "0.500"]
    assert "read 2" in row
    assert shown.text.index("none") < shown.text.index("node-proxy")
    assert "<b>proxy</b>" not in shown.html
