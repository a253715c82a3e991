"""Packages that only some commands need, and the extra of meshtrial that installs each.

The extras are declared once, in pyproject.toml, and read from the installed package.
"""

import importlib.metadata
import importlib.util
import re
from collections import Counter

from meshtrial.errors import MissingToolError

_PACKAGES = {"jwt": "pyjwt", "IPython": "ipykernel", "nbformat": "nbconvert"}  # modules that another name installs


def require(module: str) -> None:
    """Raise MissingToolError if the package of a module is not installed."""
    if importlib.util.find_spec(module) is None:
        raise MissingToolError(advice(module) or f"{module} is not installed; install it")


def advice(module: str) -> str | None:
    """Return the smallest extra that contains a module's package, in one line; None if no extra does."""
    top = module.partition(".")[0]
    package = _PACKAGES.get(top, top)
    try:
        declared = importlib.metadata.requires("meshtrial") or ()
    except importlib.metadata.PackageNotFoundError:  # sources that are on the path, but not installed
        declared = ()
    found = [re.fullmatch(r"([\w-]+).*\bextra == ['\"](\w+)['\"]\)?", requirement) for requirement in declared]
    named = [(match[1], match[2]) for match in found if match]
    sizes = Counter(extra for _, extra in named)  # an extra that contains another one lists its packages, too
    fitting = sorted({extra for name, extra in named if name == package}, key=lambda extra: sizes[extra])
    extras = [f"meshtrial[{extra}]" for extra in fitting if sizes[extra] == sizes[fitting[0]]]
    return f"{package} is not installed; install {' or '.join(extras)}" if extras else None
