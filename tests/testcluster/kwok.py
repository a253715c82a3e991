"""Simulated nodes: hundreds of pods for the API server and its controllers, without running anything."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testcluster import controlplane
from testcluster.settings import KUBERNETES_VERSION, KWOK_VERSION, image_architecture

if TYPE_CHECKING:
    from testcluster.handle import Cluster


@dataclass
class Kwok:
    """Simulated nodes ``kwok-000`` ...: labelled ``type=kwok``, tainted ``kwok.x-k8s.io/node=fake:NoSchedule``.

    A pod gets there by :attr:`node_selector` and :attr:`tolerations`, is Ready at once, has an address without a
    server, and uses nothing.
    """

    cluster: Cluster
    count: int

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return tuple(f"kwok-{number:03d}" for number in range(self.count))

    @property
    def node_selector(self) -> dict[str, str]:
        """The node selector that a pod needs."""
        return {"type": "kwok"}

    @property
    def tolerations(self) -> list[dict[str, str]]:
        """The tolerations that a pod needs."""
        return [{"key": "kwok.x-k8s.io/node", "operator": "Equal", "value": "fake", "effect": "NoSchedule"}]

    def _manifest(self) -> str:
        size = {"cpu": "32", "memory": "256Gi", "pods": "250"}
        # Meshes choose by the oldest node's version: if Istio cannot parse it, it uses no native sidecars.
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
        controlplane.start_daemon(layout, self.cluster.state(), "kwok", command)
        self.cluster.apply(self._manifest())
        self.cluster.kubectl("wait", "node", "-l", "type=kwok", "--for=condition=Ready", "--timeout=60s", timeout_s=70)

    def stop(self) -> None:
        """Delete the remaining pods and the nodes, then end the simulator."""
        self.cluster.start_api_server()
        pods = self.cluster.get("pods", "--all-namespaces")["items"]
        for node in sorted({pod["spec"].get("nodeName", "") for pod in pods} & set(self.names)):
            there = ("--all-namespaces", f"--field-selector=spec.nodeName={node}")
            self.cluster.kubectl("delete", "pods", *there, "--force", "--grace-period=0", "--wait=false")
        self.cluster.kubectl("delete", "node", "-l", "type=kwok", "--ignore-not-found", "--wait", timeout_s=90)
        state = self.cluster.state()
        if (proc := state.procs.pop("kwok", None)) is not None:
            controlplane.end(proc)
            state.save()
