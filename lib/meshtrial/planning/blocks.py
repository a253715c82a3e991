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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from meshtrial import stats
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
class BlocksNeeded:
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
    needs: tuple[BlocksNeeded, ...]
    seconds_per_block: float
    repeats: float
    treatments: int
    slices: Slices | None
    slices_reason: str

    @property
    def judged(self) -> tuple[BlocksNeeded, ...]:
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
class PlanRequest:
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


def plan_of(data: StudyData, ask: PlanRequest) -> tuple[LoadPlan, ...]:
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


def _needs(data: StudyData, load: str, inclusion: Inclusion, ask: PlanRequest) -> tuple[BlocksNeeded, ...]:
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
            BlocksNeeded(
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


def _load_plan(
    data: StudyData, load: str, inclusion: Inclusion, needs: tuple[BlocksNeeded, ...], ask: PlanRequest
) -> LoadPlan:
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


def _split(
    data: StudyData, inclusion: Inclusion, plan: LoadPlan, worst: BlocksNeeded, ask: PlanRequest
) -> Slices | str:
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
