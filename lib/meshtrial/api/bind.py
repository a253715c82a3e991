"""Functions of a study's record, as functions of a :class:`~meshtrial.api.study.RecordedStudy`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from meshtrial.api.study import RecordedStudy
from meshtrial.records.dataset import StudyData

P = ParamSpec("P")
R = TypeVar("R")


def of_study(function: Callable[Concatenate[StudyData, P], R]) -> Callable[Concatenate[RecordedStudy, P], R]:
    """The same function of a recorded study; ``help()`` and type checkers see its own parameters."""

    @functools.wraps(function)
    def call(study: RecordedStudy, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(study.data, *args, **kwargs)

    call.__doc__ = (function.__doc__ or "").replace("data : StudyData", "study : RecordedStudy")
    signature = inspect.signature(function)
    first, *rest = signature.parameters.values()
    shown = first.replace(name="study", annotation="RecordedStudy", kind=inspect.Parameter.POSITIONAL_ONLY)
    call.__dict__["__signature__"] = signature.replace(parameters=[shown, *rest])
    return call
