"""Native tools: build them from ``lib/native``, find them, and report their versions and licences.

Standard library only, because set-up runs this before anything is installed. Limits: Linux only, like the local
backend; one Go module, and one library in C that is built if there is a compiler.
"""

from meshtrial.native.building import NO_FORKSERVER, Licence, build, build_forkserver, licences, provide
from meshtrial.native.places import commands, find, forkserver, version, version_of
from meshtrial.native.releases import is_release, released_envoy, releases
from meshtrial.native.toolchain import Go, find_go, go_environment, needed_go
