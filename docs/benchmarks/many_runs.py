"""What verdicts and the page of a study of 2,001 runs cost, beside one of 201, with ties and without.

Three treatments, corrected by max-T; with ties every latency is a multiple of 0.05 ms, as of a clock that is coarse.
Each in a process of its own, so that its memory is its own.
"""

import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
from benchmarks.table import Row, main
from browser.simulated import page_of
from unit.report import synth

from meshtrial.inference import judge
from meshtrial.records import series
from meshtrial.records.dataset import StudyData

FEW, MANY = 67, 667  # blocks
STEP_S = 5e-5
LIMIT_S, LIMIT_BYTES = 10.0, 500e6  # of the larger study


def rows() -> Iterator[Row]:
    """CPU and memory of the larger study against their limits, and what it costs beside the smaller one."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for ties in (False, True):
            (few_verdicts, few_page, _), (verdicts, page, held) = (
                pool.apply(measured, (blocks, ties)) for blocks in (FEW, MANY)
            )
            what = f"verdicts and page of {3 * MANY:,} runs, {'with' if ties else 'without'} ties"
            cpu, few = verdicts + page, few_verdicts + few_page
            yield Row(what, f"{cpu:.1f} s of CPU", f"{LIMIT_S:g} s, the limit", cpu / LIMIT_S)
            yield Row(what, f"{cpu:.1f} s of CPU", f"{few:.1f} s for {3 * FEW} runs, a tenth", cpu / few)
            yield Row(what, f"{held / 1e6:.0f} MB", f"{LIMIT_BYTES / 1e6:.0f} MB, the limit", held / LIMIT_BYTES)


def measured(blocks: int, ties: bool) -> tuple[float, float, float]:
    """Seconds of CPU for verdicts and page, and the most memory that the process held from then on."""
    with tempfile.TemporaryDirectory() as folder:
        shape = synth.Shape(treatments=("none", "none-aa", "node-proxy"), blocks=blocks, requests=600, verdicts=False)
        data = asked(synth.study_data(Path(folder), shape), ties)
        for run in data.runs:  # as every run is recorded
            series.of_requests(data.latency(run)).write_parquet(data.run_folder(run) / series.FILE)
        began = time.process_time()
        rows = judge(data.plan, data.plan, data.runs, data.table)
        judged = time.process_time()
        page_of(replace(data, verdicts=tuple(rows)), Path(folder) / "report.html")
        done = time.process_time()
    unit = 1 if sys.platform == "darwin" else 1024
    return judged - began, done - judged, float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def asked(data: StudyData, ties: bool) -> StudyData:
    """The study as if max-T had been declared, and with latencies as coarse as that."""
    data = synth.asked(data, correction="max-t")
    coarse = pl.when(pl.col("response").str.starts_with("latency_")).then((pl.col("value") / STEP_S).round() * STEP_S)
    return replace(data, table=data.table.with_columns(coarse.otherwise("value").alias("value"))) if ties else data


if __name__ == "__main__":
    main(rows)
