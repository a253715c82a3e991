"""Looking into recorded studies by hand: widgets choose, and what they show is public calls, written out below it."""

import importlib.util

from meshtrial.errors import MissingToolError

if importlib.util.find_spec("ipywidgets") is None:
    raise MissingToolError("ipywidgets is missing, which explore needs; run `make lab` in the checkout")
