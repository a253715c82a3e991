"""The studies: every other module of this folder, with its settings, its profiles and a function that builds it."""

import importlib
import pkgutil
from typing import Protocol, cast

from meshtrial.design.parameters import Taken
from meshtrial.design.settings import Settings
from meshtrial.design.study import Study
from meshtrial.errors import UsageError


class StudyModule(Protocol):
    """The interface of a study's module."""

    SETTINGS: Taken

    def build(self, settings: Settings) -> Study:
        """Return the study of checked settings."""


_NAMES = sorted(found.name for found in pkgutil.iter_modules(__path__) if found.name != "common")
STUDIES = {name: cast(StudyModule, importlib.import_module(f"{__name__}.{name}")) for name in _NAMES}


def study_module(name: str) -> StudyModule:
    """Return a study's module by the name of its notebook; UsageError if it is not known."""
    if name not in STUDIES:
        raise UsageError(f"study {name!r} is not known; known are {', '.join(STUDIES)}")
    return STUDIES[name]
