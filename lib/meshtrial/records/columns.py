"""The columns of every table, declared once, for Parquet files, exports and frames of the public functions."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from meshtrial.errors import RecordError
from meshtrial.lazy import pl
from meshtrial.records.schema import RunRecord, VerdictRow
from meshtrial.typed import shortened
from meshtrial.vocabulary import VerdictLabel, Warning


@dataclass(frozen=True)
class Column:
    """One column."""

    type_name: str  # of polars, or a name in `_NESTED`
    meaning: str = ""
    unit: str = ""  # empty where there is none; `response` where it is that of the row's response

    @property
    def kind(self) -> Any:
        """The polars data type."""
        return _NESTED[self.type_name]() if self.type_name in _NESTED else getattr(pl, self.type_name)


class Kinds(UserDict[str, Any]):
    """The polars data types of columns by name, looked up when they are asked for: declaring tables needs no polars."""

    def __getitem__(self, name: str) -> Any:
        return self.data[name].kind


_NESTED: dict[str, Callable[[], Any]] = {
    "List(String)": lambda: pl.List(pl.String),
    "List(Warning)": lambda: pl.List(pl.Struct({"code": pl.String, "message": pl.String})),
}
_RUN: dict[str, Column] = {
    "run_id": Column("String", "name of the planned run: load (if the study has several), block, position, treatment"),
    "load": Column("String", "label of the load"),
    "block": Column("Int32", "number of the block, from 1; runs of one block are compared with each other"),
    "position": Column("Int32", "position within the block, from 1"),
    "sequence": Column("Int32", "position in the whole plan, from 0"),
    "treatment": Column("String", "data plane and features, e.g. sidecar+mtls"),
    "app": Column("String", "application behind the data plane"),
    "attempt": Column("Int32", "1, or 2 for the only repeat of a failed run, in the same block"),
    "start_unix_s": Column("Float64", "start of the run, in Unix time", "s"),
    "valid": Column("Boolean", "whether all checks of the load and of the treatment passed"),
    "included": Column("Boolean", "whether the run is used in the inference"),
}
RUNS: dict[str, Column] = _RUN | {
    "deploy_s": Column("Float64", "time from the start of the deployment until it is ready", "s"),
    "requests": Column("Int64", "requests sent in the measured time"),
    "errors": Column("Int64", "requests that failed"),
    "achieved_rps": Column("Float64", "achieved rate of all generators together", "1/s"),
    "reasons": Column("List(String)", "reasons why the run is invalid"),
}
RESPONSES: dict[str, Column] = _RUN | {
    "response": Column("String", "name of the response, e.g. latency_p50_s"),
    "value": Column("Float64", "value of the response in SI base units: seconds, bytes, cores, 1/s", "response"),
    "bound": Column("Float64", "resolution of a latency from a histogram or a coarse clock", "s"),
}
REQUESTS: dict[str, Column] = {
    "slice": Column(
        "Int32", "number of the slice, from 0 (a deployment is measured in slices, interleaved with others)"
    ),
    "generator": Column("Int32", "number of the process or pod that sent the request, from 0"),
    "thread": Column("Int32", "number of the generator's connection, from 0"),
    "iter": Column("Int64", "number of the request on its connection, from 0"),
    "scheduled_start_s": Column(
        "Float64", "scheduled time of sending, after the run's start; null in a closed loop", "s"
    ),
    "actual_start_s": Column("Float64", "time of sending, after the run's start", "s"),
    "latency_s": Column("Float64", "time from sending to the response", "s"),
    "corrected_latency_s": Column(
        "Float64", "latency, plus the wait if its connection was still busy at the scheduled time", "s"
    ),
    "ok": Column("Boolean", "whether the response was as expected; null if unknown"),
    "code": Column(
        "String", "HTTP status or gRPC status name; without a response, time-out, refused, reset or no answer"
    ),
    "imputed": Column(
        "Boolean", "whether the request was scheduled but never sent; its corrected latency is an estimate"
    ),
}
SERIES: dict[str, Column] = {
    "slice": Column(
        "Int32", "number of the slice, from 0 (a deployment is measured in slices, interleaved with others)"
    ),
    "second": Column("Int32", "second after the start of the slice, from 0", "s"),
    "component": Column("String", "component of the deployment; empty for measures of the requests"),
    "measure": Column(
        "String", "of requests: sent, failed, failed KIND, p50_s, p90_s, p99_s; of components: cpu_cores, memory_bytes"
    ),
    "value": Column("Float64", "value in the measure's unit; a quantile is that of the requests sent in this second"),
}
_KINDS: dict[Any, str] = {
    str: "String",
    VerdictLabel: "String",
    bool: "Boolean",
    int: "Int64",
    float: "Float64",
    int | None: "Int64",
    float | None: "Float64",
    tuple[Warning, ...]: "List(Warning)",
}


def _declared_by(row: type) -> dict[str, Column]:
    """Return the columns of a dataclass whose fields are annotated with their meaning and, where it exists, a unit."""
    hints = {name: get_args(hint) for name, hint in get_type_hints(row, include_extras=True).items()}
    return {name: Column(_KINDS[hint], meaning, "".join(unit)) for name, (hint, meaning, *unit) in hints.items()}


VERDICTS = _declared_by(VerdictRow)
FRAMES: dict[str, dict[str, Column]] = {
    "verdicts": VERDICTS,
    "runs": RUNS,
    "responses": RESPONSES,
    "requests": REQUESTS,
    "series": SERIES,
}


def kinds_of(row: type) -> Kinds:
    """Return the types of the columns that a dataclass's fields become."""
    return Kinds({name: Column(_KINDS[hint]) for name, hint in get_type_hints(row).items()})


def run_columns(run: RunRecord, included: bool) -> dict[str, Any]:
    """Return a run's columns in a row of :data:`RUNS` or :data:`RESPONSES`."""
    known = vars(run) | {"block": run.repetition, "included": included}
    return {name: known[name] for name in _RUN}


def frame_of(rows: Sequence[Mapping[str, Any]], described: Mapping[str, Column]) -> pl.DataFrame:
    """Return rows as a frame of exactly these columns."""
    return pl.DataFrame({name: [row[name] for row in rows] for name in described}, schema=Kinds(described))


def verdict_frame(rows: Sequence[VerdictRow]) -> pl.DataFrame:
    """Return verdict rows as a frame of all their columns."""
    return frame_of([row.to_dict() for row in rows], VERDICTS)


def write_requests(requests: pl.DataFrame, path: Path) -> None:
    """Write every request as Parquet, piece by piece, so that memory never holds a second copy of all."""
    texts = [name for name, kind in requests.schema.items() if kind == pl.Categorical]
    requests.lazy().with_columns(pl.col(texts).cast(pl.String)).sink_parquet(path, compression="zstd")


def read_frame(path: Path, next_step: str = "restore it from a backup") -> pl.DataFrame:
    """Return a Parquet file's content; RecordError with its name, the reason and the next step if it is unreadable."""
    try:
        return pl.read_parquet(path, glob=False, hive_partitioning=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = shortened(str(error).partition("\n")[0], 120)
        raise RecordError(f"{path}: cannot be read ({reason}); {next_step}") from None
