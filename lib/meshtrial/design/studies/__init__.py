"""The studies, each a module with its settings, its profiles and a function that builds the study."""

from __future__ import annotations

from typing import Protocol

from meshtrial.design.parameters import Taken
from meshtrial.design.settings import Settings
from meshtrial.design.studies import (
    ambient_vs_no_mesh,
    building_blocks,
    calibration,
    decomposition,
    feature_impact,
    mesh_comparison,
    prediction,
    propagation,
    rollout,
    scale_out,
)
from meshtrial.design.study import Study
from meshtrial.errors import UsageError


class StudyModule(Protocol):
    """The interface of a study's module."""

    SETTINGS: Taken

    def build(self, settings: Settings) -> Study:
        """Return the study of checked settings."""


STUDIES: dict[str, StudyModule] = {
    "ambient_vs_no_mesh": ambient_vs_no_mesh,
    "building_blocks": building_blocks,
    "calibration": calibration,
    "decomposition": decomposition,
    "feature_impact": feature_impact,
    "mesh_comparison": mesh_comparison,
    "prediction": prediction,
    "propagation": propagation,
    "rollout": rollout,
    "scale_out": scale_out,
}


def study_module(name: str) -> StudyModule:
    """Return a study's module by the name of its notebook; UsageError if it is not known."""
    if name not in STUDIES:
        raise UsageError(f"study {name!r} is not known; known are {', '.join(STUDIES)}")
    return STUDIES[name]
