"""The cluster that conformance tests stand on: the test cluster, or one of the user's own (see ``owncluster``).

The test cluster has the images that are built here, and those of a folder; an own cluster pulls the releases that the
meshes' data names. What else runs on it is compared before and after, never touched.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from owncluster import OWN_CLUSTER_FILE
from remains import Remains, fingerprint
from test_backend_support import images_of, options_for
from testcluster import Cluster, ClusterError, call

from meshtrial.testbed.kubernetes import KubernetesOptions, KubernetesTestbed
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.meshread import find_meshes


@dataclass(frozen=True)
class Ground:
    """The cluster that a conformance test stands on.

    Attributes
    ----------
    kubeconfig : Path
    meshes : tuple of str
        Those that can be installed on it; on an own cluster all, for it pulls their releases.
    cluster : Cluster, optional
        The test cluster; None on an own one.
    cluster_file : str
        The user's options for an own cluster.
    """

    kubeconfig: Path
    meshes: tuple[str, ...]
    cluster: Cluster | None = None
    cluster_file: str = ""

    @property
    def own(self) -> bool:
        """Whether it is the user's own cluster: other things may run on it."""
        return self.cluster is None

    def options(self, **more: Any) -> dict[str, Any]:
        """Options of a study on it."""
        if self.cluster is not None:
            return options_for(self.cluster, **more)
        file = {"cluster_file": self.cluster_file} if self.cluster_file else {}
        return {"kubernetes": {**file, "kubeconfig": str(self.kubeconfig), **more}}

    @contextmanager
    def bed(self, **more: Any) -> Iterator[KubernetesTestbed]:
        """A testbed on it, closed whatever happens."""
        bed = KubernetesTestbed(self.options(**more))
        try:
            yield bed
        finally:
            if self.cluster is not None:
                self.cluster.start_api_server()
            bed.close()

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60) -> str:
        """Run kubectl on it; ClusterError with its last line if it fails."""
        if self.cluster is not None:
            return self.cluster.kubectl(*arguments, stdin=stdin, timeout_s=timeout_s)
        program = shutil.which("kubectl")
        if program is None:
            raise ClusterError("kubectl is not on PATH; tests on a cluster of your own need it")
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        return call([program, *arguments], stdin=stdin, timeout_s=timeout_s, env=environment)

    def get(self, *arguments: str) -> Any:
        """``kubectl get ... -o json``, parsed."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def require(self, mesh: str) -> None:
        """Skip the test by the mesh's name where it cannot be installed; fail where it must be (CI with the folder)."""
        if self.cluster is not None:
            must, reason = self.cluster.mesh_verdict(mesh)
            if reason and must:
                pytest.fail(reason, pytrace=False)
            if reason:
                pytest.skip(reason)

    def require_app(self, app: str) -> None:
        """Skip the test by the application's name where one of its images cannot be had."""
        chosen = KubernetesOptions.read(self.options()).images
        for name, reference in images_of(app).items():
            # A cluster of the user's own pulls what a registry has; the project's own programs are on none.
            if name not in chosen and (self.cluster is not None or reference.startswith("meshtrial/")):
                pytest.skip(f"{app}: its image {name} is not here")

    @contextmanager
    def crds_for(self, mesh: Mesh) -> Iterator[None]:
        """Bring what features ask of a cluster (the Gateway API's CRDs), then take it away; an own one has its own."""
        wanted = {kind for feature in mesh.features.values() for kind in feature.requires}
        if self.cluster is None or not wanted:
            yield
            return
        folder = str(self.cluster.istio().gateway_crds)
        self.kubectl("apply", "--server-side", "-f", folder)
        self.kubectl(
            "wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{kind}" for kind in sorted(wanted))
        )
        try:
            yield
        finally:
            self.kubectl("delete", "-f", folder, "--ignore-not-found")

    # --- what is on it ------------------------------------------------------------------------------------------------

    def remains(self) -> Remains:
        """Names of everything on it; of the test cluster also what meshes change on nodes."""
        marks = self.cluster.marks() if self.cluster is not None else ()
        return Remains.look(self.kubectl, marks)

    def fingerprint(self, mesh: Mesh) -> dict[str, Any]:
        """What a mesh consists of, to see whether somebody changed it."""
        return fingerprint(self.kubectl, mesh)


def ground_on(cluster: Cluster) -> Ground:
    """The test cluster, with the meshes that it has images of."""
    return Ground(cluster.kubeconfig, cluster.meshes, cluster)


def own_ground(kubeconfig: Path, environ: Mapping[str, str] = os.environ) -> Ground:
    """A cluster of the user's own."""
    file = environ.get(OWN_CLUSTER_FILE, "")
    options = KubernetesOptions.read({"kubernetes": {"cluster_file": file} if file else {}})
    meshes = tuple(name for name, mesh in find_meshes(options).items() if not mesh.reference)
    return Ground(kubeconfig, meshes, cluster_file=file)
