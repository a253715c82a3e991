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
    from meshtrial.api import figures, sections, tables
    from meshtrial.api.articles import Articles, BestOfN, best_of_n, published_articles
    from meshtrial.api.comparison import Comparison, compare, compare_table
    from meshtrial.api.schema import columns
    from meshtrial.api.study import RecordedStudy, open_study, recorded_studies, run, run_notebook
    from meshtrial.errors import MeshtrialError
    from meshtrial.explore.app import Explorer, explore

__all__ = [
    "Articles",
    "BestOfN",
    "Comparison",
    "Explorer",
    "MeshtrialError",
    "RecordedStudy",
    "best_of_n",
    "columns",
    "compare",
    "compare_table",
    "explore",
    "figures",
    "open_study",
    "published_articles",
    "recorded_studies",
    "run",
    "run_notebook",
    "sections",
    "tables",
]
# Where each name lives; the modules are public as they are.
HOMES = {
    "Articles": "meshtrial.api.articles",
    "BestOfN": "meshtrial.api.articles",
    "Comparison": "meshtrial.api.comparison",
    "Explorer": "meshtrial.explore.app",
    "MeshtrialError": "meshtrial.errors",
    "RecordedStudy": "meshtrial.api.study",
    "best_of_n": "meshtrial.api.articles",
    "columns": "meshtrial.api.schema",
    "compare": "meshtrial.api.comparison",
    "compare_table": "meshtrial.api.comparison",
    "explore": "meshtrial.explore.app",
    "figures": "meshtrial.api.figures",
    "open_study": "meshtrial.api.study",
    "published_articles": "meshtrial.api.articles",
    "recorded_studies": "meshtrial.api.study",
    "run": "meshtrial.api.study",
    "run_notebook": "meshtrial.api.study",
    "sections": "meshtrial.api.sections",
    "tables": "meshtrial.api.tables",
}


if not TYPE_CHECKING:  # a type checker would take every name for one that is there

    def __getattr__(name: str) -> Any:
        if name not in HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; public are {', '.join(__all__)}")
        home = importlib.import_module(HOMES[name])
        found = home if HOMES[name].rpartition(".")[2] == name else getattr(home, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Front(ModuleType):
    """Importing the room ``meshtrial.compare`` would put it over the function of that name; the function stays."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in HOMES and isinstance(value, ModuleType) and value.__name__ != HOMES[name]:
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Front
