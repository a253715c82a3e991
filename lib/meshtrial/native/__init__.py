"""Native tools: build them from ``lib/native``, find them, say their versions and licences.

Standard library only, because set-up runs this before anything else works. Limits: Linux; one Go module, all of its
commands built together.
"""

from meshtrial.native.building import build
from meshtrial.native.places import commands, find, version
from meshtrial.native.terms import Licence, licences
from meshtrial.native.toolchain import Go, find_go, go_environment, needed_go

__all__ = [
    "Go",
    "Licence",
    "build",
    "commands",
    "find",
    "find_go",
    "go_environment",
    "licences",
    "needed_go",
    "version",
]
