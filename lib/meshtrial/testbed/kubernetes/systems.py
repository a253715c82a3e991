"""A generated system on a cluster: each service is a Deployment of fortio, with its own account and, in a mesh, proxy.

A service that calls others is fortio's multi-proxy (``-M``). It makes all calls of a request at the same time, answers
when all have returned, and fails the request if one of them failed: a run without errors has made every call. Systems
for a cluster are drawn like that (`design.generated`), because in sequence fortio reports a failure of the first call
only. It does more than the local backend's `call-tree`, such as adding two headers to each call; its CPU is the
application's, with and without a mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from meshtrial.design.system import System
from meshtrial.testbed.kubernetes import manifests
from meshtrial.testbed.kubernetes.manifests import Json

_FILE, _NAME = "system/service.yaml", "service"  # below apps/; the name of its service
_LISTEN, _ECHO = "-http-port=8080", "-http-port=8081"  # the echo server of a fortio that listens with its multi-proxy


def objects(system: System, apps: Path) -> list[Json]:
    """Return the objects of every service, from the template in the folder of the applications."""
    template = manifests.read(apps / _FILE)
    entry = system.calls[0].callee
    made: list[Json] = []
    for name in (call.callee for call in system.calls):
        called = [call.callee for call in system.calls if call.caller == name]
        copies = manifests.patched(template, manifests.rewritten(_NAME, name), _calling(called))
        for item in copies if name != entry else ():
            item["metadata"].pop("annotations", None)
        made += copies
    return made


@manifests.patch
def _calling(manifest: Json, called: Sequence[str]) -> None:
    """Let the service call others at the same time, which fortio does on the port where it answers."""
    urls = [f"http://{name}.default.svc.cluster.local:8080/" for name in called]
    for container in manifests.containers(manifest) if urls else ():
        command, *arguments = (_ECHO if argument == _LISTEN else argument for argument in container["args"])
        container["args"] = [command, "-M", " ".join(["8080", *urls]), "-multi-mirror-origin=false", *arguments]
