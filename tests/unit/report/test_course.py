"""Runs over their seconds, as lines and as strips, which show what a median over the runs hides."""

import dataclasses
import shutil

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from refused import refused
from unit.report.synth import rewritten

from meshtrial.errors import RecordError
from meshtrial.records import series
from meshtrial.report import figures


@pytest.fixture(scope="module")
def longer(synth, tmp_path_factory):
    return synth.study_data(tmp_path_factory.mktemp("longer"), synth.Shape(requests=6400, blocks=6))


@pytest.fixture
def copy(longer, tmp_path):
    """Return a copy that a test may change."""
    return dataclasses.replace(longer, path=shutil.copytree(longer.path, tmp_path / "study"))


@pytest.mark.usefixtures("undrawn")
def test_a_row_a_run_with_its_slowest_second(longer):
    figure = figures.strip(longer)
    assert figure.table.height == len(longer.runs)
    run = longer.runs[0]
    seconds = longer.series(run).filter(measure="p99_s").sort("second")["value"]
    (row,) = figure.table.filter(run=run.run_id).iter_rows(named=True)
    # The fourth second was cut off.
    assert row["seconds"] == 3
    assert row["slowest second's p99 / ms"] == pytest.approx(1e3 * max(seconds[:3]))
    assert row["slowest second"] == seconds[:3].arg_max()


def test_a_stall_of_one_run_is_told(longer):
    run, stalled = longer.runs[5], pl.col("actual_start_s").is_between(1, 2)
    with rewritten(longer, run, pl.when(stalled).then(0.5).otherwise("latency_s").alias("latency_s")):
        assert f"slowest 500 ms in second 1 of run {run.run_id}" in figures.strip(longer).alt


def test_without_seconds_it_says_so_and_is_nothing(data):
    figure = figures.strip(data)  # 1500 requests at 2000 a second
    assert figure.nothing
    assert "<svg" not in figure.html
    assert figure.caption in figure.html


@pytest.mark.usefixtures("undrawn")
def test_the_course_shows_seconds_and_says_when_there_is_only_one(data, longer):
    assert "No run recorded its course" in figures.course(data).alt  # 1500 requests at 2000 a second
    figure = figures.course(longer)
    assert set(figure.table["second"]) == {0, 1, 2}  # the fourth second was cut off
    assert set(figure.table["what"]) == {"p50 latency of the second / ms", "p99 latency of the second / ms"}
    assert "node-proxy: medians from" in figure.alt
    run = longer.runs[0]
    of_first = longer.latency(run).filter(pl.col("actual_start_s") < 1)["latency_s"]
    course = longer.series(run).filter(second=0, measure="p50_s")["value"]
    assert course[0] == pytest.approx(float(np.median(of_first)))


@pytest.mark.usefixtures("undrawn")
def test_the_course_shows_failures_and_a_rate_that_was_not_kept(copy):
    for run in copy.runs:
        path = copy.run_folder(run) / "latency.parquet"
        broken = (pl.col("actual_start_s") > 1) & (pl.col("iter") % 2 == 0)
        frame = pl.read_parquet(path).with_columns(
            (~broken).alias("ok"), pl.when(broken).then(pl.lit("503")).otherwise(pl.lit("200")).alias("code")
        )
        frame.filter(~broken | (pl.col("actual_start_s") < 2)).write_parquet(path)
    what = set(figures.course(copy).table["what"])
    assert {"requests failed in the second", "requests sent in the second"} <= what


def test_a_study_without_course_and_requests_says_that_and_not_that_it_was_short(copy):
    for run in copy.runs:
        (copy.run_folder(run) / "latency.parquet").unlink()
    (copy.path / "packed.json").write_text('{"schema": "meshtrial.packed/1", "left_out": ["requests"]}')
    assert "No course of the runs over time was recorded" in figures.course(copy).alt


@pytest.mark.usefixtures("undrawn")
def test_seconds_that_were_kept_are_those_of_the_requests(copy):
    of_requests = [figures.course(copy).table, figures.strip(copy).table]
    for run in copy.runs[::2]:
        copy.series(run).write_parquet(copy.run_folder(run) / series.FILE)
    kept = [figures.course(copy).table, figures.strip(copy).table]
    for one, other in zip(of_requests, kept, strict=True):
        assert_frame_equal(one, other)
    place = 4
    together = copy.courses(copy.runs).filter(run=place).drop("run")
    assert_frame_equal(together, copy.series(copy.runs[place]))


def test_a_damaged_file_among_many_is_named(copy):
    for run in copy.runs:
        copy.series(run).write_parquet(copy.run_folder(run) / series.FILE)
    path = copy.run_folder(copy.runs[7]) / series.FILE
    path.write_bytes(path.read_bytes()[:-20])
    with refused(RecordError, names=[path]):
        figures.course(copy)
