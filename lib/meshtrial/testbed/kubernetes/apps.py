"""Applications as their manifests describe them.

The Service annotated ``meshtrial.dev/entry`` is what the generators call; its annotations say the path, where
the app echoes a request's headers, and which protocols it speaks. Under a load of bytes an application is what
``apps/tcp/`` has of its name: a program that answers requests beside it would be work that no byte asked for.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed.kubernetes import manifests
from meshtrial.testbed.kubernetes.client import Cluster
from meshtrial.testbed.kubernetes.manifests import NOTE, Json
from meshtrial.testbed.kubernetes.options import KubernetesOptions


@dataclass(frozen=True)
class App:
    """An application as its manifests describe it."""

    name: str
    objects: Sequence[Json]
    service: str
    port: int
    http_port: int
    grpc_port: int
    app_port: int
    path: str
    headers_path: str
    protocols: tuple[str, ...]
    tiers: bool
    # What the entry Service's selector is merged with to send to the other version; empty where there is only one.
    second: Mapping[str, str] = field(default_factory=dict)
    bystander: str = ""  # a Service that nobody calls, whose endpoints come and go as other changes

    @property
    def deployments(self) -> tuple[str, ...]:
        """Names of its Deployments."""
        return tuple(o["metadata"]["name"] for o in self.objects if o["kind"] == "Deployment")

    @property
    def service_account(self) -> str:
        """The account that the pods behind the entry Service run under."""
        (service,) = (o for o in self.objects if o["kind"] == "Service" and o["metadata"]["name"] == self.service)
        wanted = service["spec"]["selector"].items()
        for item in self.objects:
            pod = manifests.template(item)
            if pod is not None and wanted <= pod["metadata"]["labels"].items():
                return str(pod["spec"].get("serviceAccountName", "default"))
        raise UsageError(f"app {self.name}: the Service {self.service} selects no pod of it")

    def gives(self, need: str) -> bool:
        """Whether it has what a proof needs: an echo of the request's headers, three tiers, or nothing."""
        return {"": True, "headers": bool(self.headers_path), "tiers": self.tiers}[need]


def read_app(options: KubernetesOptions, name: str, speaks: Sequence[str]) -> App:
    """Read ``apps/<name>.yaml``; a UsageError where there is none, or it does not speak all that is asked of it."""
    folder = options.folder / "apps"
    path = folder / f"{name}.yaml"
    if speaks[0] == "tcp" and (folder / "tcp" / path.name).is_file():
        path = folder / "tcp" / path.name
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise UsageError(f"app = {name!r}: allowed on Kubernetes is {known}")
    objects = manifests.read(path)
    entries = [o for o in objects if o["kind"] == "Service" and note(o, "entry") == "true"]
    if len(entries) != 1:
        raise UsageError(f"{path}: exactly one Service must carry the annotation {NOTE}entry: 'true'")
    service = entries[0]
    protocols = tuple((note(service, "protocols") or "http1").split(","))
    if not set(speaks) <= set(protocols):
        raise UsageError(f"app {name}: speaks {', '.join(protocols)}, not {' and '.join(speaks)}")
    wanted = speaks[0] if speaks[0] in ("grpc", "tcp") else "http"
    ports = service["spec"]["ports"]
    port = next((p for p in ports if p["name"] == wanted), ports[0])
    http, grpc = (next((p for p in ports if p["name"] == name), port) for name in ("http", "grpc"))
    return App(
        name=name,
        objects=objects,
        service=service["metadata"]["name"],
        port=int(port["port"]),
        http_port=int(http["port"]),
        grpc_port=int(grpc["port"]),
        app_port=int(port.get("targetPort", port["port"])),
        path=note(service, "path") or ("" if wanted == "tcp" else "/"),
        headers_path=note(service, "headers-path"),
        protocols=protocols,
        tiers=note(service, "tiers") == "true",
        second=json.loads(note(service, "second-version") or "{}"),
        bystander=note(service, "bystander"),
    )


def note(item: Json, name: str) -> str:
    """One of our annotations; empty where it is not there."""
    return str((item["metadata"].get("annotations") or {}).get(f"{NOTE}{name}", ""))


# --- unused services --------------------------------------------------------------------------------------------------

UNUSED_ENDPOINTS = 2  # of each service
_UNUSED_PORT = 8080
_UNUSED_FIRST = {"IPv4": ip_address("198.18.0.1"), "IPv6": ip_address("2001:2::1")}
_UNUSED_LABEL = f"{NOTE}unused"
# What an account must be allowed beside what every study needs.
UNUSED_RIGHTS = (("patch", "endpointslices", "discovery.k8s.io"), ("list", "endpointslices", "discovery.k8s.io"))


def unused_services(count: int, namespace: str, pod_ip: str = "") -> list[Json]:
    """So many services with their endpoints, each service behind its endpoints: it is whole when it is first seen.

    They are of the family of a pod's address, as services with pods are; of IPv4 without one.
    """
    family = "IPv6" if ":" in pod_ip else "IPv4"
    return [item for number in range(count) for item in _unused_service(number, namespace, family)]


def _unused_service(number: int, namespace: str, family: str) -> tuple[Json, Json]:
    name = f"unused-{number:04d}"
    first = _UNUSED_FIRST[family] + number * UNUSED_ENDPOINTS
    endpoints = [{"addresses": [str(first + i)], "conditions": {"ready": True}} for i in range(UNUSED_ENDPOINTS)]
    return (
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {
                    "kubernetes.io/service-name": name,
                    "endpointslice.kubernetes.io/managed-by": "meshtrial",
                    _UNUSED_LABEL: "true",
                },
            },
            "addressType": family,
            "endpoints": endpoints,
            "ports": [{"name": "http", "port": _UNUSED_PORT, "protocol": "TCP"}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace, "labels": {_UNUSED_LABEL: "true"}},
            "spec": {
                "ipFamilies": [family],
                "ports": [{"name": "http", "port": _UNUSED_PORT, "targetPort": _UNUSED_PORT, "protocol": "TCP"}],
            },
        },
    )


def prove_unused(cluster: Cluster, namespace: str, count: int, phase: str) -> tuple[Proof, ...]:
    """Return the proof that exactly so many unused services are there, with all of their endpoints."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = cluster.items(path, labelSelector=f"{_UNUSED_LABEL}=true")
    endpoints = sum(len(item.get("endpoints") or []) for item in slices)
    expected = f"{count} with {count * UNUSED_ENDPOINTS} endpoints"
    seen = f"{len(slices)} with {endpoints} endpoints"
    return (Proof("unused services", phase, seen == expected, expected, seen),)
