"""Explore recorded studies with widgets, which also show the public calls behind each view."""

import importlib.util

from meshtrial.errors import MissingToolError

if importlib.util.find_spec("ipywidgets") is None:
    raise MissingToolError("explore needs ipywidgets, which is missing; run `make lab` in the checkout")
