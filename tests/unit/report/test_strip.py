from __future__ import annotations

import polars as pl
import pytest

from meshtrial.report import figures


@pytest.fixture(scope="module")
def longer(synth, tmp_path_factory):
    return synth.study_data(tmp_path_factory.mktemp("longer"), synth.Shape(requests=6400, blocks=6))


def test_a_row_a_run_with_its_slowest_second(longer):
    figure = figures.strip(longer)
    assert figure.table.height == len(longer.runs)
    run = longer.runs[0]
    seconds = longer.series(run).filter(measure="p99_s").sort("second")["value"]
    (row,) = figure.table.filter(run=run.run_id).iter_rows(named=True)
    # The fourth second was not sent in to its end.
    assert row["seconds"] == 3
    assert row["slowest second's p99 / ms"] == pytest.approx(1e3 * max(seconds[:3]))
    assert row["slowest second"] == seconds[:3].arg_max()


def test_a_stall_of_one_run_is_told(longer):
    run = longer.runs[5]
    path = longer.run_folder(run) / "latency.parquet"
    kept = path.read_bytes()
    try:
        stalled = pl.col("actual_start_s").is_between(1, 2)
        frame = pl.read_parquet(path).with_columns(pl.when(stalled).then(0.5).otherwise("latency_s").alias("latency_s"))
        frame.write_parquet(path)
        figure = figures.strip(longer)
        assert f"slowest 500 ms in second 1 of run {run.run_id}" in figure.alt
    finally:
        path.write_bytes(kept)


def test_without_seconds_it_says_so_and_is_nothing(data):
    figure = figures.strip(data)  # 1500 requests at 2000 a second
    assert figure.nothing
    assert "<svg" not in figure.html
    assert figure.caption in figure.html
