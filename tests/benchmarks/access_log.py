"""A large access log read, sorted and written as Parquet: CPU and memory beside what else could do it, in one run.

``.venv/bin/python tests/benchmarks/access_log.py [LINES]``; ten million lines are 1.04 GB and take some minutes. Each
program is a process of its own. DuckDB takes part where it can be imported, which the project itself does not need
(``pip install --target DIR duckdb``, then ``PYTHONPATH=DIR``). The last row is what a run does besides: planned starts,
corrected latencies, and the result's histogram held against the log.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl

from meshtrial.load.histogram import EDGES, Histogram

THREADS, RPS, START_NS = 100, 100_000.0, 1_795_229_163_000_000_000
_SCHEMA = (
    '{"latency": pl.Float64, "timestamp": pl.Int64, "thread": pl.Int32, "iter": pl.Int64, "ok": pl.Boolean, '
    '"details": pl.String}'
)
PROGRAMS = {
    "DuckDB": """
import duckdb
kinds = {"latency": "DOUBLE", "timestamp": "BIGINT", "thread": "INTEGER", "iter": "BIGINT", "ok": "BOOLEAN"}
kinds["details"] = "VARCHAR"
read = f"read_json('{log}', format='newline_delimited', columns={kinds})"
duckdb.sql(f"COPY (SELECT * FROM {read} ORDER BY thread, iter) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
""",
    "polars": f"""
import polars as pl
pl.read_ndjson(log, schema={_SCHEMA}).sort("thread", "iter").write_parquet(out, compression="zstd")
""",
    "meshtrial": """
from meshtrial.load.accesslog import read_access_log
read_access_log(log).write_parquet(out, compression="zstd")
""",
    "meshtrial, the whole run": """
from pathlib import Path
from meshtrial.design.study import Load
from meshtrial.load.generators import GeneratorOutput
from meshtrial.load.ingest import ingest
from meshtrial.records.schema import ComponentUsage
usage = ComponentUsage("g", "load generator", 1.0, 1.0, None)
output = GeneratorOutput("g", ("fortio", "-r", "0.000001"), 0, Path(log).with_suffix(".json"), Path(log), "", usage)
measured = ingest([output], Load({rps}, {threads}, {duration_s}), 100)
assert measured.notes == (), measured.notes
measured.requests.write_parquet(out, compression="zstd")
""",
}


def write_log(path: Path, lines: int) -> float:
    """What fortio would have left of so many requests, log and result; how long the run was, in seconds."""
    each = lines // THREADS
    iteration = np.repeat(np.arange(each), THREADS)
    thread = np.tile(np.arange(THREADS), each)
    per_thread = RPS / THREADS
    due = (iteration + iteration / (each - 1)) / per_thread + thread / RPS
    micros = np.minimum(np.random.default_rng(1).lognormal(5.3, 0.3, len(due)), 900).astype(np.int64)
    latency = micros / 1e6
    start = (due * 1e9).astype(np.int64) + START_NS
    frame = pl.DataFrame({"micros": micros, "start": start, "thread": thread, "iter": iteration})
    texts = ('{"latency":0.', ',"timestamp":', ',"thread":', ',"iter":')
    values = (pl.col("micros").cast(pl.String).str.zfill(6), "start", "thread", "iter")
    parts = [part for text, value in zip(texts, values, strict=True) for part in (pl.lit(text), value)]
    line = pl.concat_str(*parts, pl.lit(',"ok":true,"details":"200"}'))
    frame.select(line).write_csv(path, include_header=False, quote_style="never")
    counts = np.bincount(np.searchsorted(np.array(EDGES) * 1e-6 * (1 + 1e-12), latency), minlength=len(EDGES) + 1)
    whole = Histogram(1e-6, tuple(map(int, counts)), float(latency.min()), float(latency.max()), float(latency.sum()))
    exported = whole.export()
    data = [{"Start": b.start_s, "End": b.end_s, "Percent": 0, "Count": b.count} for b in exported.buckets]
    histogram = {"Count": len(latency), "Min": whole.min_s, "Max": whole.max_s, "Sum": whole.sum_s, "Data": data}
    duration_s = lines / RPS
    result = {
        "StartTime": "2026-11-21T02:46:03Z",
        "RequestedQPS": f"{RPS:g}",
        "RequestedDuration": f"{duration_s:g}s",
        "ActualDuration": int(duration_s * 1e9),
        "NumThreads": THREADS,
        "DurationHistogram": histogram | {"Avg": exported.mean_s},
        "ErrorsDurationHistogram": {"Count": 0},
        "Uniform": True,
        "RetCodes": {"200": len(latency)},
        "SocketCount": THREADS,
    }
    path.with_suffix(".json").write_text(json.dumps(result))
    return duration_s


def used(program: str, log: Path, out: Path, duration_s: float) -> tuple[float, float]:
    """CPU seconds and peak MB of a program, imports included."""
    for name, value in {"rps": RPS, "threads": THREADS, "duration_s": duration_s}.items():
        program = program.replace(f"{{{name}}}", str(value))
    child = subprocess.Popen([sys.executable, "-c", f"log, out = {str(log)!r}, {str(out)!r}\n{program}"])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, program
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def main() -> None:
    """Print a table."""
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory(prefix="meshtrial-") as folder:
        log = Path(folder) / "measure-g1.log"
        # In a process of its own: what a parent holds counts as the peak of the programs that it starts.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            duration_s = pool.submit(write_log, log, lines).result()
        print(f"{lines:,} lines, {log.stat().st_size / 1e9:.2f} GB, {os.cpu_count()} cores, {os.uname().machine}")
        first = 0.0
        for name, program in PROGRAMS.items():
            if name == "DuckDB" and importlib.util.find_spec("duckdb") is None:
                print(f"{name:<26} is not here")
                continue
            cpu_s, peak_mb = used(program, log, Path(folder) / "out.parquet", duration_s)
            first = first or cpu_s
            print(f"{name:<26} {cpu_s:6.1f} s CPU ({cpu_s / first:.2f} of the first), {peak_mb:6.0f} MB at the peak")


if __name__ == "__main__":
    main()
