"""A large access log read, sorted and written as Parquet: CPU and memory beside what else could do it, in one run.

``PYTHONPATH=docs:lib:tests .venv/bin/python -P -m benchmarks.access_log [LINES]``; ten million lines are 1.04 GB and
take some minutes. Each program is a process of its own. DuckDB takes part where it can be imported, which the project
itself does not need (``pip install --target DIR duckdb``, then DIR in ``PYTHONPATH``). The whole run is what a study
does besides: planned starts, corrected latencies, the result's histogram held against the log, and quantiles.
"""

import importlib.util
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
from benchmarks.table import Row, main, used

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
from meshtrial.design.load import Load
from meshtrial.load.generators import GeneratorOutput
from meshtrial.load.ingest import ingest
from meshtrial.records.columns import write_requests
from meshtrial.records.schema import ComponentUsage
usage = ComponentUsage("g", "load generator", 1.0, 1.0, None)
output = GeneratorOutput("g", ("fortio", "-r", "0.000001"), 0, Path(log).with_suffix(".json"), Path(log), "", usage)
measured = ingest([output], Load({rps}, {threads}, {duration_s}), 100)
assert measured.notes == (), measured.notes
write_requests(measured.requests, Path(out))
""",
}


def write_log(path: Path, lines: int) -> float:
    """Write the log and the result that fortio would leave of ``lines`` requests; return the duration in seconds."""
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


def command(program: str, log: Path, out: Path, duration_s: float) -> list[str]:
    """What runs a program, imports included."""
    for name, value in {"rps": RPS, "threads": THREADS, "duration_s": duration_s}.items():
        program = program.replace(f"{{{name}}}", str(value))
    return [sys.executable, "-c", f"log, out = {str(log)!r}, {str(out)!r}\n{program}"]


def rows(lines: str = "10000000") -> Iterator[Row]:
    """Ours beside each of the others; those that are not here are said."""
    found: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="meshtrial-") as folder:
        log = Path(folder) / "measure-g1.log"
        # In a process of its own: what a parent holds counts as the peak of the programs that it starts.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            duration_s = pool.submit(write_log, log, int(lines)).result()
        size = f"{int(lines):,} lines, {log.stat().st_size / 1e9:.2f} GB"
        for name, program in PROGRAMS.items():
            if name != "DuckDB" or importlib.util.find_spec("duckdb") is not None:
                found[name] = used(command(program, log, Path(folder) / "out.parquet", duration_s))
    for ours in ("meshtrial", "meshtrial, the whole run"):
        for other in ("DuckDB", "polars"):
            work = f"access log, {size}" if ours == "meshtrial" else "with schedule and quantiles"
            cpu, memory = (f"{found[ours][0]:.1f} s of CPU", f"{found[ours][1]:,.0f} MB")
            if other not in found:
                yield Row(work, f"{cpu}, {memory}", f"{other} is not installed")
                continue
            yield Row(work, cpu, f"{other}: {found[other][0]:.1f} s", found[ours][0] / found[other][0])
            yield Row(work, memory, f"{other}: {found[other][1]:,.0f} MB", found[ours][1] / found[other][1])


if __name__ == "__main__":
    main(rows)
