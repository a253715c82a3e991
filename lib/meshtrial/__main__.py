"""``python -m meshtrial``."""

from meshtrial.cli import entry

entry()
