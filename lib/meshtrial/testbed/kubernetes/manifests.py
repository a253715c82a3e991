"""Manifests as they lie in ``manifests/``, and the patches that code makes: pure functions of dictionaries.

The files are valid for ``kubectl apply`` as they are. What differs between clusters, studies and treatments
(namespace, images, replicas, resources, placement, labels, further containers) is changed here, on a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.quantities import cpu_millis

Json = dict[str, Any]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
NOTE = "meshtrial.dev/"  # our labels and annotations begin so
_PODS = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
}


def read(path: Path) -> list[Json]:
    """The documents of a YAML file; a UsageError when it is not there or is no list of Kubernetes objects."""
    try:
        documents = [item for item in yaml.load_all(path.read_text(), Loader=LOADER) if item]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); is the folder 'manifests' complete?") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: is not YAML: {' '.join(str(error).split())[:200]}") from None
    for item in documents:
        if not isinstance(item, dict) or not item.get("kind") or not item.get("metadata", {}).get("name"):
            raise UsageError(f"{path}: every document needs apiVersion, kind and metadata.name")
    return documents


def template(manifest: Json) -> Json | None:
    """The pod (or pod template) inside a manifest; None where it has none."""
    keys = _PODS.get(str(manifest.get("kind")))
    if keys is None:
        return None
    pod = manifest
    for key in keys:
        pod = pod.setdefault(key, {})
    return pod


def patched(manifests: Iterable[Json], *patches: Callable[[Json], None]) -> list[Json]:
    """Copies of the manifests with every patch made, in order."""
    copies = copy.deepcopy(list(manifests))
    for manifest in copies:
        for patch in patches:
            patch(manifest)
    return copies


def in_namespace(namespace: str) -> Callable[[Json], None]:
    """Move what is in ``default``; references by DNS name to ``.default.svc`` follow.

    An object that names another namespace (a policy that must lie beside its control plane) stays there.
    """

    def patch(manifest: Json) -> None:
        if manifest["metadata"].get("namespace", "default") == "default":
            manifest["metadata"]["namespace"] = namespace
        _rewrite(manifest, ".default.svc", f".{namespace}.svc")
        for subject in manifest.get("subjects", []):
            if subject.get("kind") == "ServiceAccount":
                subject["namespace"] = namespace

    return patch


def labelled(labels: Mapping[str, str]) -> Callable[[Json], None]:
    """Label the object and its pods."""

    def patch(manifest: Json) -> None:
        manifest["metadata"].setdefault("labels", {}).update(labels)
        pod = template(manifest)
        if pod is not None and pod is not manifest:
            pod.setdefault("metadata", {}).setdefault("labels", {}).update(labels)

    return patch


def pod_metadata(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Callable[[Json], None]:
    """Labels and annotations of the pods alone (mesh enrolment)."""

    def patch(manifest: Json) -> None:
        pod = template(manifest)
        if pod is not None:
            metadata = pod.setdefault("metadata", {})
            metadata.setdefault("labels", {}).update(labels)
            metadata.setdefault("annotations", {}).update(annotations)

    return patch


def images(wanted: Mapping[str, str], pull_policy: str = "") -> Callable[[Json], None]:
    """Replace images by the container's name or by the last part of the repository."""

    def patch(manifest: Json) -> None:
        for container in containers(manifest):
            name = image_name(str(container.get("image", "")))
            chosen = wanted.get(str(container["name"])) or wanted.get(name)
            if chosen:
                container["image"] = chosen
            if pull_policy:
                container["imagePullPolicy"] = pull_policy

    return patch


def image_name(reference: str) -> str:
    """``docker.io/fortio/fortio:1.68.1`` is ``fortio``."""
    return reference.rsplit("/", 1)[-1].split("@")[0].split(":")[0]


def containers(manifest: Json) -> list[Json]:
    """Containers and init containers of the pods."""
    pod = template(manifest)
    if pod is None:
        return []
    spec = pod.get("spec", {})
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def replicas(count: int, names: Iterable[str] | None = None) -> Callable[[Json], None]:
    """Replicas of the Deployments, all or those named."""
    wanted = None if names is None else set(names)

    def patch(manifest: Json) -> None:
        if manifest["kind"] == "Deployment" and (wanted is None or manifest["metadata"]["name"] in wanted):
            manifest["spec"]["replicas"] = count

    return patch


def requests(cpu: str, memory: str) -> Callable[[Json], None]:
    """CPU and memory requests, where they are said; limits stay as they are."""
    wanted = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}

    def patch(manifest: Json) -> None:
        for container in containers(manifest) if wanted else ():
            container.setdefault("resources", {}).setdefault("requests", {}).update(wanted)

    return patch


def limits(cpu: str, memory: str, names: Iterable[str] | None = None) -> Callable[[Json], None]:
    """CPU and memory limits; requests are a tenth of the CPU and all of the memory."""
    wanted = None if names is None else set(names)

    def patch(manifest: Json) -> None:
        for container in containers(manifest):
            if wanted is not None and container["name"] not in wanted:
                continue
            resources = container.setdefault("resources", {})
            if cpu:
                resources.setdefault("limits", {})["cpu"] = cpu
                resources.setdefault("requests", {})["cpu"] = f"{max(1, round(cpu_millis(cpu) / 10))}m"
            if memory:
                resources.setdefault("limits", {})["memory"] = memory
                resources.setdefault("requests", {})["memory"] = memory

    return patch


def placed(
    selector: Mapping[str, str], tolerations: Iterable[Mapping[str, str]], away_from: str = "", how: str = "none"
) -> Callable[[Json], None]:
    """Placement: node selector, tolerations, and anti-affinity against pods whose ``meshtrial.dev/part`` is this."""

    def patch(manifest: Json) -> None:
        pod = template(manifest)
        if pod is None:
            return
        spec = pod["spec"]
        if selector:
            spec.setdefault("nodeSelector", {}).update(selector)
        wanted = [dict(item) for item in tolerations]
        if wanted:
            spec.setdefault("tolerations", []).extend(wanted)
        if how == "none" or not away_from:
            return
        term = {
            "labelSelector": {"matchLabels": {f"{NOTE}part": away_from}},
            "topologyKey": "kubernetes.io/hostname",
        }
        affinity = spec.setdefault("affinity", {}).setdefault("podAntiAffinity", {})
        if how == "required":
            affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(term)
        else:
            weighted = {"weight": 100, "podAffinityTerm": term}
            affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(weighted)

    return patch


def held(hold_ms: float) -> Callable[[Json], None]:
    """Change how long the tiers hold a request (``delay=100ms`` in their arguments)."""

    def patch(manifest: Json) -> None:
        for container in containers(manifest):
            if "args" in container:
                container["args"] = [arg.replace("delay=100ms", f"delay={hold_ms:g}ms") for arg in container["args"]]

    return patch


def on_hosts(hosts: Sequence[str]) -> Callable[[Json], None]:
    """Only on nodes of these host names; anywhere for none."""

    def patch(manifest: Json) -> None:
        pod = template(manifest)
        if pod is None or not hosts:
            return
        rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
        affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
        required["nodeSelectorTerms"].append({"matchExpressions": [rule]})

    return patch


def with_container(source: Json) -> Callable[[Json], None]:
    """Add the containers and volumes of another manifest's pod (a policy server, a proxy) to the pods."""
    pod = template(source)
    if pod is None:
        raise UsageError(f"{source['kind']} {source['metadata']['name']}: has no pod to take containers from")
    spec = pod["spec"]

    def patch(manifest: Json) -> None:
        target = template(manifest)
        if target is None:
            return
        for key in ("containers", "volumes"):
            have = {item["name"] for item in target["spec"].get(key, [])}
            more = [copy.deepcopy(item) for item in spec.get(key, []) if item["name"] not in have]
            if more:
                target["spec"].setdefault(key, []).extend(more)

    return patch


def app_protocols(wanted: Mapping[str, str], entry: str, protocol: str) -> Callable[[Json], None]:
    """Say what the Services' ports carry in this study, in the words that the mesh understands.

    ``wanted`` leads from ``http1``, ``h2`` and ``grpc`` to a value of ``appProtocol``; an empty text leaves it out.
    The HTTP port of ``entry``, the Service that the generators call, carries the ``protocol`` that they send, every
    other one HTTP/1.1.
    """

    def patch(manifest: Json) -> None:
        if manifest["kind"] != "Service":
            return
        http = "h2" if protocol == "h2" and manifest["metadata"]["name"] == entry else "http1"
        for port in manifest["spec"]["ports"]:
            if "appProtocol" in port:
                port["appProtocol"] = wanted["grpc" if port["appProtocol"] == "grpc" else http]
                if not port["appProtocol"]:
                    del port["appProtocol"]

    return patch


def with_account_token(manifest: Json) -> None:
    """Mount the pods' service-account token in them."""
    pod = template(manifest)
    if pod is not None:
        pod["spec"]["automountServiceAccountToken"] = True


def replaced(base: Iterable[Json], more: Iterable[Json]) -> list[Json]:
    """Both in order; one of ``more`` takes the place of the same object (kind, namespace, name) in ``base``."""
    objects = {_identity(item): item for item in base}
    for item in more:
        objects[_identity(item)] = item
    return list(objects.values())


def _identity(item: Json) -> tuple[str, str, str]:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", "default"), metadata["name"]


def set_path(manifest: Json, path: str, value: Any) -> None:
    """Set ``spec.jwtRules.0.jwks``: what is there already is replaced; a path that is not there is a UsageError."""
    *way, last = path.split(".")
    at: Any = manifest
    try:
        for key in way:
            at = at[int(key)] if isinstance(at, list) else at[key]
        if isinstance(at, list):
            at[int(last)] = value
        else:
            at[last] = value if last in at else at[last]
    except (KeyError, IndexError, ValueError, TypeError):
        raise UsageError(
            f"{manifest['kind']} {manifest['metadata']['name']}: has no {path}; the mesh's data and its file disagree"
        ) from None


def _rewrite(node: Any, old: str, new: str) -> None:
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(pairs):
        if isinstance(value, str):
            node[key] = value.replace(old, new)
        else:
            _rewrite(value, old, new)
