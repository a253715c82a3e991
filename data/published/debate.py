"""The rows of ``debate_2025.csv``, from the raw files of the sidecar debate.

    python data/published/debate.py FOLDER      # a checkout of github.com/BuoyantIO/great-sidecar-debate

Opinion: a run is one number per response. Its percentiles are of the requests of all its load generators: the counts
that wrk2 prints are merged as `meshtrial compare --merge` does. Its CPU and memory are means over the samples under
load. A sample is under load if the CPU of the application is above half of its maximum in the run. The first and the
last of these are left out, because the metrics API reports late.
Limits: the counts are known per line of wrk2's spectrum, so a merged median is known to about 10 %. The metrics API
has a new value about every 30 s, so a mean is of about nine values. Time zones are not in the files.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import polars as pl

import meshtrial as mt

Row: TypeAlias = dict[str, Any]
Run: TypeAlias = tuple[str, int, int]  # folder, requests per second, number

COMMIT = "8d032dba87a3"
SOURCE = 'Flynn, "The Story Behind the Great Sidecar Debate", raw data V1, 2025 (Linkerd edge-25.4.1, Istio 1.25.0)'
URL = f"https://github.com/BuoyantIO/great-sidecar-debate/tree/{COMMIT}/V1/Data"
TREATMENTS = {"linkerd": "linkerd", "ambient": "ambient", "linkerd-2": "linkerd-aa"}  # by folder
# Column of the metrics, unit, and what one unit is in the column.
USAGE = {
    "mesh_cpu": ("mesh CPU", "cores", 1e9),
    "data_plane_cpu": ("data-plane CPU", "cores", 1e9),
    "data_plane_memory": ("data-plane mem", "MiB", 2.0**20),
}
PERCENTILES = ("p50", "p99")
_METRICS = re.compile(r"(\d+)-(\d+)-metrics\.csv")


def rows(checkout: Path) -> list[Row]:
    """Return one row per run and response; MeshtrialError if the checkout does not have the raw files."""
    data = checkout / "V1" / "Data"
    runs = sorted(
        (folder, int(found[1]), int(found[2]))
        for folder in TREATMENTS
        for path in data.glob(f"{folder}/*")
        if (found := _METRICS.fullmatch(path.name))
    )
    wanted = [f"{folder}/{rps}-{number}-wrk2-*.log" for folder, rps, number in runs]
    wanted += [f"{folder}/RATE-RUN-metrics.csv" for folder in TREATMENTS if folder not in {run[0] for run in runs}]
    for pattern in wanted:
        if not any(data.glob(pattern)):
            raise mt.MeshtrialError(
                f"{data}: has no {pattern}; give the folder of a checkout of github.com/BuoyantIO/great-sidecar-debate"
            )
    latencies: dict[Run, dict[str, float]] = {}
    for rps in {run[1] for run in runs}:
        latencies |= _latencies(data, [run for run in runs if run[1] == rps])
    order = sorted(runs, key=lambda run: (run[1], [*TREATMENTS].index(run[0]), run[2]))
    return [row for run in order for row in _rows(data, run, latencies[run], sum(r[:2] == run[:2] for r in runs))]


def _latencies(data: Path, runs: Sequence[Run]) -> dict[Run, dict[str, float]]:
    """Return the percentiles of runs at one rate, in seconds."""
    with TemporaryDirectory() as temporary:
        for folder, rps, number in runs:
            # Files are merged by folder.
            own = Path(temporary, folder, str(number))
            own.mkdir(parents=True)
            for log in data.glob(f"{folder}/{rps}-{number}-wrk2-*.log"):
                shutil.copy(log, own)
        patterns = {folder: f"{temporary}/{folder}/*/*.log" for folder in TREATMENTS}
        baseline = next(iter(patterns))
        merged = mt.compare(
            patterns.pop(baseline), patterns, responses=",".join(PERCENTILES), merge=True, name=baseline
        )
    return {
        (run.treatment, runs[0][1], int(Path(run.name).name)): {
            name: run.responses[f"latency_{name}_s"] for name in PERCENTILES
        }
        for run in merged.outcome.sample.runs
    }


def _rows(data: Path, run: Run, latencies: dict[str, float], count: int) -> Iterator[Row]:
    folder, rps, number = run
    began, usage = _usage(data / folder / f"{rps}-{number}-metrics.csv")
    values = [(name, usage[column], unit, per) for name, (column, unit, per) in USAGE.items()]
    values += [(name, latencies[name], "ms", 1e-3) for name in PERCENTILES]
    for name, value, unit, per in values:
        yield {
            "experiment": f"debate, {rps} rps",
            "treatment": TREATMENTS[folder],
            "run": f"{folder}-{number}",
            "block": None,
            "response": name,
            "value": f"{value / per:.4g}",
            "unit": unit,
            "statistic": f"one of {count} runs" + ("; mean under load" if name in USAGE else ""),
            "rps": rps,
            "connections": 600,
            "place": f"{folder}/{rps}-{number}-*",
            "source": SOURCE,
            "url": URL,
            "note": f"began {began}",
        }


def _usage(metrics: Path) -> tuple[str, dict[str, float]]:
    """Return when a run began, and the mean of each column of `USAGE` over its samples under load."""
    needed = ["timestamp", "faces CPU", *(column for column, _, _ in USAGE.values())]
    try:
        samples = pl.read_csv(metrics, columns=needed)
        loaded = samples.filter(pl.col("faces CPU") > pl.col("faces CPU").max() / 2)[1:-1]
    except pl.exceptions.PolarsError:
        loaded = pl.DataFrame()
    if loaded.is_empty():
        raise mt.MeshtrialError(
            f"{metrics}: is not a table of samples under load with {', '.join(needed)}; get the checkout again"
        )
    return str(samples["timestamp"][0]), {column: float(loaded[column].to_numpy().mean()) for column in needed[1:]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write ``debate_2025.csv`` beside this file, or where ``--out`` says."""
    parser = argparse.ArgumentParser(description="Write debate_2025.csv from the raw files of the sidecar debate.")
    parser.add_argument("checkout", type=Path, help="folder of a checkout of github.com/BuoyantIO/great-sidecar-debate")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("debate_2025.csv"), help="the file")
    options = parser.parse_args(arguments)
    try:
        pl.DataFrame(rows(options.checkout)).write_csv(options.out)
    except mt.MeshtrialError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
