"""What some treatments have no part of: described by treatment, for nothing can be compared with what is not there.

A contrast with no mesh in the CPU of a control plane has no number on one side. What each mesh uses of it stands by
itself, with an interval of its median; between meshes it is compared like everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshtrial.design.responses import REGISTRY, Response
from meshtrial.inference.rows import described_only
from meshtrial.inference.values import LoadBlocks
from meshtrial.records.dataset import StudyData
from meshtrial.stats.intervals import median_ranks


@dataclass(frozen=True)
class Described:
    """What one treatment uses of a part that others lack."""

    load: str
    response: Response
    treatment: str
    # Median over its included runs and an interval of it by order statistics, in the response's stored unit
    median: float
    low: float
    high: float
    confidence: float  # what the interval reaches; below 1 - alpha where so few runs cannot reach more
    runs: int


def described(data: StudyData) -> tuple[Described, ...]:
    """By load, response and treatment; nothing where every treatment has every part."""
    study = data.plan.study
    rows = []
    for load in study.loads:
        blocks = LoadBlocks.of(data.table, load.label)
        for response in REGISTRY.values():
            values = blocks.values([treatment.name for treatment in study.treatments], response.name)
            if not described_only(study, response, values):
                continue
            for name, all_values in values.items():
                own = np.sort(all_values[~np.isnan(all_values)])
                if len(own):
                    ends = median_ranks(len(own), study.alpha)
                    low, high = float(own[ends.rank - 1]), float(own[-ends.rank])
                    middle = float(np.median(own))
                    rows.append(Described(load.label, response, name, middle, low, high, ends.confidence, len(own)))
    return tuple(rows)
