"""What verdicts and the page of a study of 2,001 runs cost, beside one of 201, with ties and without. Run by hand:

PYTHONPATH=tests .venv/bin/python -m benchmarks.many_runs

Three treatments, corrected by max-T; with ties every latency is a multiple of 0.05 ms, as of a clock that is coarse.
Each in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
from browser.simulated import page_of
from unit.report import synth

from meshtrial.inference import judge
from meshtrial.records import series
from meshtrial.records.dataset import StudyData

FEW, MANY = 67, 667  # blocks
STEP_S = 5e-5
LIMIT_S, LIMIT_BYTES = 10.0, 500e6  # of the larger study


def main() -> bool:
    """Say what each takes, the ratio of the two, and whether the larger one keeps the limits."""
    within = True
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for ties in (False, True):
            (few_verdicts, few_page, _), (verdicts, page, held) = (
                pool.apply(measured, (blocks, ties)) for blocks in (FEW, MANY)
            )
            print(f"{3 * MANY} runs, {'with' if ties else 'without'} ties:", end=" ")
            print(f"verdicts {verdicts:.1f} s ({verdicts / few_verdicts:.1f} times those of {3 * FEW} runs),", end=" ")
            print(f"page {page:.1f} s ({page / few_page:.1f} times), {held / 1e6:.0f} MB at the most", flush=True)
            within &= verdicts + page <= LIMIT_S and held <= LIMIT_BYTES
    print(f"the limits are {LIMIT_S:g} s of CPU and {LIMIT_BYTES / 1e6:g} MB")
    return within


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
    raise SystemExit(not main())
