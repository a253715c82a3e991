"""Looking into recorded studies by hand: widgets over the public functions, and nothing that these do not do.

A view is public calls and the study they are made of, so that every view can be written down as the few lines of Python
that make it. The widgets only choose.
"""

import importlib.util

from meshtrial.errors import MissingToolError

if importlib.util.find_spec("ipywidgets") is None:
    raise MissingToolError("ipywidgets is missing, which explore needs; run `make lab` in the checkout")
