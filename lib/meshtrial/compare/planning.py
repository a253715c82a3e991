"""What a margin costs on this machine, from a study that was recorded on it.

Opinion: the noise that counts is that of the block differences of a real contrast, so every contrast gets its own
line and the noisiest one is what a plan must be made for. Formulas: `meshtrial.stats.power`.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshtrial import stats
from meshtrial.compare.slices import Asked, Slices, split_of
from meshtrial.errors import UsageError
from meshtrial.inference.values import block_values
from meshtrial.margin import Margin
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.records.tables import Inclusion, include
from meshtrial.responses import Response
from meshtrial.study import Study


@dataclass(frozen=True)
class Need:
    """What one contrast needs.

    Attributes
    ----------
    treatment, baseline : str
    twin : bool
        The A/A contrast: the machine's own noise.
    blocks : int
        Complete blocks that the noise was taken from.
    sd : float
        Standard deviation of the block differences (logs).
    margin : float
        The margin as a ratio minus one.
    difference, equivalence : int
        Blocks that find an effect of the margin's size, or show equivalence where there is none.
    visible : float or None
        Smallest effect, ratio minus one, found with the blocks that are there; None below the floor.
    """

    treatment: str
    baseline: str
    twin: bool
    blocks: int
    sd: float
    margin: float
    difference: int
    equivalence: int
    visible: float | None


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
        return stats.study_seconds(blocks, 1, self.seconds_per_block) * self.repeats


@dataclass(frozen=True)
class Ask:
    """What the user wants: margin, error level, power, contrasts of the family."""

    response: Response
    margin: Margin
    alpha: float
    power: float
    contrasts: int


def plan_of(data: StudyData, ask: Ask) -> tuple[LoadPlan, ...]:
    """The plan of every load that the study recorded.

    Raises
    ------
    UsageError
        Where no load has two complete blocks with the response.
    """
    found = []
    for load in data.plan.study.loads:
        inclusion = include(data.plan, data.runs, load.label)
        needs = _needs(data, load.label, inclusion, ask)
        if needs:
            found.append(_load_plan(data, load.label, inclusion, needs, ask))
    if not found:
        raise UsageError(
            f"{data.path}: holds no load with 2 complete blocks of {ask.response.name}; "
            "run a pilot of at least 6 blocks (profile=standard), then plan from it"
        )
    return tuple(found)


def _needs(data: StudyData, load: str, inclusion: Inclusion, ask: Ask) -> tuple[Need, ...]:
    study = data.plan.study
    names = [t.name for t in study.treatments if t.name not in inclusion.set_aside]
    values = block_values(data.table, load, ask.response.name, names, inclusion.blocks)
    found = []
    for treatment, baseline, twin in _pairs(study):
        if treatment not in values or baseline not in values:
            continue
        d, base = _differences(values[treatment], values[baseline])
        if len(d) < 2:
            continue
        sd = float(d.std(ddof=1))
        margin = ask.margin.ratio(float(np.median(base))) - 1
        half, m = math.log1p(margin), ask.contrasts
        effect = stats.detectable_effect(len(d), alpha=ask.alpha, m=m, power=ask.power)
        found.append(
            Need(
                treatment=treatment,
                baseline=baseline,
                twin=twin,
                blocks=len(d),
                sd=sd,
                margin=margin,
                difference=stats.blocks_for_difference(sd, half, alpha=ask.alpha, m=m, power=ask.power),
                equivalence=stats.blocks_for_equivalence(sd, half, alpha=ask.alpha, m=m, power=ask.power),
                visible=None if effect is None else math.expm1(effect * sd),
            )
        )
    return tuple(found)


def _pairs(study: Study) -> list[tuple[str, str, bool]]:
    pairs = [(c.treatment, c.baseline, False) for c in study.all_contrasts()]
    return pairs + ([(study.twin.name, study.baseline.name, True)] if study.twin else [])


def _differences(
    treatment: NDArray[np.float64], baseline: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    whole = np.isfinite(treatment) & np.isfinite(baseline)
    t, b = treatment[whole], baseline[whole]
    if not ((t > 0).all() and (b > 0).all()):
        raise UsageError("a margin in percent needs values above 0; the data plane of no mesh at all has none")
    return np.log(t / b), b


def _load_plan(data: StudyData, load: str, inclusion: Inclusion, needs: tuple[Need, ...], ask: Ask) -> LoadPlan:
    runs = [run for run in data.runs if run.load == load]
    block_s, distinct = _block_seconds(data, load), {run.run_id for run in runs}
    count = len({run.treatment for run in runs})
    worst = max([need for need in needs if not need.twin] or needs, key=lambda need: need.sd)

    asked = Asked(
        response=ask.response.name,
        load=load,
        pair=(worst.treatment, worst.baseline),
        sd=worst.sd,
        ratio=1 + worst.margin,
        seconds_per_run=block_s / count,
        treatments=count,
        m_family=ask.contrasts,
        alpha=ask.alpha,
        power=ask.power,
    )
    found = split_of(data, inclusion, asked)
    slices, reason = (None, found) if isinstance(found, str) else (found, "")
    return LoadPlan(load, needs, block_s, len(runs) / len(distinct), count, slices, reason)


def _block_seconds(data: StudyData, load: str) -> float:
    """Sum over the treatments of what a run of theirs takes, from its start to the start of the next one."""
    spans: dict[str, list[float]] = {}
    for run, after in zip(data.runs, [*data.runs[1:], None], strict=True):
        if run.load == load:
            own = _own_seconds(run)
            gap = own if after is None else after.start_unix_s - run.start_unix_s
            # A study that was interrupted and resumed has gaps that no run filled.
            spans.setdefault(run.treatment, []).append(gap if own <= gap <= 3 * own + 60 else own)
    return math.fsum(float(np.median(found)) for found in spans.values())


def _own_seconds(run: RunRecord) -> float:
    started, finished = (datetime.datetime.fromisoformat(text) for text in (run.started_at, run.finished_at))
    return max(0.0, (finished - started).total_seconds())
