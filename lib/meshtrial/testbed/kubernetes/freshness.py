"""How fresh a run is: where a block begins, and what was reinstalled for it, for the record."""

from __future__ import annotations

import time
from typing import Any

from meshtrial.testbed.kubernetes.meshes import MeshInstaller
from meshtrial.testbed.kubernetes.options import KubernetesOptions


class Blocks:
    """Tells one block of a plan from the next: another load, or a treatment that was seen already."""

    def __init__(self) -> None:
        self._load = ""
        self._seen: set[str] = set()

    def enter(self, load: str, treatment: str) -> bool:
        """Note a run; True when it begins a block."""
        new = load != self._load or treatment in self._seen
        if new:
            self._load, self._seen = load, set()
        self._seen.add(treatment)
        return new


def policy_record(
    options: KubernetesOptions, installer: MeshInstaller, reinstalled: bool, because: str = ""
) -> dict[str, Any]:
    """The reinstall policy and what it came to, for ``run.json``.

    Parameters
    ----------
    because : str
        What had befallen the mesh that stood, where it was reinstalled out of turn.
    """
    now = time.time()
    found: dict[str, Any] = {
        "mesh_install": options.mesh_install,
        "mesh_reinstall": options.mesh_reinstall,
        "app_reinstall": options.app_reinstall,
        "mesh_installed_for_this_run": reinstalled,
        "installed_meshes": {name: round(now - at, 1) for name, at in installer.installed.items()},
        "install_s": {name: round(s, 2) for name, s in installer.install_s.items()},
    }
    if because:
        found["reinstalled_because"] = because
    if installer.appeared:
        found["appeared_and_left_alone"] = list(installer.appeared)
    return found
