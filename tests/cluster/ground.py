"""The cluster of the conformance tests: the test cluster, or one of the user's own (see ``owncluster``).

The test cluster has the images that are built here, and those of a folder; an own cluster pulls the releases that the
meshes' data names. Everything else on it is compared before and after, and never changed.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from owncluster import OWN_CLUSTER_FILE
from remains import Remains, fingerprint
from test_backend_support import images_of, options_for
from testcluster import Cluster, ClusterError, call

from meshtrial.design.study import Study
from meshtrial.testbed.kubernetes.meshdata import Mesh, find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed


@dataclass(frozen=True)
class Ground:
    """The cluster on which a conformance test runs."""

    kubeconfig: Path
    meshes: tuple[str, ...]  # installable ones; the user's own cluster pulls releases of all
    cluster: Cluster | None = None  # the test cluster
    cluster_file: str = ""  # the user's options for an own cluster

    @property
    def own(self) -> bool:
        """Whether it is the user's own cluster, where other things may run."""
        return self.cluster is None

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the options of a study on it."""
        if self.cluster is not None:
            return options_for(self.cluster, **more)
        file = {"cluster_file": self.cluster_file} if self.cluster_file else {}
        return {"kubernetes": {**file, "kubeconfig": str(self.kubeconfig), **more}}

    @contextmanager
    def bed(self, **more: Any) -> Iterator[KubernetesTestbed]:
        """Yield a testbed on it, and close it in any case."""
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

    def asked_for(self, study: Study) -> AbstractContextManager[None]:
        """Install what the meshes of a study require of a cluster."""
        known = find_meshes(KubernetesOptions.read(self.options()))
        names = dict.fromkeys(t.versioned for t in study.treatments if t.versioned in known)
        return self.asked_by(*(known[name] for name in names))

    def require(self, mesh: str) -> None:
        """Skip the test by the mesh's name where it cannot be installed; fail where it must be (CI with the folder)."""
        if self.cluster is not None:
            must, reason = self.cluster.mesh_verdict(mesh)
            if reason and must:
                pytest.fail(reason, pytrace=False)
            if reason:
                pytest.skip(reason)

    def require_app(self, app: str) -> None:
        """Skip the test by the application's name if one of its images is unavailable."""
        chosen = KubernetesOptions.read(self.options()).images
        for name, reference in images_of(app).items():
            # The user's own cluster pulls from registries, which do not have the project's own programs.
            if name not in chosen and (self.cluster is not None or reference.startswith("meshtrial/")):
                pytest.skip(f"{app}: its image {name} is not here")

    @contextmanager
    def asked_by(self, *meshes: Mesh) -> Iterator[None]:
        """Install what meshes require of a cluster (CRDs, volumes), then remove it; a user's own cluster has it."""
        asked = {kind for mesh in meshes for part in (mesh, *mesh.features.values()) for kind in part.requires}
        if self.cluster is None:
            yield
            return
        with contextlib.ExitStack() as brought:
            if asked:
                brought.enter_context(self._gateway_crds(self.cluster, asked))
            if any(mesh.storage for mesh in meshes):
                brought.enter_context(self.cluster.volumes())
            yield

    @contextmanager
    def ready_for(self, bed: KubernetesTestbed, mesh: str) -> Iterator[None]:
        """Install what a mesh requires of a cluster for the block; the mesh is removed first. Nothing for no name."""
        if not mesh:
            yield
            return
        self.require(mesh)
        with self.asked_by(bed.meshes[mesh]):
            try:
                yield
            finally:
                bed.uninstall(mesh)

    @contextmanager
    def _gateway_crds(self, cluster: Cluster, asked: set[str]) -> Iterator[None]:
        folder = str(cluster.istio().gateway_crds)
        self.kubectl("apply", "--server-side", "-f", folder)
        try:
            for kind, version in (one.split("/") for one in asked if "/" in one):
                names = [one["name"] for one in self.get("crd", kind)["spec"]["versions"]]
                place = f"/spec/versions/{names.index(version)}/served"
                patch = json.dumps([{"op": "replace", "path": place, "value": True}])
                self.kubectl("patch", "crd", kind, "--type=json", "-p", patch)
            crds = sorted(f"crd/{one.partition('/')[0]}" for one in asked)
            self.kubectl("wait", "--for=condition=Established", "--timeout=30s", *crds)
            yield
        finally:
            self.kubectl("delete", "-f", folder, "--ignore-not-found")

    def remains(self) -> Remains:
        """Return the names of everything on it; for the test cluster also changes that meshes make on nodes."""
        marks = self.cluster.marks() if self.cluster is not None else ()
        return Remains.look(self.kubectl, marks)

    def fingerprint(self, mesh: Mesh) -> dict[str, Any]:
        """Return a mesh's objects, to detect changes."""
        return fingerprint(self.kubectl, mesh)


def ground_on(cluster: Cluster) -> Ground:
    """The test cluster, with the meshes whose images it has."""
    return Ground(cluster.kubeconfig, cluster.meshes, cluster)


def own_ground(kubeconfig: Path, environ: Mapping[str, str] = os.environ) -> Ground:
    """A cluster of the user's own."""
    file = environ.get(OWN_CLUSTER_FILE, "")
    options = KubernetesOptions.read({"kubernetes": {"cluster_file": file} if file else {}})
    meshes = tuple(name for name, mesh in find_meshes(options).items() if not mesh.reference)
    return Ground(kubeconfig, meshes, cluster_file=file)
