"""What a treatment makes of an application's manifests, for every test that looks into it."""

from __future__ import annotations

from typing import Any

from meshtrial.design.study import Load, Treatment
from meshtrial.envoy.tokens import make_tokens
from meshtrial.testbed.kubernetes import workload
from meshtrial.testbed.kubernetes.apps import read_app
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

TOKENS = make_tokens()
LOAD = Load(rps=100, connections=4, duration_s=5)


def carrying(protocol: str) -> Load:
    """The load of these tests in another protocol."""
    return Load(rps=100, connections=4, duration_s=5, protocol=protocol, generators=2 if protocol == "mixed" else 1)


def render(
    text: str, app: str = "echo", load: Load = LOAD, options: KubernetesOptions | None = None
) -> workload.Rendered:
    chosen = options or KubernetesOptions()
    treatment = Treatment.parse(text)
    read = read_app(chosen, app, load.protocols)
    mesh = find_meshes(chosen).get(treatment.dataplane)
    return workload.render(chosen, "trial", treatment, load, read, mesh, TOKENS)


def of_kind(rendered: workload.Rendered, kind: str) -> dict[str, dict[str, Any]]:
    """The objects of a kind by their names."""
    found = [item for item in rendered.objects if item["kind"] == kind]
    by_name = {item["metadata"]["name"]: item for item in found}
    assert len(by_name) == len(found)
    return by_name


def find(rendered: workload.Rendered, kind: str, name: str) -> dict[str, Any]:
    return of_kind(rendered, kind)[name]


def kinds(rendered: workload.Rendered) -> set[str]:
    return {f"{item['kind']}/{item['metadata']['name']}" for item in rendered.objects}
