"""Turn functions of a study's record into functions of a :class:`~meshtrial.api.study.RecordedStudy`.

Their results for a study that was re-analysed after the fact are marked here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from meshtrial.api.study import RecordedStudy
from meshtrial.records.dataset import StudyData
from meshtrial.report.marking import marked

P = ParamSpec("P")
R = TypeVar("R")


def of_study(function: Callable[Concatenate[StudyData, P], R]) -> Callable[Concatenate[RecordedStudy, P], R]:
    """Return the function for a recorded study; ``help()`` and type checkers see its own parameters."""

    def call(study: RecordedStudy, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return marked(function(study.data, *args, **kwargs), study.after_the_fact)

    return _like(function, call)


def of_record(function: Callable[Concatenate[StudyData, P], R]) -> Callable[Concatenate[RecordedStudy, P], R]:
    """Return the function for the declared analysis of a recorded study, without any re-analysis after the fact."""

    def call(study: RecordedStudy, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(study.recorded, *args, **kwargs)

    return _like(function, call)


def _like(
    function: Callable[Concatenate[StudyData, P], R], call: Callable[Concatenate[RecordedStudy, P], R]
) -> Callable[Concatenate[RecordedStudy, P], R]:
    functools.update_wrapper(call, function)
    call.__doc__ = (function.__doc__ or "").replace("data : StudyData", "study : RecordedStudy")
    signature = inspect.signature(function)
    first, *rest = signature.parameters.values()
    study = first.replace(name="study", annotation="RecordedStudy", kind=inspect.Parameter.POSITIONAL_ONLY)
    call.__dict__["__signature__"] = signature.replace(parameters=[study, *rest])
    return call
