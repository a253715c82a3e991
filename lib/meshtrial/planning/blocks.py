"""What a margin costs on this machine, from a study that was recorded on it.

Opinion: the noise that counts is that of the block differences of a real contrast, so every contrast gets its own
line and the noisiest one is what a plan must be made for, by its upper limit and not its estimate. Formulas:
`meshtrial.stats.power`. A slice of a deployment averages out what varies inside it, never what varies between two
(Kalibera & Jones 2013, section 6.2); both parts are known only from a study that measured several slices of each
deployment.
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
from meshtrial.design.responses import QUANTILES, Response
from meshtrial.design.study import Study
from meshtrial.errors import RecordError, UsageError
from meshtrial.inference.values import FloatArray, LoadBlocks
from meshtrial.load.quantiles import exact, successful
from meshtrial.margin import Margin
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.records.tables import Inclusion, runs_table

_SLICED = re.compile(r"latency_(?P<corrected>corrected_)?(?P<what>p\d+|mean)_s")


@dataclass(frozen=True)
class Need:
    """What one contrast needs."""

    treatment: str
    baseline: str
    twin: bool  # the A/A contrast: the machine's own noise
    blocks: int  # complete blocks that the noise was taken from
    scale: stats.Scale  # of the verdicts that are planned: the study's declared one
    # Standard deviation of the block differences: of logs, or as a share of the baseline's median. What it is below
    # with a confidence of 70 % is planned with.
    sd: float
    margin: float  # the margin as a share of the baseline
    # Blocks that find an effect of the margin's size, or show equivalence where there is none
    difference: int
    equivalence: int
    # Smallest effect, as a share of the baseline, found with the blocks that are there; None below the floor
    visible: float | None


@dataclass(frozen=True)
class Slices:
    """How to split a deployment's time."""

    # Slices a deployment in the study, and the cheapest number
    recorded: int
    best: int
    # Variance, on the scale of the noise, between deployments (inside their block) and between the slices of one
    between: float
    within: float
    # What a deployment costs beside its slices, and what a slice costs
    outer_s: float
    inner_s: float
    # Slices to the blocks that they would need and the seconds that these would take
    options: Mapping[int, tuple[int, float]]


@dataclass(frozen=True)
class LoadPlan:
    """What one load of the study says."""

    load: str
    needs: tuple[Need, ...]
    seconds_per_block: float
    repeats: float
    treatments: int
    slices: Slices | None
    slices_reason: str

    @property
    def judged(self) -> tuple[Need, ...]:
        """The contrasts of the family; where nothing else was recorded, the A/A twin."""
        return tuple(need for need in self.needs if not need.twin) or self.needs

    @property
    def difference(self) -> int:
        """Blocks for the noisiest contrast to be found."""
        return max(need.difference for need in self.judged)

    @property
    def equivalence(self) -> int:
        """Blocks for the noisiest contrast to be shown equivalent."""
        return max(need.equivalence for need in self.judged)

    def seconds(self, blocks: int) -> float:
        """How long so many blocks take here, with the share of repeated runs that the study had."""
        return blocks * self.seconds_per_block * self.repeats


@dataclass(frozen=True)
class Ask:
    """What the user wants: margin, error level, power, contrasts of the family."""

    response: Response
    margin: Margin
    alpha: float
    power: float
    contrasts: int


def read(path: Path) -> StudyData:
    """A study's runs and their table, whether or not it was ever analysed."""
    store = StudyStore.open(path.resolve())
    records = store.records()
    if not records:
        raise UsageError(f"{path}: holds no run yet; `meshtrial status` lists the recorded studies")
    return StudyData(store.path, store.plan, {}, records, runs_table(store.plan, records))


def plan_of(data: StudyData, ask: Ask) -> tuple[LoadPlan, ...]:
    """The plan of every load that the study recorded.

    UsageError where no load has two complete blocks with the response.
    """
    plans = []
    for load in data.plan.study.loads:
        inclusion = data.inclusions[load.label]
        needs = _needs(data, load.label, inclusion, ask)
        if needs:
            plans.append(_load_plan(data, load.label, inclusion, needs, ask))
    if not plans:
        raise UsageError(
            f"{data.path}: holds no load with 2 complete blocks of {ask.response.name}; "
            "run a pilot of at least 6 blocks (profile=standard), then plan from it"
        )
    return tuple(plans)


def _needs(data: StudyData, load: str, inclusion: Inclusion, ask: Ask) -> tuple[Need, ...]:
    every = LoadBlocks.of(data.table, load, inclusion.blocks)
    scale: stats.Scale = data.plan.study.scales.get(ask.response.name, "ratio")
    needs = []
    for treatment, baseline, twin in _pairs(data.plan.study):
        if {treatment, baseline} & set(inclusion.excluded):
            continue
        runs = every.complete([treatment, baseline], ask.response.name)
        own, base = runs.values([treatment, baseline], ask.response.name).values()
        if len(base) < 2:
            continue
        if not ((own > 0).all() and (base > 0).all()):
            raise UsageError("a margin in percent needs values above 0; the data plane of no mesh at all has none")
        typical, m = float(np.median(base)), ask.contrasts
        margin = ask.margin.ratio(typical) - 1
        # A floor is judged by differences and a share by ratios, whatever the verdict is of.
        judged: stats.Scale = "difference" if ask.margin.floor > ask.margin.relative * typical else "ratio"
        d, against = (_shown(own, typical, kind) - _shown(base, typical, kind) for kind in (scale, judged))
        sd = float(d.std(ddof=1))
        effect = stats.detectable_effect(len(d), alpha=ask.alpha, m=m, power=ask.power, jointly=True)
        careful = stats.upper_sd(sd, len(d))
        needs.append(
            Need(
                treatment=treatment,
                baseline=baseline,
                twin=twin,
                blocks=len(d),
                scale=scale,
                sd=sd,
                margin=margin,
                difference=stats.blocks_for_difference(
                    careful, _size(margin, scale), alpha=ask.alpha, m=m, power=ask.power, jointly=True
                ),
                equivalence=stats.blocks_for_equivalence(
                    stats.upper_sd(float(against.std(ddof=1)), len(d)),
                    _size(margin, judged),
                    alpha=ask.alpha,
                    m=m,
                    power=ask.power,
                ),
                visible=None if effect is None else math.expm1(effect * sd) if scale == "ratio" else effect * sd,
            )
        )
    return tuple(needs)


def _pairs(study: Study) -> list[tuple[str, str, bool]]:
    pairs = [(c.treatment, c.baseline, False) for c in study.all_contrasts()]
    return pairs + ([(study.twin.name, study.baseline.name, True)] if study.twin else [])


def _shown(values: FloatArray, typical: float, scale: stats.Scale) -> FloatArray:
    """Values on the scale of the analysis; of differences, as shares of what the baseline typically is."""
    shown: FloatArray = np.log(values) if scale == "ratio" else values / typical
    return shown


def _size(margin: float, scale: stats.Scale) -> float:
    return math.log1p(margin) if scale == "ratio" else margin


def _load_plan(data: StudyData, load: str, inclusion: Inclusion, needs: tuple[Need, ...], ask: Ask) -> LoadPlan:
    runs = [run for run in data.runs if run.load == load]
    repeats = len(runs) / len({run.run_id for run in runs})
    plan = LoadPlan(load, needs, _block_seconds(data, load), repeats, len({run.treatment for run in runs}), None, "")
    worst = max(plan.judged, key=lambda need: need.sd)
    slices = _split(data, inclusion, plan, worst, ask)
    if isinstance(slices, str):
        return dataclasses.replace(plan, slices_reason=slices)
    return dataclasses.replace(plan, slices=slices)


def _block_seconds(data: StudyData, load: str) -> float:
    """Sum over the treatments of what a run of theirs takes, from its start to the start of the next one."""
    spans: dict[str, list[float]] = {}
    runs = sorted(data.runs, key=lambda run: run.start_unix_s)
    for run, after in zip(runs, [*runs[1:], None], strict=True):
        if run.load == load:
            own = _own_seconds(run)
            gap = own if after is None else after.start_unix_s - run.start_unix_s
            if neighbours := run.extra.get("neighbours"):
                # Those that stood at once share the time.
                own = gap = own / (1 + len(neighbours))
            # A study that was interrupted and resumed has gaps that no run filled.
            spans.setdefault(run.treatment, []).append(gap if own <= gap <= 3 * own + 60 else own)
    return math.fsum(float(np.median(seconds)) for seconds in spans.values())


def _own_seconds(run: RunRecord) -> float:
    started, finished = (datetime.datetime.fromisoformat(text) for text in (run.started_at, run.finished_at))
    return max(0.0, (finished - started).total_seconds())


def _split(data: StudyData, inclusion: Inclusion, plan: LoadPlan, worst: Need, ask: Ask) -> Slices | str:
    """The split of one load's deployments, or why there is none."""
    spec = data.plan.study.load(plan.load)
    if spec.slices < 2:
        return (
            "recorded with one slice a deployment, so how many are worth their time cannot be told from it; record a "
            "pilot whose load has several"
        )
    if not _SLICED.fullmatch(ask.response.name):
        return "slices are recorded for latencies only"
    kept = [
        [
            _by_slice(data, inclusion.chosen[block, name], ask.response.name)
            for name in (worst.treatment, worst.baseline)
        ]
        for block in inclusion.blocks
    ]
    whole = [(np.array(one), np.array(other)) for one, other in kept if len(one) == len(other) > 1]
    typical = float(np.median([other for _, other in whole])) if whole else 1.0
    apart = [_shown(one, typical, worst.scale) - _shown(other, typical, worst.scale) for one, other in whole]
    if len(apart) < 2:
        return "fewer than 2 blocks have the response in every slice: lengthen the slices"
    # Of differences, for what a block's deployments share from slice to slice goes out of a contrast as it came.
    within = stats.variance_components(apart).within / 2
    # Blocks take their own part out of a difference, so the variance between deployments is the rest of it.
    between = max(0.0, worst.sd**2 / 2 - within / spec.slices)
    parts = stats.VarianceComponents(between, within)
    inner_s = spec.call_s
    outer_s = max(0.0, plan.seconds_per_block / plan.treatments - spec.slices * inner_s)
    # Further than twice the slices that were recorded would be an extrapolation.
    best = stats.best_slices(parts, outer_s, inner_s, most=2 * spec.slices)
    options: dict[int, tuple[int, float]] = {}
    for count in sorted({1, spec.slices, best}):
        # Of a difference of two runs, each a fresh deployment.
        sd = stats.upper_sd(math.sqrt(2 * parts.run_variance(count)), worst.blocks)
        margin, m = _size(worst.margin, worst.scale), ask.contrasts
        blocks = stats.blocks_for_difference(sd, margin, alpha=ask.alpha, m=m, power=ask.power, jointly=True)
        options[count] = (blocks, blocks * plan.treatments * (outer_s + count * inner_s))
    return Slices(spec.slices, best, between, within, outer_s, inner_s, options)


def _by_slice(data: StudyData, run: RunRecord, response: str) -> list[float]:
    """A latency response in each slice of a run; empty where a slice lacks it."""
    requests = data.latency(run)
    name = _SLICED.fullmatch(response)
    if "slice" not in requests.columns or name is None:
        raise RecordError(f"{data.run_folder(run)}: latency.parquet has no column slice; it is of another version")
    column, what = ("corrected_latency_s" if name["corrected"] else "latency_s"), name["what"]
    found_here: list[float] = []
    for index in requests["slice"].unique().sort():
        values = successful(requests.filter(pl.col("slice") == index), column).to_numpy()
        if what == "mean":
            value = float(values.mean()) if values.size else None
        else:
            value = exact(values, data.plan.study.gates.sample_floor, wanted={what: QUANTILES[what]}).get(what)
        if value is None or not value > 0:
            return []
        found_here.append(value)
    return found_here


SCHEMA = "meshtrial.planning/1"


def report(data: StudyData, ask: Ask, plans: tuple[LoadPlan, ...]) -> str:
    """What was asked, then what every load needs."""
    return "\n\n".join([_head(data, ask), *(_load(plan, ask, len(plans) > 1) for plan in plans)])


def _head(data: StudyData, ask: Ask) -> str:
    relative, floor = ask.margin.relative, ask.margin.floor
    sized = " or ".join(filter(None, (f"{100 * relative:g} %" * bool(relative), f"{floor * 1e3:g} ms" * bool(floor))))
    floor_e = stats.smallest_n(ask.contrasts, ask.alpha, "equivalence")
    return _wrap(
        f"{ask.response.label}, margin {sized}, alpha {ask.alpha:g} over {ask.contrasts} contrast"
        f"{'s' * (ask.contrasts > 1)}, power {ask.power:g}; from {paths.shown(data.path)}. No fewer than {_floor(ask)} "
        f"blocks can show a difference, no fewer than {floor_e} equivalence in such a family."
    )


def _load(plan: LoadPlan, ask: Ask, several: bool) -> str:
    lines = [f"At {plan.load}"] if several else []
    lines.append(
        _wrap(
            f"{plan.difference} blocks find a true effect of the margin's size "
            f"({_time(plan.seconds(plan.difference))}); {plan.equivalence} blocks show equivalence where there is no "
            f"effect ({_time(plan.seconds(plan.equivalence))}). The noisiest contrast decides."
        )
    )
    rows = [["contrast", "blocks there", "noise", "margin", "difference", "equivalence", "smallest visible"]]
    for need in plan.needs:
        visible = f"{100 * need.visible:.3g} %" if need.visible is not None else f"none below {_floor(ask)} blocks"
        name = f"{need.treatment} against {need.baseline}" + (" (A/A)" if need.twin else "")
        noise, margin = f"{100 * need.sd:.3g} %", f"{100 * need.margin:.3g} %"
        rows.append([name, str(need.blocks), noise, margin, str(need.difference), str(need.equivalence), visible])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  " + "  ".join(cells))
    lines.append(
        _wrap(
            f"noise: standard deviation of a block's {_of(plan)}; planned with what it is below with a confidence "
            f"of 70 %. smallest visible: the effect that the blocks there find with power {ask.power:g}."
        )
    )
    repeats = f", {100 * (plan.repeats - 1):.3g} % of the runs repeated" if plan.repeats > 1 else ""
    lines.append(_wrap(f"A block of {plan.treatments} treatments takes {_time(plan.seconds_per_block)} here{repeats}."))
    lines.append(_wrap(_slices(plan)))
    return "\n".join(lines)


def _of(plan: LoadPlan) -> str:
    if plan.needs[0].scale == "ratio":
        return "log ratio"
    return "difference, as a share of the baseline, of which the study's verdicts are"


def _slices(plan: LoadPlan) -> str:
    slices = plan.slices
    if slices is None:
        return f"Slices: {plan.slices_reason}."
    listed = "; ".join(
        f"{k} slice{'s' * (k > 1)} {blocks} blocks, {_time(seconds)}" for k, (blocks, seconds) in slices.options.items()
    )
    return (
        f"Slices: {slices.best} a deployment is cheapest (Kalibera & Jones: a deployment costs {_time(slices.outer_s)} "
        f"beside its slices of {_time(slices.inner_s)}; noise {100 * slices.between**0.5:.3g} % between deployments, "
        f"{100 * slices.within**0.5:.3g} % inside one). To find the margin: {listed}. "
        "Slices are not replicates: they do not add to n."
    )


def _floor(ask: Ask) -> int:
    return stats.smallest_n(1, ask.alpha)  # whatever the family: a new study is corrected by max-T


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


def to_dict(data: StudyData, ask: Ask, plans: tuple[LoadPlan, ...]) -> dict[str, Any]:
    """Plain data: the request, and what every load needs."""
    return {
        "schema": SCHEMA,
        "study": str(paths.shown(data.path)),
        "plan_sha256": data.plan.sha256,
        "response": ask.response.name,
        "margin": dataclasses.asdict(ask.margin),
        "alpha": ask.alpha,
        "power": ask.power,
        "contrasts": ask.contrasts,
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
