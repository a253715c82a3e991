"""Randomised, controlled trials of service meshes.

For notebooks and scripts::

    import meshtrial as mt

    study = mt.run("ambient_vs_no_mesh", rps=500)       # measure now; or mt.open_study(folder)
    study.verdicts()                                    # polars frames: also runs(), responses(), requests(run_id)
    mt.figures.forest(study)                            # figures and tables display themselves in a notebook
    mt.compare("none/*.json", {"istio": "istio/*.json"})
    mt.explore()                                        # widgets for recorded studies, in JupyterLab

``dir(meshtrial)`` lists all public names. Each is imported when it is first used, so that ``import meshtrial`` is
quick. The packages below are internal and may change.
"""

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    """Return the module of each public name, from ``__init__.pyi``, which type checkers and editors read."""
    listed = ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    imports = (node for node in listed if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; choose one of {', '.join(__all__)}")
    home = importlib.import_module(_HOMES[name])
    public = globals()[name] = getattr(home, name, None) or importlib.import_module(f"{_HOMES[name]}.{name}")
    return public


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Front(ModuleType):
    """Keeps a public function when the package of the same name is imported, such as ``meshtrial.compare``.

    Python sets every imported module as an attribute of its package; only the package itself can prevent that.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Front
