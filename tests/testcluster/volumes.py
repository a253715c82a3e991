"""Volumes on a node with a default StorageClass, for claims inside a block.

Each is a folder that a pod gets with its group's rights (``local``, not ``hostPath``), and can be bound once: a new
claim gets another one. Nothing provides them, so there are only as many as were requested.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testcluster.settings import NODES

if TYPE_CHECKING:
    from testcluster.handle import Cluster

STORAGE_CLASS = "meshtrial-local"
# The kubelet's folder is private to a node: inside it is below the first path, on the machine below its folder.
_INSIDE, _FOLDER = "/var/lib/kubelet/claimed", "kubelet/claimed"


@dataclass
class Volumes:
    """So many volumes on one node."""

    cluster: Cluster
    count: int

    def _manifest(self) -> str:
        volume_class = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": STORAGE_CLASS,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODES[0]]}
        volumes = [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{STORAGE_CLASS}-{number}"},
                "spec": {
                    "capacity": {"storage": "10Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": STORAGE_CLASS,
                    "local": {"path": f"{_INSIDE}/{number}"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
                },
            }
            for number in range(self.count)
        ]
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": [volume_class, *volumes]})

    def start(self) -> None:
        """Make the folders, then their volumes."""
        for number in range(self.count):
            (self.cluster.layout.run / NODES[0] / _FOLDER / str(number)).mkdir(parents=True)
        self.cluster.apply(self._manifest())

    def stop(self) -> None:
        """Remove them with their contents, after the claimants are gone."""
        self.cluster.start_api_server()
        text = self._manifest()
        self.cluster.kubectl("delete", "-f", "-", "--ignore-not-found", "--timeout=60s", stdin=text, timeout_s=70)
        shutil.rmtree(self.cluster.layout.run / NODES[0] / _FOLDER, ignore_errors=True)
