"""Applications as their manifests describe them, generated systems, and unused services.

The generators call the Service annotated ``meshtrial.dev/entry``. Its annotations name the path, the path that echoes a
request's headers, and the protocols. Under a load of bytes, ``apps/tcp/`` may have an application of the same name: a
program that also answers requests would do work that no byte asked for.

A generated system has a Deployment of fortio for each service, with its own account and, in a mesh, proxy. A service
that calls others is fortio's multi-proxy (``-M``). It makes all calls of a request at the same time, answers when all
have returned, and fails the request if one of them failed: a run without errors has made every call. Systems for a
cluster are drawn like that (`design.generated`), because in sequence fortio reports a failure of the first call only.
It does more than the local backend's `call-tree`, such as adding two headers to each call; its CPU is the
application's, with and without a mesh.

Unused services are the rest of a company's cluster, which a mesh makes known to its proxies although no request uses
it. They are real Services with an EndpointSlice each, in the study's own namespace. They have no pods: their endpoints
are addresses of the networks that are reserved for benchmarks (RFC 2544, RFC 5180). So the work of a mesh for pods is
missing, and a mesh that knows services by their pods (Consul) may not see them. kube-proxy knows them in every
treatment, without a mesh too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from meshtrial.design.generated import system_of_app
from meshtrial.design.system import System
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
    # Merged with the entry Service's selector to send to the other version; empty where there is one version.
    second: Mapping[str, str] = field(default_factory=dict)
    bystander: str = ""  # the unused Service whose endpoints background changes replace

    @property
    def service_account(self) -> str:
        """The account of the pods behind the entry Service."""
        (service,) = (o for o in self.objects if o["kind"] == "Service" and o["metadata"]["name"] == self.service)
        selector = service["spec"]["selector"].items()
        for item in self.objects:
            pod = manifests.template(item)
            if pod is not None and selector <= pod["metadata"]["labels"].items():
                return str(pod["spec"].get("serviceAccountName", "default"))
        raise UsageError(f"app {self.name}: its Service {self.service} selects none of its pods")

    def gives(self, need: str) -> bool:
        """Return whether it meets the need of a proof: an echo of headers, three tiers, or nothing."""
        return {"": True, "headers": bool(self.headers_path), "tiers": self.tiers}[need]


def read_app(
    options: KubernetesOptions,
    name: str,
    protocols_needed: Sequence[str],
    generated: Mapping[str, System] | None = None,
) -> App:
    """Read ``apps/<name>.yaml``, or describe one of the generated systems.

    UsageError where it does not exist or lacks one of the protocols.
    """
    folder = options.folder / "apps"
    path = folder / f"{name}.yaml"
    if protocols_needed[0] == "tcp" and (folder / "tcp" / path.name).is_file():
        path = folder / "tcp" / path.name
    if (system := system_of_app(generated or {}, name)) is not None:
        objects = _services(system, folder)
    elif path.is_file():
        objects = manifests.read(path)
    else:
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise UsageError(f"app = {name!r}: must be one of {known} on Kubernetes")
    entries = [o for o in objects if o["kind"] == "Service" and note(o, "entry") == "true"]
    if len(entries) != 1:
        raise UsageError(f"{path}: exactly one Service must carry the annotation {NOTE}entry: 'true'")
    service = entries[0]
    protocols = tuple((note(service, "protocols") or "http1").split(","))
    if not set(protocols_needed) <= set(protocols):
        raise UsageError(f"app {name}: speaks {', '.join(protocols)}, not {' and '.join(protocols_needed)}")
    scheme = protocols_needed[0] if protocols_needed[0] in ("grpc", "tcp") else "http"
    ports = service["spec"]["ports"]
    port = next((p for p in ports if p["name"] == scheme), ports[0])
    http, grpc = (next((p for p in ports if p["name"] == name), port) for name in ("http", "grpc"))
    return App(
        name=name,
        objects=objects,
        service=service["metadata"]["name"],
        port=int(port["port"]),
        http_port=int(http["port"]),
        grpc_port=int(grpc["port"]),
        app_port=int(port.get("targetPort", port["port"])),
        path=note(service, "path") or ("" if scheme == "tcp" else "/"),
        headers_path=note(service, "headers-path"),
        protocols=protocols,
        tiers=note(service, "tiers") == "true",
        second=json.loads(note(service, "second-version") or "{}"),
        bystander=note(service, "bystander"),
    )


def note(item: Json, name: str) -> str:
    """Return one of our annotations, or an empty text."""
    return str((item["metadata"].get("annotations") or {}).get(f"{NOTE}{name}", ""))


# --- generated systems ------------------------------------------------------------------------------------------------

_LISTEN, _ECHO = "-http-port=8080", "-http-port=8081"  # the echo server of a fortio that listens with its multi-proxy


def _services(system: System, apps: Path) -> list[Json]:
    """Return the objects of every service, from the template in the folder of the applications."""
    template = manifests.read(apps / "system" / "service.yaml")
    entry = system.calls[0].callee
    made: list[Json] = []
    for name in (call.callee for call in system.calls):
        called = [call.callee for call in system.calls if call.caller == name]
        copies = manifests.patched(template, manifests.rewritten("service", name), _calling(called))
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


# --- unused services --------------------------------------------------------------------------------------------------

UNUSED_ENDPOINTS = 2  # per service
_UNUSED_PORT = 8080
_UNUSED_FIRST = {"IPv4": ip_address("198.18.0.1"), "IPv6": ip_address("2001:2::1")}
_UNUSED_LABEL = f"{NOTE}unused"
# Rights that an account needs for them, in addition to those of every study.
UNUSED_RIGHTS = (("patch", "endpointslices", "discovery.k8s.io"), ("list", "endpointslices", "discovery.k8s.io"))


def unused_services(count: int, namespace: str, pod_ip: str = "") -> list[Json]:
    """Return ``count`` services, each after its endpoints, so that it is complete when it appears.

    They have the IP family of the given pod address, as services with pods do; IPv4 without one.
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
    """Return the proof that exactly ``count`` unused services exist, with all of their endpoints."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = cluster.items(path, labelSelector=f"{_UNUSED_LABEL}=true")
    endpoints = sum(len(item.get("endpoints") or []) for item in slices)
    expected = f"{count} with {count * UNUSED_ENDPOINTS} endpoints"
    seen = f"{len(slices)} with {endpoints} endpoints"
    return (Proof("unused services", phase, seen == expected, expected, seen),)
