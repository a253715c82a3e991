"""The interface of a running cluster for tests: its facts, and what tests may change."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testcluster import clients, controlplane, nodes, procs, teardown
from testcluster.images import node_images
from testcluster.istio import Istio
from testcluster.kwok import Kwok
from testcluster.lifecycle import up
from testcluster.meshimages import MESHES, MeshImages, references
from testcluster.runner import REFERENCE, runner_archive
from testcluster.settings import (
    NODES,
    ClusterError,
    Layout,
    Options,
    node_address,
)
from testcluster.state import State
from testcluster.teardown import Say
from testcluster.volumes import Volumes


@dataclass
class Cluster:
    """A running cluster. Start it with :meth:`start` and end it with :meth:`stop`."""

    layout: Layout
    say: Say = print
    _images: Mapping[str, str] = field(default_factory=dict)

    def start(self, *, owner: str = "tests", options: Options | None = None) -> None:
        """Bring it up."""
        up(self.layout, self.say, owner=owner, options=options)

    def stop(self) -> None:
        """Bring the cluster down, if it runs; ClusterError names what remains."""
        with teardown.shielded():
            teardown.down(self.layout, self.say)

    def leftovers(self) -> list[str]:
        """Return everything of a cluster that is on this machine now."""
        return teardown.leftovers(self.layout)

    def state(self) -> State:
        """Return processes and options of the running cluster; ClusterError if none runs."""
        state = State.load(self.layout)
        if state is None:
            raise ClusterError("no cluster is up")
        return state

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.kubeconfig

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the real nodes."""
        return NODES

    @property
    def images(self) -> Mapping[str, str]:
        """References of the images that every node has, by name."""
        if not self._images:
            self._images = node_images(self.layout, meshes=bool(self._foreign.archives))
        return self._images

    @property
    def _foreign(self) -> MeshImages:
        """Return the images and charts of other projects' meshes with which it was started."""
        return MeshImages.load(self.layout)

    @property
    def mesh_images(self) -> tuple[str, ...]:
        """References of the images that came from the folder of meshes."""
        return self._foreign.references

    @property
    def charts(self) -> Mapping[str, Path]:
        """Paths of the charts that came from the folder of meshes, by name."""
        return {name: Path(path) for name, path in self._foreign.charts.items()}

    @property
    def meshes(self) -> tuple[str, ...]:
        """Return the meshes that can be installed: Istio, which is built here, and those with all images and charts."""
        return ("istio", *(name for name in MESHES if not self._foreign.lacks(name)))

    def mesh_verdict(self, name: str) -> tuple[bool, str]:
        """Whether a test of a mesh must fail rather than be skipped, and why it cannot run (empty: it can)."""
        return self._foreign.verdict(name)

    def mesh_image(self, name: str) -> str:
        """Reference of an image that came from the folder of meshes, by its last name; ClusterError for none or two."""
        return self._foreign.reference(name)

    def mesh_archive(self, name: str) -> Path:
        """Return the uncompressed archive that contains such an image."""
        wanted, archives = self.mesh_image(name), map(Path, self._foreign.archives)
        return next(path for path in archives if wanted in references(path, path))

    @property
    def logs(self) -> Path:
        """Return the folder of all components' logs, which remain after the cluster."""
        return self.layout.logs / "cluster"

    def address(self, node: str) -> str:
        """Return the address of a node, at which the machine reaches NodePorts and pods."""
        return node_address(node)

    def program(self, name: str) -> Path:
        """Path of kubectl, helm, istioctl, fortio, ...; kubectl is the cluster's own version."""
        path = self.layout.program(name)
        if not path.exists():
            raise ClusterError(
                f"{name} was not built; there are {', '.join(sorted(p.name for p in path.parent.iterdir()))}"
            )
        return path

    def environment(self) -> dict[str, str]:
        """Return an environment for programs that use the cluster: KUBECONFIG, PATH, and caches removed with it."""
        return clients.environment(self.layout)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60) -> str:
        """Run kubectl as the administrator; ClusterError with its last line if it fails."""
        return clients.kubectl(self.layout, *arguments, stdin=stdin, timeout_s=timeout_s)

    def get(self, *arguments: str) -> Any:
        """``kubectl get ... -o json``, parsed."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, manifest: str) -> None:
        """``kubectl apply`` of YAML text."""
        self.kubectl("apply", "-f", "-", stdin=manifest)

    def helm(self, *arguments: str, timeout_s: float = 180) -> str:
        """Run helm as the administrator."""
        return procs.call([self.program("helm"), *arguments], timeout_s=timeout_s, env=self.environment())

    def delete_namespace(self, name: str, timeout_s: float = 120) -> None:
        """Delete a namespace and wait until it is gone."""
        arguments = ("delete", "namespace", name, "--ignore-not-found", "--wait", f"--timeout={timeout_s:g}s")
        self.kubectl(*arguments, timeout_s=timeout_s + 10)

    def marks(self) -> list[str]:
        """Return what meshes change on the nodes, as lines: pod network, its plugins, packet rules."""
        state = self.state()
        return [line for node in NODES for line in nodes.marks(self.layout, state, node)]

    def import_archive(self, archive: Path, *on: str) -> None:
        """Import an archive's images on nodes (all if none is named) that started without them."""
        for node in on or NODES:
            inside = ("nsenter", f"--target={self.state().procs[node].pid}", "--mount", "--")
            importing = ("ctr", "--namespace", "k8s.io", "images", "import", archive)
            procs.call([*inside, *importing], timeout_s=300)

    def import_runner(self, node: str) -> str:
        """Import the image for studies inside the cluster, a gigabyte, on a node; return its reference."""
        self.import_archive(runner_archive(self.layout), node)
        return REFERENCE

    def kill_api_server(self) -> None:
        """Kill the API server at once; pods keep running."""
        controlplane.kill_api_server(self.state())

    def start_api_server(self) -> None:
        """Start the API server again, unless it runs, and wait until it is ready."""
        state = self.state()
        if not state.procs["kube-apiserver"].alive():
            controlplane.start_api_server(self.layout, state)

    @contextmanager
    def api_server_down(self) -> Iterator[None]:
        """The API server is down inside the block, and ready again after it."""
        self.kill_api_server()
        try:
            yield
        finally:
            self.start_api_server()

    def kill_node(self, node: str) -> None:
        """Cut a node's power: its containers are gone, and 40-50 s later the cluster calls it NotReady."""
        nodes.kill_node(self.layout, self.state(), node)

    def start_node(self, node: str) -> None:
        """Start a killed node again, without its containers; it is Ready and has its images then. Fine when it runs."""
        state = self.state()
        if state.procs[node].alive():
            return
        before = nodes.heartbeat(self.layout, node)
        nodes.start_node(self.layout, state, node)
        nodes.wait_node_ready(self.layout, node, since=before)
        nodes.wait_imported(self.layout, node)

    @contextmanager
    def kwok(self, nodes: int = 20) -> Iterator[Kwok]:
        """Add simulated nodes for simulated pods; they are removed after the block."""
        fake = Kwok(self, nodes)
        try:
            fake.start()
            yield fake
        finally:
            with teardown.shielded():
                fake.stop()

    @contextmanager
    def volumes(self, count: int = 8) -> Iterator[None]:
        """Add a default StorageClass and n volumes, each for one claim; they are removed after the block."""
        made = Volumes(self, count)
        try:
            made.start()
            yield
        finally:
            with teardown.shielded():
                made.stop()

    def istio(self) -> Istio:
        """Return charts, values and programs of the locally built Istio, without installing it."""
        return Istio(self)
