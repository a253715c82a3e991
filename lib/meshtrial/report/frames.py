"""Small data frames and selections of verdict rows, as figures and tables need them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import multimode
from typing import Any

from meshtrial.design.load import CapacitySearch
from meshtrial.design.responses import REGISTRY
from meshtrial.lazy import pl
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import palette, wording
from meshtrial.vocabulary import BETWEEN


def order(data: StudyData, present: Iterable[str]) -> list[str]:
    """Return treatments in display order: baseline, twin, the others as planned, unknown names last."""
    return _ordered(palette.looks(data.plan.study), present)


def _ordered(looks: Iterable[str], present: Iterable[str]) -> list[str]:
    names, seen = list(looks), set(present)
    return [name for name in names if name in seen] + sorted(seen - set(names))


def letter(place: int) -> str:
    """Return a study's name in figures and tables of several: A to Z, then its number."""
    return chr(ord("A") + place) if place < 26 else str(place + 1)


def loads(data: StudyData) -> list[str]:
    """Return the labels of the loads in planned order."""
    return [load.label for load in data.plan.study.loads]


def at(data: StudyData, load: str) -> str:
    """Return `` at LOAD`` in a study of several loads, else nothing."""
    return f" at {load}" if load_title(data, load) else ""


def load_title(data: StudyData, load: str) -> str:
    """Return the load as a panel's heading in a study of several loads, else nothing."""
    return load if len(data.plan.study.loads) > 1 else ""


def panel_title(*parts: str) -> str:
    """Join the parts of a heading that are not empty."""
    return " · ".join(filter(None, parts))


def by_treatment(data: StudyData, rows: pl.DataFrame) -> Iterator[tuple[palette.TreatmentStyle, pl.DataFrame]]:
    """Yield each treatment's style and rows in display order."""
    looks = palette.looks(data.plan.study)
    for name in order(data, rows["treatment"].to_list()):
        yield looks[name], rows.filter(treatment=name)


def with_unit(name: str) -> str:
    """Return the name of a response with its unit, for an axis or a column: ``p50 latency / ms``."""
    return f"{wording.short_label(name)} / {wording.unit(name)}".removesuffix(" / ")


def last_rate(data: StudyData) -> str:
    """Return the last load that is not a capacity search, usually the one with the highest rate; "" for none."""
    return next((load.label for load in reversed(data.plan.study.loads) if not isinstance(load, CapacitySearch)), "")


def runs_of(data: StudyData, response: str, *, included: bool = True) -> pl.DataFrame:
    """Return the rows of one response in the order of the runs."""
    wanted = (pl.col("response") == response) & pl.col("value").is_not_null()
    return data.table.filter(wanted & pl.col("included") if included else wanted).sort("sequence", "attempt")


def verdicts(data: StudyData) -> list[VerdictRow]:
    """Return the verdict rows, ordered by load, response (primary ones first) and treatment."""
    study = data.plan.study
    names = (loads(data), dict.fromkeys((*study.primary, *REGISTRY)), palette.looks(study))
    orders = [{name: place for place, name in enumerate(each)} for each in names]

    def sort_key(row: VerdictRow) -> list[int]:
        named = zip(orders, (row.load, row.response, row.treatment), strict=True)
        return [known.get(name, len(known)) for known, name in named]

    return sorted(data.verdicts, key=sort_key)


@dataclass(frozen=True)
class Contrasts:
    """Verdict rows of a study or a comparison, with what figures and tables of them need to know."""

    rows: tuple[VerdictRow, ...]  # in display order
    looks: palette.Styles  # of every treatment, in display order
    loads: tuple[str, ...]  # labels in order
    # (load, response, treatment) of rows without a verdict because valid runs did not record the response.
    unreported: frozenset[tuple[str, str, str]] = frozenset()
    sample_floor: float = 0.0  # number of a run's requests that must lie beyond a percentile

    def where(self, condition: Callable[[VerdictRow], bool]) -> Contrasts:
        """Return these contrasts with only the rows that meet a condition."""
        return replace(self, rows=tuple(row for row in self.rows if condition(row)))

    def reported(self, row: VerdictRow) -> bool:
        """Whether the response of a row was recorded."""
        return (row.load, row.response, row.treatment) not in self.unreported

    @property
    def baselines(self) -> list[str]:
        """The distinct baselines of all rows."""
        return list(dict.fromkeys(row.baseline for row in self.rows))

    @cached_property
    def confidence(self) -> float | None:
        """The most frequent confidence of the intervals, or None if there are no intervals."""
        return next(iter(multimode(row.confidence for row in self.rows if row.confidence is not None)), None)

    @cached_property
    def counted(self) -> str:
        """What `n_blocks` counts: blocks, sessions or runs."""
        return next((row.counted for row in self.rows if row.n_blocks), "blocks")

    @cached_property
    def blocks(self) -> int | None:
        """The most frequent number of blocks, or None if no row has any."""
        return next(iter(multimode(row.n_blocks for row in self.rows if row.n_blocks)), None)

    def title(self, row: VerdictRow, *subject: str, to: str = "against") -> str:
        """Return a panel's heading: its subject, with load and baseline if there are several of them."""
        load = row.load if len(self.loads) > 1 else ""
        return panel_title(load, *subject, f"{to} {row.baseline}" if len(self.baselines) > 1 else "")

    def panels(self, *fields: str) -> list[Contrasts]:
        """Group the rows by the values of these fields, in order of appearance."""
        groups: dict[tuple[object, ...], list[VerdictRow]] = {}
        for row in self.rows:
            groups.setdefault(tuple(getattr(row, field) for field in fields), []).append(row)
        return [replace(self, rows=tuple(rows)) for rows in groups.values()]

    @property
    def treatments(self) -> list[str]:
        """The treatments of the rows in display order, unknown names last."""
        return _ordered(self.looks, (row.treatment for row in self.rows))


def contrasts(
    data: StudyData,
    *,
    load: str | None = None,
    response: str | None = None,
    primary: bool | None = None,
    between: bool | None = None,
) -> Contrasts:
    """Return a study's matching verdict rows.

    `primary` selects declared responses (True) or all others (False), `between` all pairs of treatments or the rest.
    """
    study = data.plan.study
    rows = tuple(
        row
        for row in verdicts(data)
        if load in (None, row.load)
        and response in (None, row.response)
        and primary in (None, row.response in study.primary)
        and between in (None, row.family == BETWEEN)
    )
    named = ((row.load, row.response, row.treatment) for row in rows if not row.n_blocks)
    missing = frozenset(one for one in named if lacks(data, *one))
    return Contrasts(rows, palette.looks(study), tuple(loads(data)), missing, study.gates.sample_floor)


def differences(row: VerdictRow, scale: float | None = None) -> tuple[float | None, float | None, float | None]:
    """Return the added amount of a row and its interval, in the response's display unit or times `scale`."""
    times = wording.response_of(row).scale if scale is None else scale
    amounts = (row.difference, row.difference_low, row.difference_high)
    middle, low, high = (None if value is None else value * times for value in amounts)
    return middle, low, high


def effect(row: VerdictRow) -> tuple[float | None, float | None, float | None]:
    """Return the effect that decides a row's verdict and its interval: an added amount or a ratio."""
    return differences(row) if row.by_difference else (row.ratio, row.ci_low, row.ci_high)


def lacks(data: StudyData, load: str, response: str, treatment: str) -> bool:
    """Whether a treatment has included runs at a load, and none of them recorded the response."""
    runs = data.table.filter(pl.col("included"), load=load, treatment=treatment)
    return not runs.is_empty() and response not in runs["response"].to_list()


def usage(data: StudyData) -> pl.DataFrame:
    """Return one row per included run and component: CPU seconds per request, cores, PSS."""
    rows = []
    for run in data.included_runs():
        requests = run.responses.get("requests")
        requests = float(sum(one.requests for one in run.generators)) if requests is None else requests
        rows += [
            (
                *(run.load, run.treatment, run.run_id, used.role, used.component, used.count),
                used.cpu_s / requests if requests else None,
                used.cpu_s / used.window_s if used.window_s > 0 else None,
                used.pss_bytes,
                used.throttled_s,
            )
            for used in run.usage
        ]
    schema: dict[str, Any] = dict.fromkeys(("load", "treatment", "run_id", "role", "component"), pl.String)
    schema |= {"count": pl.Int64, "cpu_s_per_request": pl.Float64, "cpu_cores": pl.Float64}
    schema |= {"pss_bytes": pl.Int64, "throttled_s": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def blocks_of(data: StudyData, load: str | None = None) -> tuple[int, int]:
    """Return the blocks used and the blocks planned at a load; without a load, those of the load with fewest."""
    used = data.table.filter("included")
    kept = [used.filter(load=name)["block"].n_unique() for name in (loads(data) if load is None else [load])]
    return min(kept, default=0), data.plan.study.blocks
