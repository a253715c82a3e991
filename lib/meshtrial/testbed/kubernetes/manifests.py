"""Manifests of ``manifests/``, and the patches that code makes: pure functions of dictionaries.

The files are valid for ``kubectl apply``. What differs between clusters, studies and treatments (namespace, images,
replicas, resources, placement, labels, further containers) is changed here, on a copy.

A control plane creates a waypoint, a proxy with pods of its own, from a Gateway. A study changes those pods by an
overlay: a ConfigMap that the Gateway names (``spec.infrastructure.parametersRef``) and that holds a part of a
Deployment as text. The patches of Deployments are applied to that text too.
"""

import copy
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeAlias

import yaml
from kubernetes.utils import quantity as _untyped_quantity

from meshtrial.errors import UsageError
from meshtrial.typed import parse_yaml

P = ParamSpec("P")
Json = dict[str, Any]
Patch: TypeAlias = Callable[[Json], None]
_quantity: Any = _untyped_quantity
NOTE = "meshtrial.dev/"  # prefix of our labels and annotations
MANAGED_BY = "app.kubernetes.io/managed-by"
_TEMPLATED = ("Deployment", "StatefulSet", "DaemonSet", "Job")


def read(path: Path) -> list[Json]:
    """Return the documents of a YAML file; UsageError when it cannot be read or has other content."""
    try:
        documents = [item for item in parse_yaml(path.read_bytes(), str(path), several=True) if item]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); is the folder 'manifests' complete?") from None
    for item in documents:
        metadata = item.get("metadata") if isinstance(item, dict) else None
        if not isinstance(metadata, dict) or not metadata.get("name") or not item.get("kind"):
            raise UsageError(f"{path}: every document needs apiVersion, kind and metadata.name")
    return documents


def template(manifest: Json) -> Json | None:
    """Return the pod (or pod template) inside a manifest, or None."""
    if manifest.get("kind") == "Pod":
        return manifest
    if manifest.get("kind") not in _TEMPLATED:
        return None
    pod: Json = manifest.setdefault("spec", {}).setdefault("template", {})
    return pod


def patched(manifests: Iterable[Json], *patches: Patch) -> list[Json]:
    """Return copies of the manifests with every patch made, in order."""
    copies = copy.deepcopy(list(manifests))
    for manifest in copies:
        for patch in patches:
            patch(manifest)
    return copies


def patch(change: Callable[Concatenate[Json, P], None]) -> Callable[P, Patch]:
    """Return a function that takes the further arguments of ``change`` and returns the patch."""

    @wraps(change)
    def build(*args: P.args, **kwargs: P.kwargs) -> Patch:
        return lambda manifest: change(manifest, *args, **kwargs)

    return build


@patch
def in_namespace(manifest: Json, namespace: str) -> None:
    """Move objects of ``default`` into a namespace; DNS names below ``.default.svc`` follow.

    An object that names another namespace (a policy beside its control plane) stays there.
    """
    if manifest["metadata"].get("namespace", "default") == "default":
        manifest["metadata"]["namespace"] = namespace
    _rewrite(manifest, ".default.svc", f".{namespace}.svc")
    for subject in manifest.get("subjects", []):
        if subject.get("kind") == "ServiceAccount":
            subject["namespace"] = namespace


@patch
def rewritten(manifest: Json, old: str, new: str) -> None:
    """Replace a text wherever it is part of a value."""
    _rewrite(manifest, old, new)


@patch
def labelled(manifest: Json, labels: Mapping[str, str]) -> None:
    """Label the object and its pods."""
    manifest["metadata"].setdefault("labels", {}).update(labels)
    pod = template(manifest)
    if pod is not None and pod is not manifest:
        pod.setdefault("metadata", {}).setdefault("labels", {}).update(labels)


@patch
def pod_metadata(manifest: Json, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
    """Label and annotate the pods only (mesh enrolment)."""
    pod = template(manifest)
    if pod is not None:
        metadata = pod.setdefault("metadata", {})
        metadata.setdefault("labels", {}).update(labels)
        metadata.setdefault("annotations", {}).update(annotations)


@patch
def images(manifest: Json, references: Mapping[str, str], pull_policy: str = "") -> None:
    """Replace images by the container's name or by the last part of the repository."""
    for container in containers(manifest):
        name = image_name(str(container.get("image", "")))
        chosen = references.get(str(container["name"])) or references.get(name)
        if chosen:
            container["image"] = chosen
        if pull_policy:
            container["imagePullPolicy"] = pull_policy


def image_name(reference: str) -> str:
    """Return ``fortio`` for ``docker.io/fortio/fortio:1.68.1``."""
    return reference.rsplit("/", 1)[-1].split("@")[0].split(":")[0]


def containers(manifest: Json) -> list[Json]:
    """Return the containers and init containers of the pods."""
    pod = template(manifest)
    if pod is None:
        return []
    spec = pod.get("spec", {})
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


@patch
def replicas(manifest: Json, count: int) -> None:
    """Set the replicas of Deployments."""
    if manifest["kind"] == "Deployment":
        manifest["spec"]["replicas"] = count


@patch
def requests(manifest: Json, cpu: str, memory: str) -> None:
    """Set CPU and memory requests where they are given; limits stay unchanged."""
    given = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
    for container in containers(manifest) if given else ():
        container.setdefault("resources", {}).setdefault("requests", {}).update(given)


@patch
def limits(manifest: Json, cpu: str, memory: str, names: Collection[str] | None = None) -> None:
    """Set limits of all or some containers, and requests of a tenth of the CPU and all of the memory."""
    for container in containers(manifest):
        if names is not None and container["name"] not in names:
            continue
        resources = container.setdefault("resources", {})
        if cpu:
            resources.setdefault("limits", {})["cpu"] = cpu
            resources.setdefault("requests", {})["cpu"] = f"{max(1, round(cpu_millis(cpu) / 10))}m"
        if memory:
            resources.setdefault("limits", {})["memory"] = memory
            resources.setdefault("requests", {})["memory"] = memory


@patch
def placed(
    manifest: Json,
    selector: Mapping[str, str],
    tolerations: Collection[Mapping[str, str]],
    away_from: str = "",
    how: str = "none",
) -> None:
    """Set node selector, tolerations and anti-affinity to pods whose ``meshtrial.dev/part`` is ``away_from``."""
    pod = template(manifest)
    if pod is None:
        return
    spec = pod["spec"]
    if selector:
        spec.setdefault("nodeSelector", {}).update(selector)
    if tolerations:
        spec.setdefault("tolerations", []).extend(dict(item) for item in tolerations)
    if how == "none" or not away_from:
        return
    term = {"labelSelector": {"matchLabels": {f"{NOTE}part": away_from}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = spec.setdefault("affinity", {}).setdefault("podAntiAffinity", {})
    if how == "required":
        affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(term)
    else:
        weighted = {"weight": 100, "podAffinityTerm": term}
        affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(weighted)


@patch
def held(manifest: Json, hold_ms: float) -> None:
    """Set how long the tiers hold a request (``delay=100ms`` in their arguments)."""
    for container in containers(manifest):
        if "args" in container:
            container["args"] = [arg.replace("delay=100ms", f"delay={hold_ms:g}ms") for arg in container["args"]]


@patch
def started_with(manifest: Json, name: str) -> None:
    """Start the pods' first container with the arguments in this annotation of ours."""
    pod = template(manifest)
    if pod is None:
        return
    arguments = (pod["metadata"].get("annotations") or {}).get(f"{NOTE}{name}")
    if arguments is None:
        label = f"{manifest['kind']} {manifest['metadata']['name']}"
        raise UsageError(f"{label}: its pods lack the annotation {NOTE}{name}")
    pod["spec"]["containers"][0]["args"] = json.loads(arguments)


@patch
def on_hosts(manifest: Json, hosts: Sequence[str]) -> None:
    """Restrict pods to nodes with these host names, if there are any."""
    pod = template(manifest)
    if pod is None or not hosts:
        return
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
    affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
    required["nodeSelectorTerms"].append({"matchExpressions": [rule]})


@patch
def with_container(manifest: Json, source: Json) -> None:
    """Add the containers and volumes of another manifest's pod (a policy server, a proxy) to the pods."""
    pod, target = template(source), template(manifest)
    if pod is None:
        raise UsageError(f"{source['kind']} {source['metadata']['name']}: has no pod to take containers from")
    if target is None:
        return
    for key in ("containers", "volumes"):
        present = {item["name"] for item in target["spec"].get(key, [])}
        more = [copy.deepcopy(item) for item in pod["spec"].get(key, []) if item["name"] not in present]
        if more:
            target["spec"].setdefault(key, []).extend(more)


@patch
def pulled_with(manifest: Json, secrets: Iterable[str]) -> None:
    """Add these pull secrets to the pods."""
    pod = template(manifest)
    if pod is not None and (more := [{"name": name} for name in secrets]):
        present = pod["spec"].setdefault("imagePullSecrets", [])
        present += [secret for secret in more if secret not in present]


@patch
def app_protocols(manifest: Json, names: Mapping[str, str], entry: str, protocol: str) -> None:
    """Set what the ports of Services carry in this study, in the mesh's terms.

    ``names`` maps ``http1``, ``h2``, ``grpc`` and ``tcp`` to a value of ``appProtocol``; an empty text omits it. The
    HTTP port of ``entry``, the Service that the generators call, carries their ``protocol``; every other HTTP port
    carries HTTP/1.1.
    """
    if manifest["kind"] != "Service":
        return
    http = "h2" if protocol == "h2" and manifest["metadata"]["name"] == entry else "http1"
    for port in manifest["spec"]["ports"]:
        if "appProtocol" in port:
            port["appProtocol"] = names[port["appProtocol"] if port["appProtocol"] in ("grpc", "tcp") else http]
            if not port["appProtocol"]:
                del port["appProtocol"]


def with_account_token(manifest: Json) -> None:
    """Mount the pods' service-account token."""
    pod = template(manifest)
    if pod is not None:
        pod["spec"]["automountServiceAccountToken"] = True


def replaced(base: Iterable[Json], more: Iterable[Json]) -> list[Json]:
    """Return both in order; an object of ``more`` replaces the same object (kind, namespace, name) of ``base``."""
    objects = {_identity(item): item for item in base}
    for item in more:
        objects[_identity(item)] = item
    return list(objects.values())


def _identity(item: Json) -> tuple[str, str, str]:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", "default"), metadata["name"]


def set_path(manifest: Json, path: str, value: Any) -> None:
    """Set an existing path such as ``spec.jwtRules.0.jwks``; UsageError for a path that does not exist."""
    *way, last = path.split(".")
    node: Any = manifest
    try:
        for key in way:
            node = node[int(key)] if isinstance(node, list) else node[key]
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value if last in node else node[last]
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


def cpu_millis(quantity: str) -> float:
    """Return a quantity of CPU in thousandths: ``250m`` is 250, ``2`` is 2000.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    try:
        return float(_quantity.parse_quantity(quantity) * 1000)
    except ValueError:
        raise UsageError(f"CPU {quantity!r}: must be a number of cores or millicores, e.g. 2 or 500m") from None


def memory(quantity: str) -> float:
    """Return a quantity of memory, such as ``128Mi``, in bytes."""
    try:
        return float(_quantity.parse_quantity(quantity))
    except ValueError:
        raise UsageError(f"memory {quantity!r}: must be a number of bytes, or with a unit, e.g. 128Mi") from None


# --- overlays of waypoints --------------------------------------------------------------------------------------------

_OVERLAY = f"{NOTE}overlay"  # annotation of the ConfigMap: the key that holds the overlay


def overlay_deployment(manifest: Json) -> Json | None:
    """Return the Deployment of an overlay as a manifest, or None; UsageError for a text that is none."""
    key = _overlay_key(manifest)
    if not key:
        return None
    name = manifest["metadata"]["name"]
    try:
        part: Json = parse_yaml(manifest["data"][key].encode(), key)
        part["spec"]["template"]["spec"].setdefault("containers", [])
    except (KeyError, TypeError, AttributeError, UsageError):
        raise UsageError(f"ConfigMap {name}: {key} must hold a Deployment's spec.template.spec as YAML") from None
    return {"kind": "Deployment", "metadata": {"name": name}, **part}


def _overlay_key(manifest: Json) -> str:
    annotations = manifest["metadata"].get("annotations") or {}
    return str(annotations.get(_OVERLAY, "")) if manifest["kind"] == "ConfigMap" else ""


@patch
def overlay_patched(manifest: Json, *patches: Patch) -> None:
    """Make the patches in the Deployment of an overlay; other objects stay unchanged."""
    whole = overlay_deployment(manifest)
    if whole is not None:
        given = parse_yaml(manifest["data"][_overlay_key(manifest)].encode(), "overlay")
        for change in patches:
            change(whole)
        part = {name: whole[name] for name in given}
        manifest["data"][_overlay_key(manifest)] = yaml.safe_dump(part, sort_keys=False)


@patch
def proxy_limits(manifest: Json, parameters: Mapping[str, object], names: Collection[str]) -> None:
    """Set the limits of every proxy (``proxy_cpu``, ``proxy_memory``) in these containers; requests stay."""
    values = {"cpu": parameters.get("proxy_cpu"), "memory": parameters.get("proxy_memory")}
    for container in containers(manifest):
        if container["name"] in names:
            limits = container.setdefault("resources", {}).setdefault("limits", {})
            limits.update({name: value for name, value in values.items() if value})
