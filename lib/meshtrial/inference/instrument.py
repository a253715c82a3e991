"""What the instrument detects: injected delays of known size, no delay at all, and more load generators."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from meshtrial import stats
from meshtrial.design.load import Load
from meshtrial.design.responses import REGISTRY, applies
from meshtrial.errors import UsageError
from meshtrial.inference.rows import median_of, usable_margin, verdict_row
from meshtrial.inference.values import LoadBlocks
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.records.store import StudyStore
from meshtrial.records.tables import include, runs_table


@dataclass(frozen=True)
class Detection:
    """One injected delay and its result."""

    treatment: str
    # The requested delay, and the mean delay that the relay reports, over the included runs
    asked_s: float
    applied_s: float
    row: VerdictRow  # the contrast of p50 with the relay at delay 0
    detectable_s: float | None  # minimum detectable effect of the contrast, in seconds at the baseline's median


def detections(data: StudyData) -> tuple[Detection, ...]:
    """Return every treatment of a calibration study against the relay at delay 0, smallest delay first."""
    rows = []
    for row in (one for one in data.verdicts if one.response == "latency_p50_s"):
        runs = [run for run in data.included_runs() if run.treatment == row.treatment and "relay" in run.extra]
        applied = [float(run.extra["relay"]["mean_ns"]) / 1e9 for run in runs]
        typical = 1.0 if row.by_difference else row.baseline_value
        detectable = None if row.mde is None or typical is None else row.mde * typical
        _, _, delay = row.treatment.partition("+delay-")
        asked = float(delay.removesuffix("us")) / 1e6 if delay else 0.0
        mean = float(np.mean(applied)) if applied and asked > 0 else 0.0
        rows.append(Detection(row.treatment, asked, mean, row, detectable))
    return tuple(sorted(rows, key=lambda one: (one.asked_s, not one.row.twin)))


@dataclass(frozen=True)
class AaStudy:
    """One small A/A study that was cut out of a long one: its blocks and its test."""

    blocks: tuple[int, ...]
    p: float
    called: bool


def aa_studies(data: StudyData, size: int = 6, alpha: float = 0.05) -> tuple[AaStudy, ...]:
    """Cut the baseline and its twin into A/A studies of `size` consecutive blocks, and test the p50 of each alone.

    The share that finds a difference is this machine's own false-positive rate; at 6 blocks the exact test's nominal
    5 % is 3.1 %.
    """
    study = data.plan.study
    if study.twin is None:
        return ()
    pair = [study.twin.name, study.baseline.name]
    runs = LoadBlocks.of(data.table, study.loads[0].label).complete(pair, "latency_p50_s")
    twin, baseline = runs.values(pair, "latency_p50_s").values()
    tested = []
    for start in range(0, len(runs.blocks) - size + 1, size):
        chosen = slice(start, start + size)
        p = stats.compare_paired(twin[chosen], baseline[chosen], alpha=alpha).effect.p
        tested.append(AaStudy(runs.blocks[chosen], p, p <= alpha))
    return tuple(tested)


def recorded_noise_logs(folder: Path) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return logs of p50 of a recorded study's baseline and twin, one row per block: the machine's own noise."""
    store = StudyStore.open(folder.resolve())
    study, records = store.plan.study, store.records()
    if study.twin is None:
        raise UsageError(f"{folder}: the study has no A/A twin, so noise and effects cannot be separated")
    load = study.loads[0].label
    blocks = include(store.plan, records, load).blocks
    pair = [study.baseline.name, study.twin.name]
    if len(blocks) < 4:
        raise UsageError(f"{folder}: {len(blocks)} complete blocks; at least 4 are needed to draw noise from")
    values = LoadBlocks.of(runs_table(store.plan, records), load, blocks).values(pair, "latency_p50_s")
    return np.log(np.column_stack([*values.values()]))


@dataclass(frozen=True)
class Sweep:
    """One load, sent by different numbers of generators."""

    loads: tuple[Load, ...]  # in ascending number of generators

    @property
    def name(self) -> str:
        """Label of the loads without their number of generators."""
        return replace(self.loads[0], generators_vary=False).label


def sweeps(data: StudyData) -> tuple[Sweep, ...]:
    """Return the loads of the study that differ in their generators alone."""
    alike: dict[Load, list[Load]] = {}
    for load in data.plan.study.loads:
        if load.generators_vary:
            alike.setdefault(replace(load, generators=1), []).append(load)
    ordered = (tuple(sorted(loads, key=lambda load: load.generators)) for loads in alike.values())
    return tuple(Sweep(loads) for loads in ordered if len(loads) > 1)


def contrasts(data: StudyData, sweep: Sweep, treatment: str, response: str) -> list[VerdictRow]:
    """Compare more generators with the fewest, by block; return one exploratory row each.

    If the treatment is what is measured, the number of generators changes nothing and the verdict is ``equivalent``.
    """
    if not all(applies(response, load) for load in sweep.loads):
        return []
    blocks = sorted(set(data.table["block"].to_list()))
    values = {
        generators_label(load): LoadBlocks.of(data.table, load.label, blocks).values([treatment], response)[treatment]
        for load in sweep.loads
    }
    if any((own <= 0).any() for own in values.values()):
        return []  # no ratio to zero
    about = REGISTRY[response]
    study = data.plan.study
    family = stats.Family(
        generators_label(sweep.loads[0]),
        alpha=study.alpha,
        margin=usable_margin(study.margins.get(response), "ratio"),
        kind=about.kind,
        primary=False,
    )
    medians = {name: median_of(own) for name, own in values.items()}
    return [
        verdict_row(result, about, medians, study=study.name, load=sweep.name, exploratory=True)
        for result in stats.analyse_family(values, family, blocks=blocks)
    ]


def generators_label(load: Load) -> str:
    """Return the number of generators of a load in words."""
    return f"{load.generators} generator{'s' * (load.generators > 1)}"
