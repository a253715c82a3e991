"""Randomised, controlled trials of service meshes.

For notebooks and scripts::

    import meshtrial as mt

    study = mt.run("ambient_vs_no_mesh", rps=500)       # measure now; or mt.open_study(folder)
    study.verdicts()                                    # polars frames: runs(), responses(), requests(run_id)
    mt.figures.forest(study)                            # figures and tables show themselves in a notebook
    mt.compare("none/*.json", {"istio": "istio/*.json"})
    mt.explore()                                        # widgets over what is recorded, in JupyterLab

What is public is what ``dir(meshtrial)`` lists. Every name is loaded when it is first used, so that importing this
costs nothing; the rooms below it are the library's own and may change.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from meshtrial.api import figures as figures
    from meshtrial.api import sections as sections
    from meshtrial.api import tables as tables
    from meshtrial.api.articles import Articles as Articles
    from meshtrial.api.articles import BestOfN as BestOfN
    from meshtrial.api.articles import best_of_n as best_of_n
    from meshtrial.api.articles import published_articles as published_articles
    from meshtrial.api.comparison import Comparison as Comparison
    from meshtrial.api.comparison import compare as compare
    from meshtrial.api.comparison import compare_table as compare_table
    from meshtrial.api.schema import columns as columns
    from meshtrial.api.study import RecordedStudy as RecordedStudy
    from meshtrial.api.study import open_study as open_study
    from meshtrial.api.study import recorded_studies as recorded_studies
    from meshtrial.api.study import run as run
    from meshtrial.api.study import run_notebook as run_notebook
    from meshtrial.errors import MeshtrialError as MeshtrialError
    from meshtrial.explore.app import Explorer as Explorer
    from meshtrial.explore.app import explore as explore

# Where each public name lives.
HOMES = {
    name: f"meshtrial.{module}"
    for module, names in {
        "api": ("figures", "sections", "tables"),
        "api.articles": ("Articles", "BestOfN", "best_of_n", "published_articles"),
        "api.comparison": ("Comparison", "compare", "compare_table"),
        "api.schema": ("columns",),
        "api.study": ("RecordedStudy", "open_study", "recorded_studies", "run", "run_notebook"),
        "errors": ("MeshtrialError",),
        "explore.app": ("Explorer", "explore"),
    }.items()
    for name in names
}

if not TYPE_CHECKING:  # a type checker would take every name for one that is there, and none for a public one
    __all__ = sorted(HOMES)

    def __getattr__(name: str) -> Any:
        if name not in HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; public are {', '.join(__all__)}")
        home = importlib.import_module(HOMES[name])
        public = globals()[name] = getattr(home, name, None) or importlib.import_module(f"{HOMES[name]}.{name}")
        return public


def __dir__() -> list[str]:
    return [*HOMES, "__version__"]


class _Front(ModuleType):
    """Importing the room ``meshtrial.compare`` would put it over the function of that name; the function stays."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Front
