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

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    """The module of each public name, from the list in ``__init__.pyi`` that type checkers and editors read."""
    listed = ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    imports = (node for node in listed if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; public are {', '.join(__all__)}")
    home = importlib.import_module(_HOMES[name])
    public = globals()[name] = getattr(home, name, None) or importlib.import_module(f"{_HOMES[name]}.{name}")
    return public


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Front(ModuleType):
    """Importing the room ``meshtrial.compare`` would put it over the function of that name; the function stays.

    Python sets a module that it loads as an attribute of its package, whoever imports it: as long as a room bears the
    name of a public function, only the package itself can refuse that.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Front
