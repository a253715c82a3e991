"""Versions of a mesh as treatments: compare what runs with what a version declares.

A tag is a name, and names are moved, so the node's digest identifies the image. Where a part reports its own version,
that counts too. A part that reports none is no contradiction; a proxy of another image is. A version that changes only
Helm's values has no image of its own: their digest is recorded, and a probe that `runs` names reads the effect.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from meshtrial import network
from meshtrial.errors import TestbedError
from meshtrial.records.schema import Proof
from meshtrial.testbed.kubernetes import probing
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.meshdata import ExpectedVersion, Mesh, VersionProbe
from meshtrial.testbed.kubernetes.pods import PodRef, container_names, images, log_of, pod_ref

_ASKED = 10  # pods of one kind whose version is read; images are read of all pods
# A url that is no page on a pod's address begins with one of these, or is the last one.
_INSIDE, _LOG, _ADMITTED = "127.0.0.1:", "log ", "containers"
_LOG_BYTES, _ONCE_S = 1 << 16, 10.0  # programs log their build when they start
_MOST_LISTED = 3
_UNKNOWN = "unknown"  # of a program that was built without its version
_SIDES = {"app": "the application's proxies", "load": "the generators' proxies", "collector": "the collector's proxies"}


def is_version(text: str, name: str) -> bool:
    """Return whether a text is of a version: ``v1.30`` and ``1.30.2`` are 1.30, ``1.30-rc.1`` and 1.301 are not."""
    text, name = text.removeprefix("v"), name.removeprefix("v")
    return text == name or text.startswith(f"{name}.")


def tag(reference: str) -> str:
    """Return what follows an image's name, so that no part of a registry's name counts as a version."""
    return reference.rpartition("/")[2].partition("@")[0].partition(":")[2]


def reported_versions(
    cluster: Cluster, probe: PodRef, mesh: Mesh, pods: Mapping[str, Sequence[Json]]
) -> dict[str, tuple[VersionProbe, list[str]]]:
    """Return the versions that the parts report, by probe; a part that reports none is left out."""
    reported = {}
    for version_probe in mesh.version_probes:
        try:
            pages = _pages(cluster, probe, pods.get(version_probe.pods, ()), version_probe.url)
        except TestbedError:
            continue
        found = sorted({text for page in pages for text in re.findall(version_probe.pattern, page)} - {"", _UNKNOWN})
        if found:
            reported[version_probe.name] = version_probe, found
    return reported


def _pages(cluster: Cluster, probe: PodRef, pods: Sequence[Json], url: str) -> list[str]:
    """Return pages of some of the pods; of one pod where the page is inside of it, or a log."""
    if url.startswith(_INSIDE):
        return [page for pod in pods[:1] for page in probing.scrape(cluster, pod_ref(pod, "fortio"), [f"http://{url}"])]
    if url.startswith(_LOG):
        container = url.removeprefix(_LOG)
        return [log_of(cluster, pod, container, _ONCE_S, limitBytes=_LOG_BYTES) for pod in pods[:1]]
    if url == _ADMITTED:
        return ["\n".join(_admitted(pod)) for pod in pods]
    asked = [str(pod["status"].get("podIP", "")) for pod in pods][:_ASKED]
    return probing.scrape(cluster, probe, [network.url(address, url) for address in asked if address])


def _admitted(pod: Json) -> Iterator[str]:
    """Return a line per container, as mutating webhooks made it: the list that has it, its name, its CPU limit."""
    for kind in ("initContainers", "containers"):
        for container in pod["spec"].get(kind) or []:
            limits = (container.get("resources") or {}).get("limits") or {}
            yield f"{kind} {container['name']} cpu={limits.get('cpu', 'none')}"


def prove(
    mesh: Mesh, pods: Mapping[str, Sequence[Json]], reported: Mapping[str, tuple[VersionProbe, list[str]]], phase: str
) -> list[Proof]:
    """Return the proofs that images and reported versions match what the version declares."""
    declared = mesh.declared
    if declared is None:
        return []
    proofs, names = [], set(reported)
    for part, containers in _parts(mesh, pods):
        names |= {name for _, name in containers}
        unexpected = _unexpected_images(declared, containers)
        expected = sorted({text for _, name in containers for text in _expected(declared, name)})
        seen = f"{len(containers)} of {len(containers)}" if not unexpected else _listed(unexpected)
        proof = f"version {declared.version} of {part}"
        proofs.append(Proof(proof, phase, not unexpected, f"images of {' or '.join(expected)}", seen[:300]))
    for name, (version_probe, texts) in reported.items():
        if not version_probe.of_build and (version_probe.of_mesh or name in declared.runs):
            expected = sorted(_expected(declared, name))
            passed = all(any(is_version(text, version) for version in expected) for text in texts)
            proof = f"version {declared.version} as {name} reports it"
            proofs.append(Proof(proof, phase, passed, " or ".join(expected), ", ".join(texts)[:300]))
    for name in sorted(set(declared.runs) - names):
        proof = f"version {declared.version} of {name}"
        seen = f"no such container; known are {', '.join(sorted(names))}"
        proofs.append(Proof(proof, phase, False, f"images of {declared.runs[name]}", seen[:300]))
    return proofs


def contradiction(mesh: Mesh, component: str, pods: Sequence[Json]) -> str:
    """Return what a component runs that its version does not declare, or an empty text."""
    if mesh.declared is None:
        return ""
    containers = [(pod, name) for pod in pods for name in container_names(pod)]
    unexpected = _unexpected_images(mesh.declared, containers)
    return f"{component} is not {mesh.declared.version} as declared: {_listed(unexpected)}" if unexpected else ""


def _parts(mesh: Mesh, pods: Mapping[str, Sequence[Json]]) -> Iterator[tuple[str, list[tuple[Json, str]]]]:
    """Return each part of the mesh with its containers, without the application's own ones."""
    for name in (*(part.component for part in (*mesh.control_plane, *mesh.agents)), "waypoint", *_SIDES):
        containers = []
        for pod in pods.get(name, ()):
            names = [container for container in container_names(pod) if container not in mesh.policy_containers]
            containers += [
                (pod, container) for container in names if name not in _SIDES or container in mesh.proxy_containers
            ]
        if containers:
            yield _SIDES.get(name, name), containers


def _expected(declared: ExpectedVersion, name: str) -> tuple[str, ...]:
    return (declared.runs[name],) if name in declared.runs else declared.names


def _unexpected_images(declared: ExpectedVersion, containers: Sequence[tuple[Json, str]]) -> list[str]:
    """Return the images that are not declared, with their containers, once each."""
    unexpected: dict[str, None] = {}
    for pod, name in containers:
        image = images(pod).get(name, "no image yet")
        # A node that has one image under two tags reports any of them; it resolved the one of the pod's manifest.
        requested = next((str(c.get("image", "")) for c in _containers(pod) if c["name"] == name), "")
        reference, _, digest = image.partition(" (")
        names = _expected(declared, name)
        by_name = any(one == text or is_version(tag(text), one) for text in (reference, requested) for one in names)
        if not by_name and not any(one.startswith("sha256:") and digest.startswith(one) for one in names):
            unexpected[f"{name}: {image}"] = None
    return list(unexpected)


def _containers(pod: Json) -> list[Json]:
    spec = pod["spec"]
    return [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]


def _listed(references: Sequence[str]) -> str:
    more = f" and {len(references) - _MOST_LISTED} more" if len(references) > _MOST_LISTED else ""
    return ", ".join(references[:_MOST_LISTED]) + more
