"""Is the load generator the limit? The same treatment under loads that differ in their generators alone, by block."""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshtrial import stats
from meshtrial.design.load import Load
from meshtrial.design.responses import REGISTRY, applies
from meshtrial.inference.rows import median_of, usable_margin, verdict_row
from meshtrial.inference.values import LoadBlocks
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow


@dataclass(frozen=True)
class Sweep:
    """One load from different numbers of generators."""

    loads: tuple[Load, ...]  # from the fewest generators to the most

    @property
    def name(self) -> str:
        """What they have in common."""
        return replace(self.loads[0], generators_vary=False).label


def sweeps(data: StudyData) -> tuple[Sweep, ...]:
    """Loads of the study that differ in their generators alone."""
    alike: dict[Load, list[Load]] = {}
    for load in data.plan.study.loads:
        if load.generators_vary:
            alike.setdefault(replace(load, generators=1), []).append(load)
    ordered = (tuple(sorted(loads, key=lambda load: load.generators)) for loads in alike.values())
    return tuple(Sweep(loads) for loads in ordered if len(loads) > 1)


def contrasts(data: StudyData, sweep: Sweep, treatment: str, response: str) -> list[VerdictRow]:
    """More generators against the fewest, block by block: a row each, exploratory.

    Where the treatment is what is measured, how many generators ask changes nothing: the verdict to look for is
    ``equivalent``.
    """
    if not all(applies(response, load) for load in sweep.loads):
        return []
    blocks = sorted(set(data.table["block"].to_list()))
    values = {
        named(load): LoadBlocks.of(data.table, load.label, blocks).values([treatment], response)[treatment]
        for load in sweep.loads
    }
    if any((own <= 0).any() for own in values.values()):
        return []  # a ratio to nothing
    about = REGISTRY[response]
    study = data.plan.study
    family = stats.Family(
        named(sweep.loads[0]),
        alpha=study.alpha,
        margin=usable_margin(study.margins.get(response), "ratio"),
        kind=about.kind,
        primary=False,
    )
    results = stats.analyse_family(values, family, blocks=blocks)
    medians = {name: median_of(own) for name, own in values.items()}
    return [
        verdict_row(result, about, medians, study=study.name, load=sweep.name, exploratory=True) for result in results
    ]


def named(load: Load) -> str:
    """What a load is called among those of its sweep."""
    return f"{load.generators} generator{'s' * (load.generators > 1)}"
