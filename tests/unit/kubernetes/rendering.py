"""What a treatment makes of an application's manifests, for every test that looks into it."""

from __future__ import annotations

from functools import cache
from typing import Any

from meshtrial.design.study import Load, Treatment
from meshtrial.envoy.tokens import make_tokens
from meshtrial.testbed.kubernetes import workload
from meshtrial.testbed.kubernetes.apps import read_app
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

TOKENS = make_tokens()
LOAD = Load(rps=100, connections=4, duration_s=5)


@cache
def our_meshes() -> dict[str, Mesh]:
    """The meshes of this checkout as nobody chose anything of them: read once, for hundreds of tests ask."""
    return find_meshes(KubernetesOptions())


def meshes_for(options: KubernetesOptions) -> dict[str, Mesh]:
    """The meshes of these options."""
    ours = KubernetesOptions()
    same = (options.meshes, options.mesh_folders, options.folder) == (ours.meshes, ours.mesh_folders, ours.folder)
    return our_meshes() if same else find_meshes(options)


def carrying(protocol: str) -> Load:
    """The load of these tests in another protocol."""
    return Load(rps=100, connections=4, duration_s=5, protocol=protocol, generators=2 if protocol == "mixed" else 1)


def render(
    text: str, app: str = "echo", load: Load = LOAD, options: KubernetesOptions | None = None
) -> workload.Rendered:
    chosen = options or KubernetesOptions()
    treatment = Treatment.parse(text)
    read = read_app(chosen, app, load.protocols)
    mesh = meshes_for(chosen).get(treatment.dataplane)
    return workload.render(workload.Setup(chosen, "trial", treatment, load, read, mesh, TOKENS))


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
