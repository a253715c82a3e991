"""What the explorer shows: a study with what was chosen of it, and public calls; and the lines of Python that say so.

What is shown and what is written down come from one place, so that they cannot differ.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from meshtrial.api import figures, sections, tables
from meshtrial.api.study import RecordedStudy, open_study
from meshtrial.errors import MeshtrialError
from meshtrial.report.markup import paragraph, part, style_sheet

_ROOMS: dict[str, ModuleType] = {"figures": figures, "sections": sections, "tables": tables}
OPENED = 8  # studies that are kept open; going back to one is quick


@dataclass(frozen=True)
class Chosen:
    """A study, what is asked of it after the fact, and what of it is shown; empty is all of it, as it was declared."""

    path: Path
    treatments: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    margin: str = ""
    alpha: float | None = None
    baseline: str = ""

    @property
    def asked(self) -> dict[str, Any]:
        """Arguments of :meth:`RecordedStudy.reanalyse`; empty for the study's own verdicts."""
        asked = {"margin": self.margin, "alpha": self.alpha, "baseline": self.baseline}
        return {name: value for name, value in asked.items() if value not in ("", None)}

    @property
    def part(self) -> dict[str, Any]:
        """Arguments of :meth:`RecordedStudy.only`; empty for the whole study."""
        part = {"treatments": list(self.treatments), "loads": list(self.loads)}
        return {name: value for name, value in part.items() if value}

    def study(self) -> RecordedStudy:
        """The study that a view is made of."""
        return _made(self)

    def lines(self) -> list[str]:
        """The one or two lines of Python that make it."""
        chain = (f".{verb}({_written(given)})" for verb, given in (("reanalyse", self.asked), ("only", self.part)))
        chosen = "".join(text for text in chain if not text.endswith("()"))
        return [f"study = mt.open_study({typed(self.path)!r})", *([f"study = study{chosen}"] if chosen else [])]


@lru_cache(maxsize=OPENED)
def opened(path: Path) -> RecordedStudy:
    """A study, read once."""
    return open_study(path)


@lru_cache(maxsize=32)
def _made(chosen: Chosen) -> RecordedStudy:
    study = opened(chosen.path)
    if chosen.asked:
        study = study.reanalyse(**chosen.asked)
    return study.only(**chosen.part) if chosen.part else study


@dataclass(frozen=True)
class Call:
    """A public function of a study, by its name behind ``mt.``, and its other arguments.

    An argument may be another study, by what was chosen of it.
    """

    name: str
    arguments: tuple[Any, ...] = ()

    def made(self, study: RecordedStudy) -> Any:
        """What it returns."""
        room, _, function = self.name.partition(".")
        given = [one.study() if isinstance(one, Chosen) else one for one in self.arguments]
        return getattr(_ROOMS[room], function)(study, *given)

    def line(self) -> str:
        """How it is written."""
        given = ["other" if isinstance(one, Chosen) else repr(one) for one in self.arguments]
        return f"mt.{self.name}({', '.join(['study', *given])})"


@dataclass(frozen=True)
class View:
    """Something that is shown: public calls of what was chosen, one below the other."""

    chosen: Chosen
    calls: tuple[Call, ...]

    def html(self) -> str:
        """The view; where it cannot be made, the one sentence that says why."""
        return _html_of(self)

    def code(self) -> str:
        """The lines of Python that make it, at most three and one for each further call; ``mt`` is ``meshtrial``."""
        others = {one: None for call in self.calls for one in call.arguments if isinstance(one, Chosen)}
        opening = [line.replace("study", "other", 1) for one in others for line in one.lines()]
        return "\n".join([*self.chosen.lines(), *opening, *(call.line() for call in self.calls)])


@lru_cache(maxsize=64)
def _html_of(view: View) -> str:
    try:
        study = view.chosen.study()
        return "\n".join(str(call.made(study)._repr_html_()) for call in view.calls)
    except MeshtrialError as error:
        return said(str(error))


def forget() -> None:
    """Read every study again."""
    for kept in (opened, _made, _html_of):
        kept.cache_clear()


def said(text: str) -> str:
    """A sentence in place of a view."""
    return str(part("fragment", paragraph(text).html, style_sheet()))


def typed(path: Path) -> str:
    """A path as one would type it in the notebook that runs now."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)


def _written(given: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given.items())
