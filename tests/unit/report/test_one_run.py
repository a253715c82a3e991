"""One run in detail: the page shows what its record contains, and names in one line what it lacks."""

import dataclasses
import json
import re

import polars as pl
import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.records import packed, series
from meshtrial.report import figures, tables
from meshtrial.report.figures.course import thinned


@pytest.fixture
def run(data):
    return next(run for run in data.runs if run.treatment == "node-proxy")


def packed_without(data, tmp_path, *parts: str):
    folder = tmp_path / "study"
    (folder / "runs").mkdir(parents=True)
    (folder / packed.NOTE).write_text(json.dumps({"schema": packed.SCHEMA, "left_out": sorted(parts)}))
    return dataclasses.replace(data, path=folder)


def test_the_requests_are_those_of_the_run(data, run):
    figure = figures.requests_over_time(data, run.run_id)
    found = data.latency(run)
    assert figure.table["requests"].sum() == found.height
    assert figure.table["slowest / ms"].max() == pytest.approx(found["latency_s"].max() * 1e3)
    median = found.filter(pl.col("ok").fill_null(True))["latency_s"].median() * 1e3
    assert f"p50 {median:.3g} ms" in figure.alt
    assert run.run_id in figure.alt


def test_of_many_requests_the_slowest_and_the_failed_are_all_drawn():
    many = pl.DataFrame(
        {"latency / ms": [1.0 + (n % 97) / 100 for n in range(50_000)], "ok": [n % 5000 != 7 for n in range(50_000)]}
    ).with_columns(
        pl.when(pl.int_range(pl.len()) == 31_111).then(900.0).otherwise("latency / ms").alias("latency / ms")
    )
    dots = thinned(many)
    assert dots.height < 4000
    assert dots["latency / ms"].max() == 900.0
    assert (~dots["ok"]).sum() == 10


def test_a_packed_study_without_requests_or_logs_says_so_in_a_line(data, run, tmp_path):
    packed_study = packed_without(data, tmp_path, "requests", "logs")
    figure = figures.requests_over_time(packed_study, run.run_id)
    assert figure.caption == "study: its requests were left out when it was packed."
    shown = tables.run_log(packed_study, run.run_id)
    assert shown.text == "study: its logs were left out when it was packed."


def test_a_log_is_shown_as_text_and_of_a_long_one_the_end(data, run, tmp_path):
    folder = tmp_path / "runs" / run.run_id / "logs"
    folder.mkdir(parents=True)
    (folder / "app.log").write_bytes(b"first\n" + b"x" * 50_000 + b"\n<script>last \xff</script>\n")
    mine = dataclasses.replace(data, path=tmp_path)
    shown = tables.run_log(mine, run.run_id)
    assert "first" not in shown.text
    assert "its last 40\u202f000 of 50\u202f" in shown.text
    assert shown.text.endswith("<script>last \ufffd</script>")
    assert "<script>" not in shown.html
    with refused(UsageError):
        tables.run_log(mine, run.run_id, "envoy.log")
    with refused(UsageError, names=["'../run.json'", run.run_id, "app.log"]):
        tables.run_log(mine, run.run_id, "../run.json")


def test_what_a_run_lacks_is_said_in_a_line(data, run, tmp_path):
    assert tables.run_log(dataclasses.replace(data, path=tmp_path), run.run_id).text.startswith("No log of run")
    assert "no CPU and memory second by second" in figures.components_over_time(data, run.run_id).caption


def test_gates_and_proofs_are_listed_with_what_was_measured(data, run):
    gates, proofs = tables.run_gates(data, run.run_id), tables.run_proofs(data, run.run_id)
    for gate in run.gates:
        assert gate.name in gates.text
    for proof in run.proofs:
        assert proof.observed in proofs.text
    assert proofs.text.index("before the load") < proofs.text.index("after the load")


def test_a_failed_gate_says_why(data, run):
    failed = dataclasses.replace(run.gates[0], passed=False, message="too <slow>")
    broken = dataclasses.replace(run, gates=(failed, *run.gates[1:]))
    shown = tables.run_gates(dataclasses.replace(data, runs=(broken,)), run.run_id)
    assert re.search(rf"{failed.name} +no ", shown.text)
    assert "too &lt;slow&gt;" in shown.html


def test_resources_are_those_of_the_record(data, run):
    shown = tables.run_resources(data, run.run_id)
    for used in run.usage:
        assert used.component in shown.text
        assert f"{used.cpu_s / used.window_s:.3g}"[:4] in shown.text


def test_components_are_drawn_second_by_second(data, run, tmp_path):
    samples = {"proxy": [series.UsageSample(n, 0.5 * n, 2**20 * (10 + n)) for n in range(5)]}
    folder = tmp_path / "runs" / run.run_id
    folder.mkdir(parents=True)
    series.of_samples(samples).write_parquet(folder / series.FILE)
    figure = figures.components_over_time(dataclasses.replace(data, path=tmp_path), run.run_id)
    assert figure.table.filter(pl.col("what").str.starts_with("CPU"))["value"].to_list() == [0.5] * 4
    assert figure.table.filter(pl.col("what").str.starts_with("memory"))["value"].to_list() == [11, 12, 13, 14]
    assert "memory / MiB of proxy up to 14" in figure.alt


def test_the_facts_say_whether_the_run_held_and_what_it_measured(data, run):
    facts = tables.run_facts(data, run.run_id).text
    assert "every check passed" in facts
    assert re.search(r"used in the inference +yes", facts)
    assert "p50 latency" in facts


def test_a_run_that_is_not_there_is_refused(data):
    for show in (figures.requests_over_time, figures.components_over_time, tables.run_gates, tables.run_log):
        with refused(UsageError):
            show(data, "99-1-none")
