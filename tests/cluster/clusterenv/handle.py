"""What a test holds in its hands: the running cluster, and the things it may do to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterenv import clients, controlplane, nodes, procs, teardown
from clusterenv.images import built_images
from clusterenv.lifecycle import up
from clusterenv.settings import (
    HERE,
    ISTIO_HUB,
    ISTIO_TAG,
    ISTIO_VERSION,
    KUBERNETES_VERSION,
    KWOK_VERSION,
    NODES,
    ClusterError,
    Layout,
    Options,
    image_architecture,
    node_address,
)
from clusterenv.state import State
from clusterenv.teardown import Say

ISTIO_NAMESPACE = "istio-system"


@dataclass
class Cluster:
    """A running cluster. Start it with :meth:`start`, end it with :meth:`stop`."""

    layout: Layout
    say: Say = print
    _images: Mapping[str, str] = field(default_factory=dict)

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self, *, owner: str = "tests", options: Options | None = None) -> None:
        """Bring it up."""
        up(self.layout, self.say, owner=owner, options=options)

    def stop(self) -> None:
        """Bring it down; a ClusterError says what is left. Fine when it is down already."""
        with teardown.shielded():
            teardown.down(self.layout, self.say)

    def leftovers(self) -> list[str]:
        """Everything of a cluster that is on this machine now."""
        return teardown.leftovers(self.layout)

    def _state(self) -> State:
        state = State.load(self.layout)
        if state is None:
            raise ClusterError("no cluster is up")
        return state

    # --- what it has --------------------------------------------------------------------------------------------------

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
            self._images = built_images(self.layout)
        return self._images

    @property
    def logs(self) -> Path:
        """Logs of every component; they stay after the cluster."""
        return self.layout.logs / "cluster"

    def address(self, node: str) -> str:
        """Address of a node: NodePorts and pods can be reached from the machine."""
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
        """Environment for a program that uses the cluster: KUBECONFIG, PATH, and caches that go with the cluster."""
        return clients.environment(self.layout)

    # --- talking to it ------------------------------------------------------------------------------------------------

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

    # --- hurting it ---------------------------------------------------------------------------------------------------

    def kill_api_server(self) -> None:
        """Kill the API server at once; pods run on."""
        controlplane.kill_api_server(self._state())

    def start_api_server(self) -> None:
        """Start the API server again and wait until it is ready; fine when it runs."""
        state = self._state()
        if not state.procs["kube-apiserver"].alive():
            controlplane.start_api_server(self.layout, state)

    @contextmanager
    def api_server_down(self) -> Iterator[None]:
        """Inside the block there is no API server; after it there is one again, and it is ready."""
        self.kill_api_server()
        try:
            yield
        finally:
            self.start_api_server()

    def kill_node(self, node: str) -> None:
        """Cut a node's power: its containers are gone, and 40-50 s later the cluster calls it NotReady."""
        nodes.kill_node(self.layout, self._state(), node)

    def start_node(self, node: str) -> None:
        """Start a killed node again, without its containers; it is Ready and has its images then. Fine when it runs."""
        state = self._state()
        if state.procs[node].alive():
            return
        before = nodes.heartbeat(self.layout, node)
        nodes.start_node(self.layout, state, node)
        nodes.wait_node_ready(self.layout, node, since=before)
        nodes.wait_imported(self.layout, node)

    # --- adding to it -------------------------------------------------------------------------------------------------

    @contextmanager
    def kwok(self, nodes: int = 20) -> Iterator[Kwok]:
        """Add nodes that only pretend, for pods that only pretend; they are removed after the block."""
        fake = Kwok(self, nodes)
        try:
            fake.start()
            yield fake
        finally:
            with teardown.shielded():
                fake.stop()

    def istio(self) -> Istio:
        """Charts, values and programs of the locally built Istio; nothing is installed by asking."""
        return Istio(self)


@dataclass
class Kwok:
    """Pretended nodes ``kwok-000`` ...: labelled ``type=kwok``, tainted ``kwok.x-k8s.io/node=fake:NoSchedule``.

    A pod lands there by :attr:`node_selector` and :attr:`tolerations`, is Ready at once, has an address that nobody
    answers at, and uses nothing.
    """

    cluster: Cluster
    count: int

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return tuple(f"kwok-{number:03d}" for number in range(self.count))

    @property
    def node_selector(self) -> dict[str, str]:
        """What a pod must select."""
        return {"type": "kwok"}

    @property
    def tolerations(self) -> list[dict[str, str]]:
        """What a pod must tolerate."""
        return [{"key": "kwok.x-k8s.io/node", "operator": "Equal", "value": "fake", "effect": "NoSchedule"}]

    def _manifest(self) -> str:
        size = {"cpu": "32", "memory": "256Gi", "pods": "250"}
        # A version, for meshes choose by the oldest node: with one that they cannot read, Istio has no native sidecars.
        info = {
            "kubeletVersion": f"v{KUBERNETES_VERSION}",
            "kubeProxyVersion": f"v{KUBERNETES_VERSION}",
            "containerRuntimeVersion": f"kwok://{KWOK_VERSION}",
            "operatingSystem": "linux",
            "architecture": image_architecture(),
            **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"), "pretended"),
        }
        items = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {
                        "type": "kwok",
                        "kubernetes.io/hostname": name,
                        "kubernetes.io/os": "linux",
                        "kubernetes.io/arch": image_architecture(),
                    },
                },
                "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
                "status": {"allocatable": size, "capacity": size, "nodeInfo": info},
            }
            for name in self.names
        ]
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})

    def start(self) -> None:
        """Start the simulator, create the nodes and wait until they are Ready."""
        layout = self.cluster.layout
        stages = sorted((layout.share / "kwok").glob("*.yaml"))
        command: list[str | Path] = [
            layout.program("kwok"),
            f"--kubeconfig={layout.kubeconfig}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-label-selector=type=kwok",
            "--cidr=10.245.0.0/16",
            "--node-port=0",
            *(f"--config={stage}" for stage in stages),
        ]
        controlplane.start_daemon(layout, self.cluster._state(), "kwok", command)
        self.cluster.apply(self._manifest())
        self.cluster.kubectl("wait", "node", "-l", "type=kwok", "--for=condition=Ready", "--timeout=60s", timeout_s=70)

    def stop(self) -> None:
        """Delete the pods that are left and the nodes, then end the simulator."""
        self.cluster.start_api_server()
        pods = self.cluster.get("pods", "--all-namespaces")["items"]
        for node in sorted({pod["spec"].get("nodeName", "") for pod in pods} & set(self.names)):
            there = ("--all-namespaces", f"--field-selector=spec.nodeName={node}")
            self.cluster.kubectl("delete", "pods", *there, "--force", "--grace-period=0", "--wait=false")
        self.cluster.kubectl("delete", "node", "-l", "type=kwok", "--ignore-not-found", "--wait", timeout_s=90)
        state = self.cluster._state()
        if (proc := state.procs.pop("kwok", None)) is not None:
            controlplane.end(proc)
            state.save()


@dataclass
class Istio:
    """The locally built Istio: real istiod, webhook and agents on a vanilla Envoy. Not a release: say so in records."""

    cluster: Cluster

    version = ISTIO_VERSION
    hub = ISTIO_HUB
    tag = ISTIO_TAG
    namespace = ISTIO_NAMESPACE

    @property
    def charts(self) -> Path:
        """Folder with the charts base, istiod, cni, ztunnel and gateway of this very version."""
        return self.cluster.layout.share / "istio" / "charts"

    @property
    def gateway_crds(self) -> Path:
        """Folder with the standard CRDs of the Gateway API."""
        return self.cluster.layout.share / "gateway-api" / "crds"

    def values(self) -> str:
        """Return the values of the istiod chart that the local images need, as YAML."""
        text = (HERE / "manifests" / "values-istiod.yaml").read_text()
        return text.replace("@HUB@", ISTIO_HUB).replace("@TAG@", ISTIO_TAG)

    def values_file(self) -> Path:
        """Return the same in a file that lives as long as the cluster does."""
        path = self.cluster.layout.run / "values-istiod.yaml"
        path.write_text(self.values())
        return path

    def install(self, *, extra: Sequence[str] = (), timeout_s: float = 120) -> None:
        """Install CRDs and istiod with helm and wait until istiod is ready.

        Parameters
        ----------
        extra : sequence of str
            More arguments of ``helm upgrade`` for istiod, ``--set`` and the like.
        timeout_s : float
            For each of the two charts.
        """
        wait = ("--wait", f"--timeout={timeout_s:g}s")
        where = ("-n", ISTIO_NAMESPACE)
        base = ("upgrade", "--install", "istio-base", str(self.charts / "base"), "--create-namespace")
        self.cluster.helm(*base, *where, "--set", "defaultRevision=default", *wait, timeout_s=timeout_s + 10)
        istiod = ("upgrade", "--install", "istiod", str(self.charts / "istiod"), "-f", str(self.values_file()))
        self.cluster.helm(*istiod, *where, *wait, *extra, timeout_s=timeout_s + 10)

    def uninstall(self) -> None:
        """Remove everything of it, CRDs and their objects included; fine when nothing is installed."""
        for release in ("istiod", "istio-base"):
            self.cluster.helm("uninstall", release, "-n", ISTIO_NAMESPACE, "--wait", "--ignore-not-found")
        self.cluster.delete_namespace(ISTIO_NAMESPACE)
        crds = [name for name in self.cluster.kubectl("get", "crd", "-o", "name").split() if name.endswith(".istio.io")]
        if crds:
            self.cluster.kubectl("delete", *crds, "--wait", "--timeout=60s", timeout_s=70)
        for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
            left = [name for name in self.cluster.kubectl("get", kind, "-o", "name").split() if "istio" in name]
            if left:  # one that points to nobody would refuse every pod
                self.cluster.kubectl("delete", *left)
