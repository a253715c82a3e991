"""A plan of blocks as plain data, for ``meshtrial plan --json``."""

from __future__ import annotations

import dataclasses
from typing import Any

from meshtrial import paths
from meshtrial.planning.blocks import Ask, LoadPlan
from meshtrial.records.dataset import StudyData

SCHEMA = "meshtrial.planning/1"


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
