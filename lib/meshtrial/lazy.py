"""Polars, imported when it is first used: ``from meshtrial.lazy import pl``.

It is half of an installation, and comparing files needs none of it. So the modules that ``meshtrial compare`` imports
take it from here, and use it in functions only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
else:

    class _Polars:
        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module("polars"), name)

    pl = _Polars()

__all__ = ["pl"]
