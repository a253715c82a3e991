"""A recorded study, read back completely, from which statistics and reports are made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from meshtrial.design.plan import Plan
from meshtrial.errors import RecordError, UsageError
from meshtrial.lazy import pl
from meshtrial.records import packed, series
from meshtrial.records.columns import RESPONSES, Kinds, read_frame
from meshtrial.records.schema import RunRecord, VerdictRow, run_folder
from meshtrial.records.tables import Inclusion, include

RUNS_SCHEMA = Kinds(RESPONSES)


@dataclass(frozen=True)
class StudyData:
    """Everything that one study recorded."""

    path: Path  # the study's folder
    plan: Plan
    environment: Mapping[str, Any]  # `environment.json`
    runs: tuple[RunRecord, ...]  # every attempt of every run, in the order of the plan
    # `runs.parquet`: one row per run and response, with the columns `RUNS_SCHEMA`. `included` is whether the run takes
    # part in the inference.
    table: pl.DataFrame
    verdicts: tuple[VerdictRow, ...] = ()  # `verdicts.json`; empty before the analysis

    @cached_property
    def inclusions(self) -> Mapping[str, Inclusion]:
        """For each load, the runs that take part in the inference, and those that excluded treatments and blocks."""
        return {load.label: include(self.plan, self.runs, load.label) for load in self.plan.study.loads}

    def find_run(self, run_id: str, attempt: int = 1) -> RunRecord:
        """Return one attempt of a run.

        UsageError when there is none.
        """
        for run in self.runs:
            if (run.run_id, run.attempt) == (run_id, attempt):
                return run
        raise UsageError(f"run {run_id!r}, attempt {attempt}: no such run; study.runs() lists those there are")

    def run_folder(self, run: RunRecord) -> Path:
        """Return the folder of a run's raw data."""
        return run_folder(self.path, run.run_id, run.attempt)

    def latency(self, run: RunRecord) -> pl.DataFrame:
        """Return one row per request, with the columns of `columns.REQUESTS`."""
        path = self.run_folder(run) / "latency.parquet"
        if "requests" in packed.left_out(self.path) and not path.exists():
            raise RecordError(f"{self.path.name}: its requests were left out when it was packed")
        return read_frame(path)

    def series(self, run: RunRecord) -> pl.DataFrame:
        """Return the run second by second, with the columns :data:`meshtrial.records.series.COLUMNS`.

        For a run that was recorded without a series it is made from the requests; without these it is empty.
        """
        path = self.run_folder(run) / series.FILE
        if path.exists():
            return read_frame(path)
        try:
            return series.of_requests(self.latency(run))
        except RecordError:
            return series.empty()

    def courses(self, runs: Sequence[RunRecord]) -> pl.DataFrame:
        """Return `series` of several runs in one frame, with the index of each in the column ``run``.

        Thousands of small files are read together, because reading them singly took most of a large report's time.
        """
        places = {str(self.run_folder(run) / series.FILE): place for place, run in enumerate(runs)}
        there = {path for path in places if Path(path).exists()}
        frames = [
            self.series(run).with_columns(pl.lit(place, pl.Int32).alias("run"))
            for (path, place), run in zip(places.items(), runs, strict=True)
            if path not in there
        ]
        if there:
            frames.append(_read_together(sorted(there), places))
        return pl.concat(frames) if frames else series.empty().with_columns(pl.lit(0, pl.Int32).alias("run"))

    def logs(self, run: RunRecord) -> dict[str, Path]:
        """Return the kept logs of a run by name.

        RecordError if they were left out of a packed study.
        """
        folder = self.run_folder(run) / "logs"
        if "logs" in packed.left_out(self.path) and not folder.is_dir():
            raise RecordError(f"{self.path.name}: its logs were left out when it was packed")
        return {path.name: path for path in sorted(folder.glob("*")) if path.is_file()}

    @property
    def began_unix_s(self) -> float | None:
        """When the first run began; None before there is one."""
        return min((run.start_unix_s for run in self.runs), default=None)

    def included_runs(self) -> tuple[RunRecord, ...]:
        """Return the runs that take part in the inference."""
        kept = self.table.filter(pl.col("included")).select("run_id", "attempt").unique()
        keys = set(kept.iter_rows())
        return tuple(run for run in self.runs if (run.run_id, run.attempt) in keys)


def _read_together(paths: Sequence[str], places: Mapping[str, int]) -> pl.DataFrame:
    """Return the series of these files; RecordError names one that cannot be read."""
    try:
        whole = pl.read_parquet(list(paths), include_file_paths="path", glob=False, hive_partitioning=False)
    except (OSError, pl.exceptions.PolarsError):
        whole = pl.concat([read_frame(Path(path)).with_columns(pl.lit(path).alias("path")) for path in paths])
    place = pl.col("path").replace_strict(places, return_dtype=pl.Int32).alias("run")
    return whole.select(*(pl.col(name).cast(kind) for name, kind in series.COLUMNS.items()), place)


def subset(data: StudyData, treatments: Sequence[str] = (), loads: Sequence[str] = ()) -> StudyData:
    """Return the rows, runs and verdicts of some treatments and loads, for display; verdicts are always of the whole.

    The treatments' baselines are kept, and so are the study's baseline and its twin. UsageError for a treatment or load
    that the study does not have.
    """
    study = data.plan.study
    named = [treatment.name for treatment in study.treatments]
    labels = [load.label for load in study.loads]
    _known("treatment", treatments, named)
    _known("load", loads, labels)
    kept = set(treatments or named) | {study.baseline.name, *([study.twin.name] if study.twin else [])}
    kept |= {row.baseline for row in data.verdicts if row.treatment in kept}
    at = set(loads or labels)
    # The plan keeps all treatments, so that a treatment keeps its colour and a family its size.
    plan = replace(
        data.plan,
        study=replace(study, loads=tuple(load for load in study.loads if load.label in at)),
        runs=tuple(run for run in data.plan.runs if run.treatment in kept and run.load in at),
    )
    return replace(
        data,
        plan=plan,
        runs=tuple(run for run in data.runs if run.treatment in kept and run.load in at),
        table=data.table.filter(pl.col("treatment").is_in(sorted(kept)), pl.col("load").is_in(sorted(at))),
        verdicts=tuple(row for row in data.verdicts if row.treatment in kept and row.load in at),
    )


def _known(what: str, asked: Collection[str], there: Sequence[str]) -> None:
    for name in asked:
        if name not in there:
            raise UsageError(f"{what} {name!r}: is not in this study; there are {', '.join(there)}")
