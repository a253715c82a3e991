"""Applications as their manifests describe them.

The Service annotated ``meshtrial.dev/entry`` is what the generators call; its annotations say the path, where
the app echoes a request's headers, and which protocols it speaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import manifests
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
    wanted = "grpc" if speaks[0] == "grpc" else "http"
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
        path=note(service, "path") or "/",
        headers_path=note(service, "headers-path"),
        protocols=protocols,
        tiers=note(service, "tiers") == "true",
    )


def note(item: Json, name: str) -> str:
    """One of our annotations; empty where it is not there."""
    return str((item["metadata"].get("annotations") or {}).get(f"{NOTE}{name}", ""))
