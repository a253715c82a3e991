"""Native tools: build them from ``lib/native``, find them, say their versions and licences.

Standard library only, because set-up runs this before anything else works. Limits: Linux, for they are the local
backend's; one Go module, and one library in C, built where there is a compiler.
"""

from meshtrial.native.building import WITHOUT, build, build_forkserver, provide
from meshtrial.native.places import commands, find, forkserver, version, version_of
from meshtrial.native.terms import Licence, licences
from meshtrial.native.toolchain import Go, find_go, go_environment, needed_go
