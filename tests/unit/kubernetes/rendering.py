"""Render a treatment's manifests of an application, for every test that checks them."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from meshtrial.design.load import FixedRate, Load
from meshtrial.design.study import Treatment
from meshtrial.envoy.keys import make_tokens
from meshtrial.testbed.kubernetes import manifests, workload
from meshtrial.testbed.kubernetes.apps import read_app
from meshtrial.testbed.kubernetes.meshdata import Mesh, find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

TOKENS = make_tokens()
LOAD = FixedRate(rps=100, connections=4, duration_s=5)


@cache
def our_meshes() -> dict[str, Mesh]:
    """Return the meshes of this checkout with default options, read once for hundreds of tests."""
    return find_meshes(KubernetesOptions())


def meshes_for(options: KubernetesOptions) -> dict[str, Mesh]:
    """The meshes of these options."""
    ours = KubernetesOptions()
    same = (options.meshes, options.mesh_folders, options.folder) == (ours.meshes, ours.mesh_folders, ours.folder)
    return our_meshes() if same else find_meshes(options)


TINY = {
    "schema": "meshtrial.mesh/1",
    "name": "tiny",
    "title": "A mesh of a test",
    "version": "1.0.0",
    "namespaces": ["tiny-system"],
    "releases": [{"name": "tiny", "chart": "tiny", "repository": "https://charts.test", "namespace": "tiny-system"}],
    "proxy_containers": ["tiny-proxy"],
    "base": ["base.yaml"],
    "features": {"mtls": {"manifests": ["features/mtls.yaml"], "absent": [], "proofs": ["plaintext-refused"]}},
    "not_toggles": {"jwt": "it has none"},
    "parameters": {"image_tag": {"tiny": ["tag"]}},
}


def write_mesh(folder: Path, **changed: object) -> Path:
    """Write the folder of a small mesh: a realm and a route; its feature replaces the realm and adds an object."""
    realm = {"apiVersion": "tiny/v1", "kind": "Realm", "metadata": {"name": "trial", "namespace": "tiny-system"}}
    route = {"apiVersion": "tiny/v1", "kind": "Route", "metadata": {"name": "app"}, "spec": {"to": "x", "port": 1}}
    mtls = [{**realm, "spec": {"mtls": True}}, {**route, "kind": "Other", "metadata": {"name": "more"}}]
    (folder / "features").mkdir(parents=True, exist_ok=True)
    (folder / "mesh.yaml").write_text(yaml.safe_dump(TINY | changed))
    (folder / "base.yaml").write_text(yaml.safe_dump_all([{**realm, "spec": {}}, route]))
    (folder / "features" / "mtls.yaml").write_text(yaml.safe_dump_all(mtls))
    return folder


def carrying(protocol: str) -> Load:
    """Return the load of these tests in another protocol."""
    generators, size = 2 if protocol == "mixed" else 1, 4096 if protocol == "tcp" else 0
    return FixedRate(100, connections=4, duration_s=5, protocol=protocol, generators=generators, payload_bytes=size)


def render(
    text: str, app: str = "echo", load: Load = LOAD, options: KubernetesOptions | None = None
) -> workload.Rendered:
    chosen = options or KubernetesOptions()
    treatment = Treatment.parse(text)
    read = read_app(chosen, app, load.protocols)
    mesh = meshes_for(chosen).get(treatment.versioned)
    return workload.render(workload.Setup(chosen, "trial", treatment, load, read, mesh, TOKENS))


def of_kind(rendered: workload.Rendered, kind: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a kind by their names."""
    found = [item for item in rendered.objects if item["kind"] == kind]
    by_name = {item["metadata"]["name"]: item for item in found}
    assert len(by_name) == len(found)
    return by_name


def find(rendered: workload.Rendered, kind: str, name: str) -> dict[str, Any]:
    return of_kind(rendered, kind)[name]


def images_of(rendered: workload.Rendered) -> set[str]:
    """Return the images of its containers, and of those of a waypoint that an overlay changes."""
    manifest_of = (manifests.overlay_deployment(item) or item for item in rendered.objects)
    return {one["image"] for manifest in manifest_of for one in manifests.containers(manifest) if "image" in one}


def kinds(rendered: workload.Rendered) -> set[str]:
    return {f"{item['kind']}/{item['metadata']['name']}" for item in rendered.objects}
