"""What each mesh's treatments install."""

import re
from collections.abc import Sequence
from typing import Any

from meshtrial import paths


def configuration(text: str) -> str:
    """What each mesh's treatments install: charts, values, labels, and the objects of every feature."""
    from meshtrial.testbed.kubernetes.meshdata import read_mesh

    folders = sorted(path.parent for path in (paths.MANIFESTS / "meshes").glob("*/mesh.yaml"))
    meshes = sorted(map(read_mesh, folders), key=lambda mesh: (mesh.reference, not mesh.tested, mesh.name))
    return text.partition("\n## ")[0].rstrip() + "\n" + "".join(map(_mesh, meshes))


def _mesh(mesh: Any) -> str:
    where = f"../../manifests/meshes/{mesh.folder.name}"
    tested = "Its checks have run on a cluster." if mesh.tested else "Its checks have not run on a cluster."
    source = f"from [{mesh.folder.name}/mesh.yaml]({where}/mesh.yaml)"
    made = [f"\n## {mesh.title}\n\nTreatments `{mesh.name}...`, {source}. {tested}"]
    if mesh.documents:
        made[0] += f" Its project's own words: {', '.join(f'<{url}>' for url in mesh.documents)}."
    if mesh.releases:
        rows = [
            f"| `{one.name}` | `{one.chart}` | {one.version or mesh.version} | {one.repository} | `{one.namespace}` |"
            for one in mesh.releases
        ]
        made.append(
            "\n".join(["| release | chart | version | repository | namespace |", "|---|---|---|---|---|", *rows])
        )
    for name in dict.fromkeys(name for one in mesh.releases for name in one.values):
        made.append(f"[{name}]({where}/{name}):\n\n```yaml\n{(mesh.folder / name).read_text().rstrip()}\n```")
    if enrolled := _enrolled(mesh.enrol):
        made.append("\n".join(["| set on | name | value |", "|---|---|---|", *enrolled]))
    if mesh.base:
        made.append(f"Every treatment applies:\n\n{_objects(mesh, mesh.base, where)}")
    for one in mesh.features.values():
        made.append(_feature(mesh, one, where))
    return "\n\n".join(made) + "\n"


def _enrolled(enrol: Any) -> list[str]:
    found = {
        "namespace, label": enrol.namespace_labels,
        "namespace, annotation": enrol.namespace_annotations,
        "pod, label": enrol.pod_labels,
        "pod, annotation": enrol.pod_annotations,
    }
    return [
        f"| {where} | `{name}` | {', '.join(f'`{line.strip()}`' for line in value.splitlines())} |"
        for where, given in found.items()
        for name, value in given.items()
    ]


def _feature(mesh: Any, feature: Any, where: str) -> str:
    said = [f"### {mesh.name}: +{feature.name}\n\n{feature.title[:1].upper()}{feature.title[1:]}."]
    if feature.needs:
        said[0] += f" Only beside {', '.join(f'`{name}`' for name in feature.needs)}."
    if feature.bare:
        said[0] += f" Pods of the {'application' if feature.bare == 'app' else 'generators'} stay outside of the mesh."
    annotated = [f"| pod, annotation | `{name}` | `{value}` |" for name, value in feature.pod_annotations.items()]
    annotated += [f"| namespace, label | `{name}` | `{value}` |" for name, value in feature.namespace_labels.items()]
    if annotated:
        said.append("\n".join(["| set on | name | value |", "|---|---|---|", *annotated]))
    if feature.manifests:
        said.append(_objects(mesh, feature.manifests, where))
    if feature.absent:
        said.append(f"A treatment without it applies instead:\n\n{_objects(mesh, feature.absent, where)}")
    return "\n\n".join(said)


def _objects(mesh: Any, names: Sequence[str], where: str) -> str:
    """Return the mesh's own objects in full, and the names of shared ones, such as a collector."""
    import yaml

    made = []
    for name in names:
        own, others = [], []
        for document in re.split(r"(?m)^---\n", (mesh.folder / name).read_text()):
            item = yaml.safe_load(document)
            group = item["apiVersion"].rpartition("/")[0]
            if group in ("", "apps"):
                others.append(f"{item['kind']} `{item['metadata']['name']}`")
            else:
                own.append(document.strip())
        besides = f" (and {', '.join(others)})" if others else ""
        if not own:
            made.append(f"[{name}]({where}/{name}): {', '.join(others)}.")
            continue
        made.append(f"[{name}]({where}/{name}){besides}:\n\n```yaml\n" + "\n---\n".join(own) + "\n```")
    return "\n\n".join(made)
