"""How many blocks a margin needs on this machine, from a study that was recorded on it.

Opinion: the relevant noise is that of a real contrast's block differences, so every contrast has its own line, and the
plan is made for the noisiest one by the upper limit of its noise. Formulas: `meshtrial.stats.power`. A slice averages
out what varies inside a deployment, never what varies between two (Kalibera & Jones 2013, section 6.2). Both parts are
known only if each deployment was measured in several slices.
"""

import dataclasses
import datetime
import math
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from meshtrial import paths, stats
from meshtrial.design.load import SlicedLoad
from meshtrial.design.responses import QUANTILES, Response
from meshtrial.errors import RecordError, UsageError
from meshtrial.inference.gate import declared_by
from meshtrial.inference.values import FloatArray, LoadBlocks
from meshtrial.load.quantiles import exact, successful
from meshtrial.margin import Margin
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.records.tables import Inclusion, runs_table

_SLICED = re.compile(r"latency_(?P<corrected>corrected_)?(?P<what>p\d+|mean)_s")


@dataclass(frozen=True)
class BlocksNeeded:
    """What one contrast needs."""

    treatment: str
    baseline: str
    twin: bool  # whether it is the A/A contrast, the machine's own noise
    blocks: int  # complete blocks behind the noise
    scale: stats.Scale  # of the planned verdicts, as the study declared it
    # Standard deviation of the block differences, of logs or as a share of the baseline's median. Its upper confidence
    # limit (70 %) is used for planning.
    sd: float
    margin: float  # as a share of the baseline
    # Blocks that find an effect of the margin's size, or show equivalence if there is none
    difference: int
    equivalence: int
    # Smallest effect, as a share of the baseline, that the recorded blocks find; None below the floor
    visible: float | None


@dataclass(frozen=True)
class Slices:
    """How to divide a deployment's time into slices."""

    # Slices per deployment in the study, and the cheapest number
    recorded: int
    best: int
    # Variance on the scale of the noise: between deployments of a block, and between the slices of one
    between: float
    within: float
    # Time of a deployment without its slices, and of a slice
    outer_s: float
    inner_s: float
    # Number of slices to the blocks that they need and the seconds that these take
    options: Mapping[int, tuple[int, float]]


@dataclass(frozen=True)
class LoadPlan:
    """What one load of the study shows."""

    load: str
    needs: tuple[BlocksNeeded, ...]
    seconds_per_block: float
    repeats: float
    treatments: int
    slices: Slices | None
    slices_reason: str

    @property
    def judged(self) -> tuple[BlocksNeeded, ...]:
        """The contrasts of the family; the A/A twin if nothing else was recorded."""
        return tuple(need for need in self.needs if not need.twin) or self.needs

    @property
    def difference(self) -> int:
        """Blocks that find the noisiest contrast."""
        return max(need.difference for need in self.judged)

    @property
    def equivalence(self) -> int:
        """Blocks that show the noisiest contrast to be equivalent."""
        return max(need.equivalence for need in self.judged)

    def seconds(self, blocks: int) -> float:
        """Return the time of this number of blocks, with the study's share of repeated runs."""
        return blocks * self.seconds_per_block * self.repeats


@dataclass(frozen=True)
class PlanRequest:
    """The request: margin, error level, power, contrasts of the family, nights of a gate."""

    response: Response
    margin: Margin
    alpha: float
    power: float
    contrasts: int
    nights: int = 0  # 0 if the study is no nightly gate


# Share of series of nights in which a gate may fire by chance, for which `--nights` computes the level.
FALSE_ALARMS = 0.05


def read(path: Path) -> StudyData:
    """Read a study's runs and their table; it need not have been analysed."""
    store = StudyStore.open(path.resolve())
    records = store.records()
    if not records:
        raise UsageError(f"{path}: has no run yet; `meshtrial status` lists the recorded studies")
    return StudyData(store.path, store.plan, {}, records, runs_table(store.plan, records))


def plan_of(data: StudyData, ask: PlanRequest) -> tuple[LoadPlan, ...]:
    """Return the plan for every load of the study.

    Raise UsageError if no load has two complete blocks with the response.
    """
    plans = []
    for load in data.plan.study.loads:
        inclusion = data.inclusions[load.label]
        needs = _needs(data, load.label, inclusion, ask)
        if needs:
            plans.append(_load_plan(data, load.label, inclusion, needs, ask))
    if not plans:
        raise UsageError(
            f"{data.path}: has no load with 2 complete blocks of {ask.response.name}; "
            "run a pilot of at least 6 blocks (profile=standard), then plan from it"
        )
    return tuple(plans)


def _needs(data: StudyData, load: str, inclusion: Inclusion, ask: PlanRequest) -> tuple[BlocksNeeded, ...]:
    every, study = LoadBlocks.of(data.table, load, inclusion.blocks), data.plan.study
    scale: stats.Scale = study.scales.get(ask.response.name, "ratio")
    family: dict[str, Any] = {"alpha": ask.alpha, "m": ask.contrasts, "power": ask.power}
    pairs = [(c.treatment, c.baseline, False) for c in study.all_contrasts()]
    pairs += [(study.twin.name, study.baseline.name, True)] if study.twin else []
    needs = []
    for treatment, baseline, twin in pairs:
        if {treatment, baseline} & set(inclusion.excluded):
            continue
        runs = every.complete([treatment, baseline], ask.response.name)
        own, base = runs.values([treatment, baseline], ask.response.name).values()
        if len(base) < 2:
            continue
        if not ((own > 0).all() and (base > 0).all()):
            raise UsageError("a margin in percent needs values above 0; no mesh has no data plane")
        typical = float(np.median(base))
        margin = ask.margin.ratio(typical) - 1
        # A floor is judged by differences and a share by ratios, whatever the scale of the verdict.
        judged: stats.Scale = "difference" if ask.margin.floor > ask.margin.relative * typical else "ratio"
        d, against = (_on_scale(own, typical, kind) - _on_scale(base, typical, kind) for kind in (scale, judged))
        sd = float(d.std(ddof=1))
        effect = stats.detectable_effect(len(d), jointly=True, **family)
        careful, of_margin = (stats.upper_sd(float(one.std(ddof=1)), len(d)) for one in (d, against))
        needs.append(
            BlocksNeeded(
                treatment=treatment,
                baseline=baseline,
                twin=twin,
                blocks=len(d),
                scale=scale,
                sd=sd,
                margin=margin,
                difference=stats.blocks_for_difference(careful, _size(margin, scale), jointly=True, **family),
                equivalence=stats.blocks_for_equivalence(of_margin, _size(margin, judged), **family),
                visible=None if effect is None else math.expm1(effect * sd) if scale == "ratio" else effect * sd,
            )
        )
    return tuple(needs)


def _on_scale(values: FloatArray, typical: float, scale: stats.Scale) -> FloatArray:
    """Return values on the scale of the analysis, for differences as shares of the baseline's median."""
    scaled: FloatArray = np.log(values) if scale == "ratio" else values / typical
    return scaled


def _size(margin: float, scale: stats.Scale) -> float:
    return math.log1p(margin) if scale == "ratio" else margin


def _load_plan(
    data: StudyData, load: str, inclusion: Inclusion, needs: tuple[BlocksNeeded, ...], ask: PlanRequest
) -> LoadPlan:
    runs = [run for run in data.runs if run.load == load]
    repeats = len(runs) / len({run.run_id for run in runs})
    plan = LoadPlan(load, needs, _block_seconds(data, load), repeats, len({run.treatment for run in runs}), None, "")
    slices = _split(data, inclusion, plan, ask)
    if isinstance(slices, str):
        return dataclasses.replace(plan, slices_reason=slices)
    return dataclasses.replace(plan, slices=slices)


def _block_seconds(data: StudyData, load: str) -> float:
    """Return the sum over treatments of the median time of a run, from its start to the start of the next one."""
    spans: dict[str, list[float]] = {}
    runs = sorted(data.runs, key=lambda run: run.start_unix_s)
    for run, after in zip(runs, [*runs[1:], None], strict=True):
        if run.load == load:
            started, finished = (datetime.datetime.fromisoformat(text) for text in (run.started_at, run.finished_at))
            own = max(0.0, (finished - started).total_seconds())
            gap = own if after is None else after.start_unix_s - run.start_unix_s
            if neighbours := run.extra.get("neighbours"):
                # Concurrent deployments share the time.
                own = gap = own / (1 + len(neighbours))
            # An interrupted and resumed study has gaps without a run.
            spans.setdefault(run.treatment, []).append(gap if own <= gap <= 3 * own + 60 else own)
    return math.fsum(float(np.median(seconds)) for seconds in spans.values())


def _split(data: StudyData, inclusion: Inclusion, plan: LoadPlan, ask: PlanRequest) -> Slices | str:
    """Return the cheapest division into slices at one load, or the reason why there is none."""
    spec, worst = data.plan.study.load(plan.load), max(plan.judged, key=lambda need: need.sd)
    if not isinstance(spec, SlicedLoad) or spec.slices < 2:
        return (
            "the study has one slice per deployment, so the best number cannot be estimated; record a pilot whose load "
            "has several"
        )
    if not _SLICED.fullmatch(ask.response.name):
        return "slices are recorded for latencies only"
    pair, name = (worst.treatment, worst.baseline), ask.response.name
    kept = [[_by_slice(data, inclusion.chosen[block, one], name) for one in pair] for block in inclusion.blocks]
    whole = [(np.array(one), np.array(other)) for one, other in kept if len(one) == len(other) > 1]
    typical = float(np.median([other for _, other in whole])) if whole else 1.0
    apart = [_on_scale(one, typical, worst.scale) - _on_scale(other, typical, worst.scale) for one, other in whole]
    if len(apart) < 2:
        return "fewer than 2 blocks have the response in every slice; lengthen the slices"
    # Use differences: effects shared by all deployments of a block cancel.
    within = stats.variance_components(apart).within / 2
    # Blocks remove a part of the variance between deployments; this is the part that remains.
    between = max(0.0, worst.sd**2 / 2 - within / spec.slices)
    parts = stats.VarianceComponents(between, within)
    inner_s = spec.call_s
    outer_s = max(0.0, plan.seconds_per_block / plan.treatments - spec.slices * inner_s)
    # More than twice the recorded slices would be an extrapolation.
    best = stats.best_slices(parts, outer_s, inner_s, most=2 * spec.slices)
    options: dict[int, tuple[int, float]] = {}
    for count in sorted({1, spec.slices, best}):
        # The standard deviation of a difference of two runs, each of a fresh deployment.
        sd = stats.upper_sd(math.sqrt(2 * parts.run_variance(count)), worst.blocks)
        margin = _size(worst.margin, worst.scale)
        blocks = stats.blocks_for_difference(
            sd, margin, alpha=ask.alpha, m=ask.contrasts, power=ask.power, jointly=True
        )
        options[count] = (blocks, blocks * plan.treatments * (outer_s + count * inner_s))
    return Slices(spec.slices, best, between, within, outer_s, inner_s, options)


def _by_slice(data: StudyData, run: RunRecord, response: str) -> list[float]:
    """Return a latency response in each slice of a run; empty if a slice lacks it."""
    requests = data.latency(run)
    name = _SLICED.fullmatch(response)
    if "slice" not in requests.columns or name is None:
        raise RecordError(
            f"{data.run_folder(run)}: latency.parquet has no column slice; it was written by another version"
        )
    column, what = ("corrected_latency_s" if name["corrected"] else "latency_s"), name["what"]
    by_slice: list[float] = []
    for index in requests["slice"].unique().sort():
        values = successful(requests.filter(pl.col("slice") == index), column).to_numpy()
        if what == "mean":
            value = float(values.mean()) if values.size else None
        else:
            value = exact(values, data.plan.study.gates.sample_floor, wanted={what: QUANTILES[what]}).get(what)
        if value is None or not value > 0:
            return []
        by_slice.append(value)
    return by_slice


SCHEMA = "meshtrial.planning/1"


def report(data: StudyData, ask: PlanRequest, plans: tuple[LoadPlan, ...]) -> str:
    """Return the request and every load's plan as text for a terminal."""
    parts = [_head(data, ask), *(_load(plan, ask, len(plans) > 1) for plan in plans)]
    return "\n\n".join([*parts, *([_nights(nightly(data, ask))] if ask.nights else [])])


@dataclass(frozen=True)
class NightlyGate:
    """A gate that runs every night, and the study that keeps its false alarms rare."""

    nights: stats.Nights
    alpha: float  # error level of a family with which a series of nights has a false alarm in `FALSE_ALARMS` of cases
    blocks: int  # number of blocks that find the margin at this level
    seconds: float  # per night, all loads together


def nightly(data: StudyData, ask: PlanRequest) -> NightlyGate:
    """Return the gate's level for the requested nights, and its blocks; each primary response at a load is a family."""
    families = {(one.load, one.response.name, one.family) for one in declared_by(data.plan)}
    nights = stats.Nights(ask.nights, max(1, len(families)), ask.alpha)
    alpha = nights.alpha_for(FALSE_ALARMS)
    plans = plan_of(data, dataclasses.replace(ask, alpha=alpha))
    blocks = max(plan.difference for plan in plans)
    return NightlyGate(nights, alpha, blocks, sum(plan.seconds(blocks) for plan in plans))


def _nights(gate: NightlyGate) -> str:
    nights = gate.nights
    families = f"{nights.families} famil{'ies' if nights.families > 1 else 'y'}"
    return _wrap(
        f"A gate with --fail-on slower,more and {families} every night: if nothing differs, it fires in up to "
        f"{nights.one_night:.1%} of nights. The probability of one firing or more in {nights.nights} nights is "
        f"up to {nights.any_night:.0%}, that of two nights running {nights.twice_running:.1%}. For {FALSE_ALARMS:.0%} "
        f"take -p alpha={gate.alpha:.2g}; {gate.blocks} blocks then find the margin ({_time(gate.seconds)} a night)."
    )


def _head(data: StudyData, ask: PlanRequest) -> str:
    relative, floor = ask.margin.relative, ask.margin.floor
    amount = f"{floor * ask.response.scale:g} {ask.response.unit}"
    sized = " or ".join(filter(None, (f"{100 * relative:g} %" * bool(relative), amount * bool(floor))))
    floor_e = stats.smallest_n(ask.contrasts, ask.alpha, "equivalence")
    return _wrap(
        f"{ask.response.label}, margin {sized}, alpha {ask.alpha:g} over {ask.contrasts} contrast"
        f"{'s' * (ask.contrasts > 1)}, power {ask.power:g}; from {paths.display_path(data.path)}. "
        f"No fewer than {_floor(ask)} blocks can show a difference, and "
        f"no fewer than {floor_e} can show equivalence, in such a family."
    )


def _load(plan: LoadPlan, ask: PlanRequest, several: bool) -> str:
    lines = [f"At {plan.load}"] if several else []
    lines.append(
        _wrap(
            f"{plan.difference} blocks find a true effect of the margin's size "
            f"({_time(plan.seconds(plan.difference))}); {plan.equivalence} blocks show equivalence where there is no "
            f"effect ({_time(plan.seconds(plan.equivalence))}). The noisiest contrast decides."
        )
    )
    rows = [["contrast", "blocks recorded", "noise", "margin", "difference", "equivalence", "smallest detectable"]]
    for need in plan.needs:
        visible = f"{100 * need.visible:.3g} %" if need.visible is not None else f"none below {_floor(ask)} blocks"
        name = f"{need.treatment} against {need.baseline}" + (" (A/A)" if need.twin else "")
        noise, margin = f"{100 * need.sd:.3g} %", f"{100 * need.margin:.3g} %"
        rows.append([name, str(need.blocks), noise, margin, str(need.difference), str(need.equivalence), visible])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  " + "  ".join(cells))
    by_ratio = plan.needs[0].scale == "ratio"
    of = "log ratio" if by_ratio else "difference as a share of the baseline, the scale of the study's verdicts"
    lines.append(
        _wrap(
            f"noise: standard deviation of a block's {of}; the plan uses its upper 70 % limit. "
            f"smallest detectable: the effect that the recorded blocks find with power {ask.power:g}."
        )
    )
    repeats = f", {100 * (plan.repeats - 1):.3g} % of the runs repeated" if plan.repeats > 1 else ""
    lines.append(_wrap(f"A block of {plan.treatments} treatments takes {_time(plan.seconds_per_block)} here{repeats}."))
    lines.append(_wrap(_slices(plan)))
    return "\n".join(lines)


def _slices(plan: LoadPlan) -> str:
    slices = plan.slices
    if slices is None:
        return f"Slices: {plan.slices_reason}."
    listed = "; ".join(
        f"{k} slice{'s' * (k > 1)} {blocks} blocks, {_time(seconds)}" for k, (blocks, seconds) in slices.options.items()
    )
    return (
        f"Slices: {slices.best} per deployment cost least (Kalibera & Jones: a deployment takes "
        f"{_time(slices.outer_s)} plus {_time(slices.inner_s)} per slice; noise {100 * slices.between**0.5:.3g} % "
        f"between deployments, {100 * slices.within**0.5:.3g} % inside one). To find the margin: {listed}. "
        "Slices are not replicates: they do not add to n."
    )


def _floor(ask: PlanRequest) -> int:
    return stats.smallest_n(1, ask.alpha)  # a new study is corrected by max-T, so the family does not matter


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02d} min" if hours < 48 else f"{hours / 24:.3g} days"


def _wrap(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def to_dict(data: StudyData, ask: PlanRequest, plans: tuple[LoadPlan, ...]) -> dict[str, Any]:
    """Return the request and every load's plan as plain data for ``meshtrial plan --json``."""
    gated: dict[str, Any] = {}
    if ask.nights:
        nights = (gate := nightly(data, ask)).nights
        gated["nights"] = dataclasses.asdict(gate) | {
            "nights": nights.nights,
            "families": nights.families,
            "false_alarm_one_night": nights.one_night,
            "false_alarm_any_night": nights.any_night,
            "false_alarm_twice_running": nights.twice_running,
        }
    return {
        "schema": SCHEMA,
        "study": str(paths.display_path(data.path)),
        "plan_sha256": data.plan.sha256,
        "response": ask.response.name,
        "margin": dataclasses.asdict(ask.margin),
        "alpha": ask.alpha,
        "power": ask.power,
        "contrasts": ask.contrasts,
        **gated,
        "loads": [
            dataclasses.asdict(plan)
            | {
                "difference_blocks": plan.difference,
                "equivalence_blocks": plan.equivalence,
                "difference_s": plan.seconds(plan.difference),
                "equivalence_s": plan.seconds(plan.equivalence),
            }
            for plan in plans
        ],
    }
