"""Versions of a mesh as treatments: what really runs, held against what a version declares.

A tag is a name, and names are moved: the node's digest says which image it was, and where a part tells its own version,
its word counts too. A part that tells nothing is no contradiction; a proxy of another image is. What a version changes
in Helm's values alone has no name of its own in the cluster: the digest of the values stands in the record.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from meshtrial import network
from meshtrial.errors import TestbedError
from meshtrial.records.schema import Proof
from meshtrial.testbed.kubernetes import probing
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.execs import PodRef
from meshtrial.testbed.kubernetes.meshdata import ExpectedVersion, Mesh, VersionProbe
from meshtrial.testbed.kubernetes.pods import container_names, images, log_of, pod_ref

_ASKED = 10  # pods of one kind that are asked for their version; images are looked at in all
_INSIDE, _LOG = "127.0.0.1:", "log "  # what a url begins with that is no page of a pod's address
_LOG_BYTES, _ONCE_S = 1 << 16, 10.0  # programs tell their build when they start
_SHOWN = 3
_UNTOLD = "unknown"  # of a program that was not told its version when it was built
_SIDES = {"app": "the application's proxies", "load": "the generators' proxies", "collector": "the collector's proxies"}


def is_version(text: str, name: str) -> bool:
    """Whether a text is a version or of its line: ``v1.30`` and ``1.30.2`` are 1.30, ``1.30-rc.1`` and 1.301 not."""
    text, name = text.removeprefix("v"), name.removeprefix("v")
    return text == name or text.startswith(f"{name}.")


def tag(reference: str) -> str:
    """What follows an image's name, so that a registry's name is taken for no version."""
    return reference.rpartition("/")[2].partition("@")[0].partition(":")[2]


def told(
    cluster: Cluster, probe: PodRef, mesh: Mesh, pods: Mapping[str, Sequence[Json]]
) -> dict[str, tuple[VersionProbe, list[str]]]:
    """What the parts say of themselves, by their names; a part that says nothing is left out."""
    words_of = {}
    for teller in mesh.tells:
        try:
            pages = _pages(cluster, probe, pods.get(teller.pods, ()), teller.url)
        except TestbedError:
            continue
        words = sorted({word for page in pages for word in re.findall(teller.pattern, page)} - {"", _UNTOLD})
        if words:
            words_of[teller.name] = teller, words
    return words_of


def _pages(cluster: Cluster, probe: PodRef, pods: Sequence[Json], url: str) -> list[str]:
    """What some of the pods answer; what only a pod's inside can ask, and logs, of one of them."""
    if url.startswith(_INSIDE):
        return [page for pod in pods[:1] for page in probing.scrape(cluster, pod_ref(pod, "fortio"), [f"http://{url}"])]
    if url.startswith(_LOG):
        container = url.removeprefix(_LOG)
        return [log_of(cluster, pod, container, _ONCE_S, limitBytes=_LOG_BYTES) for pod in pods[:1]]
    asked = [str(pod["status"].get("podIP", "")) for pod in pods][:_ASKED]
    return probing.scrape(cluster, probe, [network.url(address, url) for address in asked if address])


def prove(
    mesh: Mesh, pods: Mapping[str, Sequence[Json]], said: Mapping[str, tuple[VersionProbe, list[str]]], phase: str
) -> list[Proof]:
    """The images of every part against what the version declares, and what the parts say of themselves."""
    declared = mesh.declared
    if declared is None:
        return []
    proofs, there = [], set(said)
    for part, containers in _parts(mesh, pods):
        there |= {name for _, name in containers}
        others = _others(declared, containers)
        wanted = sorted({text for _, name in containers for text in _wanted(declared, name)})
        seen = f"{len(containers)} of {len(containers)}" if not others else _listed(others)
        proof = f"version {declared.version} of {part}"
        proofs.append(Proof(proof, phase, not others, f"images of {' or '.join(wanted)}", seen[:300]))
    for name, (teller, words) in said.items():
        if not teller.of_build and (teller.of_mesh or name in declared.runs):
            wanted = sorted(_wanted(declared, name))
            passed = all(any(is_version(word, text) for text in wanted) for word in words)
            proof = f"version {declared.version} as {name} tells it"
            proofs.append(Proof(proof, phase, passed, " or ".join(wanted), ", ".join(words)[:300]))
    for name in sorted(set(declared.runs) - there):
        proof = f"version {declared.version} of {name}"
        seen = f"no such container; there are {', '.join(sorted(there))}"
        proofs.append(Proof(proof, phase, False, f"images of {declared.runs[name]}", seen[:300]))
    return proofs


def contradiction(mesh: Mesh, component: str, pods: Sequence[Json]) -> str:
    """What a component runs that its version does not declare, in words; empty where it runs what it should."""
    if mesh.declared is None:
        return ""
    containers = [(pod, name) for pod in pods for name in container_names(pod)]
    others = _others(mesh.declared, containers)
    return f"{component} is not {mesh.declared.version} as declared: {_listed(others)}" if others else ""


def _parts(mesh: Mesh, pods: Mapping[str, Sequence[Json]]) -> Iterator[tuple[str, list[tuple[Json, str]]]]:
    """Each part of the mesh with its containers; an application's own containers are not the mesh's."""
    for name in (*(part.component for part in (*mesh.control_plane, *mesh.agents)), "waypoint", *_SIDES):
        containers = []
        for pod in pods.get(name, ()):
            own = [one for one in container_names(pod) if one not in mesh.policy_containers]
            containers += [(pod, one) for one in own if name not in _SIDES or one in mesh.proxy_containers]
        if containers:
            yield _SIDES.get(name, name), containers


def _wanted(declared: ExpectedVersion, name: str) -> tuple[str, ...]:
    return (declared.runs[name],) if name in declared.runs else declared.names


def _others(declared: ExpectedVersion, containers: Sequence[tuple[Json, str]]) -> list[str]:
    """Images that are not what is declared, with their containers, each once."""
    others: dict[str, None] = {}
    for pod, name in containers:
        image = images(pod).get(name, "no image yet")
        # A node that knows one image by two tags names any of them; it resolved the one that the pod asked for.
        asked = next((str(c.get("image", "")) for c in _containers(pod) if c["name"] == name), "")
        reference, _, digest = image.partition(" (")
        names = _wanted(declared, name)
        by_name = any(one == text or is_version(tag(text), one) for text in (reference, asked) for one in names)
        if not by_name and not any(one.startswith("sha256:") and digest.startswith(one) for one in names):
            others[f"{name}: {image}"] = None
    return list(others)


def _containers(pod: Json) -> list[Json]:
    spec = pod["spec"]
    return [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]


def _listed(others: Sequence[str]) -> str:
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return ", ".join(others[:_SHOWN]) + more
