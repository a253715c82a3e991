"""From a recorded study to the small tables that figures draw, and from polars to what seaborn takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from meshtrial.design.responses import REGISTRY
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord, VerdictRow
from meshtrial.report import palette


def for_seaborn(frame: pl.DataFrame) -> dict[str, list[Any]]:
    """What ``sns.*(data=...)`` takes: seaborn 0.13.2 raises TypeError for a polars frame."""
    columns: dict[str, list[Any]] = frame.to_dict(as_series=False)
    return columns


def order(data: StudyData, present: Iterable[str] | None = None) -> list[str]:
    """Treatments as figures and tables list them: baseline, twin, the others as planned, strangers last."""
    names = palette.looks(data.plan.study)
    return list(names) if present is None else _ordered(names, present)


def _ordered(looks: Iterable[str], present: Iterable[str]) -> list[str]:
    names, seen = list(looks), set(present)
    return [name for name in names if name in seen] + sorted(seen - set(names))


def loads(data: StudyData) -> list[str]:
    """Labels of the loads, as planned."""
    return [load.label for load in data.plan.study.loads]


def last_asked(data: StudyData) -> str:
    """The last load at a rate that was asked for and not searched, mostly the highest; empty where there is none."""
    return next((load.label for load in reversed(data.plan.study.loads) if not load.search), "")


def runs_of(data: StudyData, response: str, *, included: bool = True) -> pl.DataFrame:
    """The rows of one response, in the order in which they ran."""
    rows = data.table.filter((pl.col("response") == response) & pl.col("value").is_not_null())
    if included:
        rows = rows.filter(pl.col("included"))
    return rows.sort("sequence", "attempt")


def verdicts(
    data: StudyData,
    *,
    load: str | None = None,
    response: str | None = None,
    exploratory: bool | None = None,
    twin: bool | None = None,
) -> list[VerdictRow]:
    """Verdict rows that match, in the order of loads, primary responses and treatments."""
    found = [
        row
        for row in data.verdicts
        if (load is None or row.load == load)
        and (response is None or row.response == response)
        and (exploratory is None or row.exploratory == exploratory)
        and (twin is None or row.twin == twin)
    ]
    primary = {name: index for index, name in enumerate(data.plan.study.primary)}
    place = {name: index for index, name in enumerate(order(data))}
    listed = {name: index for index, name in enumerate(REGISTRY)}
    load_place = {name: index for index, name in enumerate(loads(data))}
    return sorted(
        found,
        key=lambda r: (
            load_place.get(r.load, len(load_place)),
            primary.get(r.response, len(primary)),
            listed.get(r.response, len(listed)),
            place.get(r.treatment, len(place)),
        ),
    )


@dataclass(frozen=True)
class Contrasts:
    """Verdict rows with what a figure or a table of them needs to know, of a study or of a comparison.

    Attributes
    ----------
    rows : tuple of VerdictRow
        In the order in which they are shown.
    looks : mapping of str to Look
        Of every treatment, in the order in which figures list them.
    loads : tuple of str
        Labels of the loads, in order.
    unreported : frozenset of (load, response, treatment)
        Contrasts without a verdict because the response was not recorded in runs that are otherwise good.
    sample_floor : float
        Requests of a run that must lie beyond a percentile.
    counted : str
        What ``n_blocks`` counts: blocks, or runs.
    """

    rows: tuple[VerdictRow, ...]
    looks: Mapping[str, palette.Look]
    loads: tuple[str, ...]
    unreported: frozenset[tuple[str, str, str]] = frozenset()
    sample_floor: float = 0.0
    counted: str = "blocks"

    def where(self, wanted: Callable[[VerdictRow], bool]) -> Contrasts:
        """Only the rows that are wanted."""
        return replace(self, rows=tuple(row for row in self.rows if wanted(row)))

    def reported(self, row: VerdictRow) -> bool:
        """Whether the response of this row was recorded."""
        return (row.load, row.response, row.treatment) not in self.unreported

    @property
    def baselines(self) -> list[str]:
        """The baselines of all rows, each once."""
        return list(dict.fromkeys(row.baseline for row in self.rows))

    def load_title(self, label: str) -> str:
        """A panel's heading where there are several loads."""
        return label if len(self.loads) > 1 else ""

    def order(self, names: Iterable[str]) -> list[str]:
        """Treatments as figures list them, strangers last."""
        return _ordered(self.looks, names)


def contrasts(
    data: StudyData, *, load: str | None = None, response: str | None = None, primary: bool | None = None
) -> Contrasts:
    """A study's verdict rows that match; with ``primary`` those of declared responses, or all others."""
    declared = data.plan.study.primary
    rows = tuple(
        row
        for row in verdicts(data, load=load, response=response)
        if primary is None or (row.response in declared) == primary
    )
    missing = frozenset((row.load, row.response, row.treatment) for row in rows if not_reported(data, row))
    floor = data.plan.study.gates.sample_floor
    return Contrasts(rows, palette.looks(data.plan.study), tuple(loads(data)), missing, floor)


def not_reported(data: StudyData, row: VerdictRow) -> bool:
    """Whether a row has no verdict because its response was not recorded in runs that are otherwise good."""
    if row.n_blocks or row.ratio is not None:
        return False
    runs = data.table.filter(pl.col("included") & (pl.col("load") == row.load) & (pl.col("treatment") == row.treatment))
    return not runs.is_empty() and row.response not in runs["response"].to_list()


def requests_of(run: RunRecord) -> float:
    """Requests that a run measured."""
    recorded = run.responses.get("requests")
    return float(recorded) if recorded is not None else float(sum(g.requests for g in run.generators))


def usage(data: StudyData) -> pl.DataFrame:
    """A row an included run and component: CPU seconds a request, cores, PSS."""
    rows = [
        {
            "load": run.load,
            "treatment": run.treatment,
            "run_id": run.run_id,
            "role": used.role,
            "component": used.component,
            "count": used.count,
            "cpu_s_per_request": used.cpu_s / requests_of(run) if requests_of(run) else None,
            "cpu_cores": used.cpu_s / used.window_s if used.window_s > 0 else None,
            "pss_bytes": used.pss_bytes,
            "throttled_s": used.throttled_s,
        }
        for run in data.included_runs()
        for used in run.usage
    ]
    schema: dict[str, Any] = {
        "load": pl.String,
        "treatment": pl.String,
        "run_id": pl.String,
        "role": pl.String,
        "component": pl.String,
        "count": pl.Int64,
        "cpu_s_per_request": pl.Float64,
        "cpu_cores": pl.Float64,
        "pss_bytes": pl.Int64,
        "throttled_s": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema)


def blocks_of(data: StudyData, load: str | None = None) -> tuple[int, int]:
    """Blocks that take part in the inference, and blocks planned, a load (the smallest where loads differ)."""
    planned = data.plan.study.blocks
    wanted = [load] if load is not None else loads(data)
    kept = [
        data.table.filter(pl.col("included") & (pl.col("load") == name)).get_column("block").n_unique()
        for name in wanted
    ]
    return (min(kept) if kept else 0), planned
