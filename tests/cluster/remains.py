"""The contents of a cluster and its nodes by name, compared before and after."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshtrial.testbed.kubernetes.meshdata import Mesh

Kubectl = Callable[..., str]
# These appear and disappear without a study, or belong to an object that is compared.
_PASSING = ("events", "leases", "endpoints", "endpointslices", "pods", "replicasets", "controllerrevisions", "nodes")
_PASSING += ("componentstatuses", "bindings", "csinodes", "certificatesigningrequests", "ipaddresses")
_VIEWS = ("metrics.k8s.io",)


@dataclass(frozen=True)
class Remains:
    """Names of everything: ``kind namespace/name`` of the cluster's objects, and lines of the nodes' own files."""

    lines: frozenset[str]

    def beyond(self, before: Remains) -> list[str]:
        """Return what appeared since ``before``."""
        return sorted(self.lines - before.lines)

    @classmethod
    def look(cls, kubectl: Kubectl, nodes: Sequence[str] = ()) -> Remains:
        """List every kind of object; the nodes' lines come from their owner."""
        kinds = kubectl("api-resources", "--verbs=list", "-o", "name").split()
        wanted = [k for k in kinds if k.split(".")[0] not in _PASSING and not k.endswith(_VIEWS)]
        columns = "custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name"
        text = kubectl("get", ",".join(wanted), "-A", "-o", columns, "--no-headers", "--ignore-not-found")
        return cls(frozenset([" ".join(line.split()) for line in text.splitlines()] + list(nodes)))


def fingerprint(kubectl: Kubectl, mesh: Mesh) -> dict[str, Any]:
    """Return a mesh's specifications without its own book-keeping; they change only if somebody changes the mesh."""
    found: dict[str, Any] = {}
    groups = kubectl("api-resources", "--verbs=list", "-o", "name").split()
    own = [k for k in groups if k.endswith(tuple(f".{g}" if "." in g else g for g in mesh.crd_groups))]
    own = [k for k in own if "insight" not in k]
    kinds = ["deployments", "daemonsets", "services", "configmaps", "serviceaccounts"]
    for namespace in mesh.namespaces:
        for item in json.loads(kubectl("-n", namespace, "get", ",".join(kinds), "-o", "json"))["items"]:
            _note(found, item)
    for kind in (*own, "customresourcedefinitions", "mutatingwebhookconfigurations"):
        for item in json.loads(kubectl("get", kind, "-A", "-o", "json"))["items"]:
            _note(found, item)
    return found


def _note(found: dict[str, Any], item: dict[str, Any]) -> None:
    metadata = item["metadata"]
    key = f"{item['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
    found[key] = {k: v for k, v in item.items() if k not in ("metadata", "status")} | {
        "labels": metadata.get("labels", {})
    }
