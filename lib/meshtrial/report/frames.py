"""From a recorded study to the small tables that figures draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import multimode
from typing import Any

import polars as pl

from meshtrial.design.responses import REGISTRY
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord, VerdictRow
from meshtrial.report import palette, wording


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


def at(data: StudyData, load: str) -> str:
    """Where a study has several loads: at which."""
    return f" at {load}" if len(data.plan.study.loads) > 1 else ""


def load_title(data: StudyData, load: str) -> str:
    """A panel's heading where a study has several loads."""
    return load if len(data.plan.study.loads) > 1 else ""


def panel_title(*parts: str) -> str:
    """Headings put together, without the empty ones."""
    return " · ".join(filter(None, parts))


def by_treatment(data: StudyData, rows: pl.DataFrame) -> Iterator[tuple[palette.TreatmentStyle, pl.DataFrame]]:
    """The rows of each treatment with its look, in the order in which figures list them."""
    looks = palette.looks(data.plan.study)
    for name in order(data, rows["treatment"].to_list()):
        yield looks[name], rows.filter(treatment=name)


def with_unit(name: str) -> str:
    """A response as an axis or a column names it: ``p50 latency / ms``."""
    return f"{wording.short_label(name)} / {wording.unit(name)}".removesuffix(" / ")


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
    data: StudyData, *, load: str | None = None, response: str | None = None, twin: bool | None = None
) -> list[VerdictRow]:
    """Verdict rows that match, in the order of loads, primary responses and treatments."""
    listed = list(dict.fromkeys((*data.plan.study.primary, *REGISTRY)))
    orders = [{name: place for place, name in enumerate(names)} for names in (loads(data), listed, order(data))]

    def place(row: VerdictRow) -> list[int]:
        named = zip(orders, (row.load, row.response, row.treatment), strict=True)
        return [known.get(name, len(known)) for known, name in named]

    wanted = {"load": load, "response": response, "twin": twin}
    asked = {field: value for field, value in wanted.items() if value is not None}
    found = (row for row in data.verdicts if all(getattr(row, field) == value for field, value in asked.items()))
    return sorted(found, key=place)


@dataclass(frozen=True)
class Contrasts:
    """Verdict rows with what a figure or a table of them needs to know, of a study or of a comparison."""

    rows: tuple[VerdictRow, ...]  # in the order in which they are shown
    looks: palette.Styles  # of every treatment, in the order in which figures list them
    loads: tuple[str, ...]  # labels, in order
    # Load, response and treatment of what has no verdict because good runs did not record it.
    unreported: frozenset[tuple[str, str, str]] = frozenset()
    sample_floor: float = 0.0  # requests of a run that must lie beyond a percentile
    counted: str = "blocks"  # what `n_blocks` counts: blocks, or runs

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

    @cached_property
    def confidence(self) -> float | None:
        """Of most intervals."""
        return next(iter(multimode(row.confidence for row in self.rows if row.confidence is not None)), None)

    @cached_property
    def blocks(self) -> int | None:
        """Of most rows."""
        return next(iter(multimode(row.n_blocks for row in self.rows if row.n_blocks)), None)

    def title(self, row: VerdictRow, *what: str, to: str = "against") -> str:
        """A panel's heading: its load where there are several, what it shows, its baseline where there are several."""
        load = row.load if len(self.loads) > 1 else ""
        return panel_title(load, *what, f"{to} {row.baseline}" if len(self.baselines) > 1 else "")

    def panels(self, *fields: str) -> list[Contrasts]:
        """The rows apart by the values of these fields, in the order in which they come."""
        found: dict[tuple[object, ...], list[VerdictRow]] = {}
        for row in self.rows:
            found.setdefault(tuple(getattr(row, field) for field in fields), []).append(row)
        return [replace(self, rows=tuple(rows)) for rows in found.values()]

    @property
    def treatments(self) -> list[str]:
        """Treatments of the rows as figures list them, strangers last."""
        return _ordered(self.looks, (row.treatment for row in self.rows))


def contrasts(
    data: StudyData,
    *,
    load: str | None = None,
    response: str | None = None,
    primary: bool | None = None,
    family: str | None = None,
) -> Contrasts:
    """A study's verdict rows that match; with ``primary`` those of declared responses, or all others."""
    declared = data.plan.study.primary
    rows = tuple(
        row
        for row in verdicts(data, load=load, response=response)
        if (primary is None or (row.response in declared) == primary) and family in (None, row.family)
    )
    missing = frozenset((row.load, row.response, row.treatment) for row in rows if not_reported(data, row))
    floor = data.plan.study.gates.sample_floor
    return Contrasts(rows, palette.looks(data.plan.study), tuple(loads(data)), missing, floor)


def differences(row: VerdictRow, scale: float | None = None) -> tuple[float | None, float | None, float | None]:
    """What a row's treatment adds and the ends of its interval: in the unit of its response, or scaled so."""
    times = wording.response_of(row).scale if scale is None else scale
    middle, low, high = (
        None if value is None else value * times for value in (row.difference, row.difference_low, row.difference_high)
    )
    return middle, low, high


def effect(row: VerdictRow) -> tuple[float | None, float | None, float | None]:
    """The effect that carries a row's verdict and the ends of its interval: what is added, or a ratio."""
    return differences(row) if row.by_difference else (row.ratio, row.ci_low, row.ci_high)


def not_reported(data: StudyData, row: VerdictRow) -> bool:
    """Whether a row has no verdict because its response was not recorded in runs that are otherwise good."""
    if row.n_blocks:
        return False
    runs = data.table.filter(pl.col("included") & (pl.col("load") == row.load) & (pl.col("treatment") == row.treatment))
    return not runs.is_empty() and row.response not in runs["response"].to_list()


def requests_of(run: RunRecord) -> float:
    """Requests that a run measured."""
    recorded = run.responses.get("requests")
    return float(recorded) if recorded is not None else float(sum(g.requests for g in run.generators))


def usage(data: StudyData) -> pl.DataFrame:
    """One row per included run and component: CPU seconds a request, cores, PSS."""
    rows = [
        (
            *(run.load, run.treatment, run.run_id, used.role, used.component, used.count),
            used.cpu_s / requests_of(run) if requests_of(run) else None,
            used.cpu_s / used.window_s if used.window_s > 0 else None,
            used.pss_bytes,
            used.throttled_s,
        )
        for run in data.included_runs()
        for used in run.usage
    ]
    schema: dict[str, Any] = dict.fromkeys(("load", "treatment", "run_id", "role", "component"), pl.String)
    schema |= {"count": pl.Int64, "cpu_s_per_request": pl.Float64, "cpu_cores": pl.Float64}
    schema |= {"pss_bytes": pl.Int64, "throttled_s": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def blocks_of(data: StudyData, load: str | None = None) -> tuple[int, int]:
    """Blocks that take part in the inference, and blocks planned, a load (the smallest where loads differ)."""
    planned = data.plan.study.blocks
    wanted = [load] if load is not None else loads(data)
    kept = [
        data.table.filter(pl.col("included") & (pl.col("load") == name)).get_column("block").n_unique()
        for name in wanted
    ]
    return (min(kept) if kept else 0), planned
