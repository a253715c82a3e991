"""Applications as their manifests describe them.

The Service annotated ``meshtrial.dev/entry`` is what the generators call; its annotations say the path, where
the app echoes a request's headers, and which protocols it speaks. Under a load of bytes an application is what
``apps/tcp/`` has of its name: a program that answers requests beside it would be work that no byte asked for.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
