"""Pods as the API server lists them, and commands in their containers.

Commands are binary-safe, each on a connection of its own. A stream that ends without the API server's status is a
broken stream, never a result: the caller decides whether the command may be repeated.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes import client as k8s
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream
from websocket import WebSocketException

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.manifests import NOTE
from meshtrial.testbed.kubernetes.meshdata import Selector

# --- pods -------------------------------------------------------------------------------------------------------------

PART = f"{NOTE}part"


def pods_of(cluster: Cluster, namespace: str, selector: str = "", once_s: float | None = None) -> list[Json]:
    """Return the pods of a namespace, or those that a label selector chooses."""
    query = {"labelSelector": selector} if selector else {}
    return cluster.items(f"/api/v1/namespaces/{namespace}/pods", once_s, **query)


def live_pods(cluster: Cluster, namespace: str, selector: str = "") -> list[Json]:
    """Return the pods that are not being deleted."""
    return [pod for pod in pods_of(cluster, namespace, selector) if not pod["metadata"].get("deletionTimestamp")]


def members(cluster: Cluster, part: Selector) -> list[Json]:
    """Return the live pods of a part of a mesh."""
    return live_pods(cluster, part.namespace, part.selector)


def log_of(cluster: Cluster, pod: Json, container: str, once_s: float | None = None, **query: Any) -> str:
    """Return a container's log."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
    return cluster.text(path, once_s, container=container, **query)


def pod_ref(pod: Json, container: str) -> PodRef:
    """Return the reference to a container of a listed pod."""
    metadata = pod["metadata"]
    node, ip = pod["spec"].get("nodeName", ""), pod["status"].get("podIP", "")
    return PodRef(metadata["namespace"], metadata["name"], container, metadata["uid"], node, ip)


def label(pod: Json, name: str) -> str:
    """Return a label, or an empty text."""
    return str((pod["metadata"].get("labels") or {}).get(name, ""))


def uid(pod: Json) -> str:
    """Return what distinguishes a pod from a later one of the same name."""
    return str(pod["metadata"]["uid"])


def is_ready(item: Json) -> bool:
    """Return whether the Ready condition of a pod or node is true."""
    conditions = item.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def owner_kinds(pod: Json) -> set[str]:
    """Return the kinds of the objects that a pod belongs to: ``ReplicaSet``, ``Job`` and others."""
    return {str(owner.get("kind")) for owner in pod["metadata"].get("ownerReferences") or []}


def statuses(pod: Json) -> list[Json]:
    """Return the states of the init containers and containers."""
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def container_names(pod: Json) -> list[str]:
    """Return the containers that run as long as the pod: ordinary ones and native sidecars."""
    spec = pod["spec"]
    sidecars = [c["name"] for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"]
    return [*(c["name"] for c in spec["containers"]), *sidecars]


def images(pod: Json) -> dict[str, str]:
    """Return the image and digest of every container of a pod, as its node resolved them."""
    references = {}
    for container in statuses(pod):
        digest = str(container.get("imageID", "")).rpartition("@")[2]
        references[str(container["name"])] = f"{container.get('image', '?')}" + (f" ({digest})" if digest else "")
    return references


def versions(pods: Sequence[Json]) -> dict[str, str]:
    """Return every image that the containers of a name run, over all pods."""
    images_of: dict[str, set[str]] = {}
    for pod in pods:
        for name, image in images(pod).items():
            images_of.setdefault(f"image {name}", set()).add(image)
    return {name: ", ".join(sorted(references)) for name, references in images_of.items()}


def autoscaling(cluster: Cluster, part: Selector) -> dict[str, Any]:
    """Return the replicas of a control plane's component, and the bounds of its autoscaler."""
    size: dict[str, Any] = {"pods": len(members(cluster, part))}
    try:
        scalers = cluster.items(f"/apis/autoscaling/v2/namespaces/{part.namespace}/horizontalpodautoscalers")
    except TestbedError:
        return size
    for item in scalers:
        if part.component in item["spec"]["scaleTargetRef"]["name"]:
            bounds = {key: item["spec"].get(key) for key in ("minReplicas", "maxReplicas")}
            size["autoscaler"] = bounds | {"current": item.get("status", {}).get("currentReplicas")}
    return size


def role(pod: Json) -> str:
    """Return what a pod is to a study: a part of ours by its label, else a part of a mesh."""
    if label(pod, "gateway.networking.k8s.io/gateway-name"):
        return "waypoint"
    return label(pod, PART) or ("node agent" if "DaemonSet" in owner_kinds(pod) else "control plane")


def loss_reason(pod: Json, now: Json | None, when: str = "during the run") -> str:
    """Return how a pod differs from the one that was listed before, or an empty text."""
    metadata, part = pod["metadata"], role(pod)
    where = f" in {metadata['namespace']}" if part in ("control plane", "node agent") else ""
    name = f"{part} pod {metadata['name']}{where} on node {pod['spec'].get('nodeName')}"
    if now is None:
        return f"{name} was deleted {when}"
    status = now["status"]
    if status.get("phase") == "Failed":
        return f"{name} failed {when}: {status.get('reason', '')} {status.get('message', '')}".strip()
    if now["metadata"].get("deletionTimestamp"):
        why: Json = next((c for c in status.get("conditions") or [] if c["type"] == "DisruptionTarget"), {})
        return f"{name} was evicted or deleted {when}{': ' + why['message'] if why.get('message') else ''}"
    if _restarts(now) > _restarts(pod):
        return f"{name}: a container was restarted {when}"
    for condition in status.get("conditions") or []:
        if condition["type"] == "Ready" and condition["status"] != "True":
            why_not = condition.get("reason", "") or condition.get("message", "")
            return f"{name} is no longer ready ({why_not or 'no reason given'}); its node may be gone"
    return ""


def _restarts(pod: Json) -> int:
    return sum(int(status.get("restartCount", 0)) for status in statuses(pod))


# --- commands in containers -------------------------------------------------------------------------------------------

BUSYBOX = "/tools/busybox"  # an init container copies it into our own pods
_STDIN, _STDOUT, _STDERR, _STATUS = 0, 1, 2, 3


class BrokenStreamError(TestbedError):
    """The connection to the API server ended before the command did."""


@dataclass(frozen=True)
class PodRef:
    """A container of a listed pod; ``uid`` distinguishes it from a later pod of the same name."""

    namespace: str
    name: str
    container: str
    uid: str = ""
    node: str = ""
    ip: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Exited:
    """How a command ended and what it wrote."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode(errors="replace")

    @property
    def both(self) -> str:
        """Standard output and error as text."""
        return (self.out + self.err).decode(errors="replace")


_UNREACHED = re.compile(r"error (sending request|dialing backend)")


class Running:
    """A command that runs in a container, with its streams."""

    def __init__(self, cluster: Cluster, pod: PodRef, command: Sequence[str], *, stdin: bool = False) -> None:
        self._pod = pod
        self._what = f"{pod}: {command[0]}"
        self._api = cluster.new_client()
        self._out, self._err = bytearray(), bytearray()
        try:
            self._ws: Any = stream(
                k8s.CoreV1Api(self._api).connect_get_namespaced_pod_exec,
                pod.name,
                pod.namespace,
                container=pod.container,
                command=list(command),
                stdin=stdin,
                stdout=True,
                stderr=True,
                tty=False,
                _preload_content=False,
                binary=True,
            )
        except ApiException as error:
            self._api.close()
            # A refused upgrade has no status: the API server's answer is in the text of the handshake's error.
            if "Handshake status 40" in str(error.reason):
                raise TestbedError(f"{self._what}: refused: {refusal(str(error.reason))}") from None
            raise BrokenStreamError(str(cluster.translate(self._what, error))) from None

    def write(self, data: bytes) -> None:
        """Send to standard input."""
        try:
            self._ws.write_channel(_STDIN, data)
        except (WebSocketException, OSError) as error:
            raise BrokenStreamError(f"{self._what}: its stream broke: {error}") from None

    def line(self, timeout_s: float) -> str:
        """Return the next line of standard output."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._out:
            if not self._ws.is_open():
                raise BrokenStreamError(
                    f"{self._what}: ended early: {(self._out + self._err).decode(errors='replace')}"
                )
            if time.monotonic() > deadline:
                raise TestbedError(f"{self._what}: wrote nothing for {timeout_s:g} s")
            self._pump(deadline)
        text, _, rest = bytes(self._out).partition(b"\n")
        self._out = bytearray(rest)
        return text.decode(errors="replace").strip()

    def step(self, timeout_s: float) -> bool:
        """Read what arrives for so long; return whether the command still runs."""
        self._pump(time.monotonic() + timeout_s)
        return bool(self._ws.is_open())

    def wait(self, timeout_s: float) -> Exited:
        """Wait until the command has ended."""
        deadline = time.monotonic() + timeout_s
        while self._ws.is_open():
            if time.monotonic() > deadline:
                raise TestbedError(f"{self._what}: did not end within {timeout_s:g} s")
            self._pump(deadline)
        status = self._ws.read_channel(_STATUS)
        return Exited(self._code(bytes(status)), bytes(self._out), bytes(self._err))

    def close(self) -> None:
        """Close the connection; the container runtime then ends the command."""
        with contextlib.suppress(WebSocketException, OSError):
            self._ws.close()
        self._api.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pump(self, deadline: float) -> None:
        try:
            self._ws.update(timeout=max(0.0, min(1.0, deadline - time.monotonic())))
            self._take()
            if not self._ws.is_open():
                self._take()  # reading once more takes data that arrived with the end of the stream
        except (WebSocketException, OSError, ValueError) as error:
            raise BrokenStreamError(f"{self._what}: its stream broke: {error or type(error).__name__}") from None

    def _take(self) -> None:
        for channel, buffer in ((_STDOUT, self._out), (_STDERR, self._err)):
            buffer += self._ws.read_channel(channel)

    def _code(self, status: bytes) -> int:
        if not status:
            raise BrokenStreamError(f"{self._what}: its stream ended without a status")
        answer = json.loads(status)
        if answer.get("status") == "Success":
            return 0
        for cause in (answer.get("details") or {}).get("causes") or []:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
        message = str(answer.get("message", "failed"))
        # The API server answers and the node's kubelet does not: this may pass, so it is retried like a broken stream.
        kind = BrokenStreamError if _UNREACHED.search(message) else TestbedError
        raise kind(f"{self._what}: {message}")


def run(
    cluster: Cluster, pod: PodRef, command: Sequence[str], *, timeout_s: float = 30.0, again: bool = True
) -> Exited:
    """Run a command to its end; with ``again``, repeat it for the cluster's patience where its stream breaks."""

    def once() -> Exited:
        with Running(cluster, pod, command) as running:
            return running.wait(timeout_s)

    return waiting.retried(once, lambda error: again and isinstance(error, BrokenStreamError), cluster.patience_s)


def refusal(reason: str) -> str:
    """Return the API server's message when it refused a stream: it is inside the handshake's error."""
    message = re.search(r'"message":"((?:[^"\\]|\\.)*)"', reason.replace("\\\\", "\\"))
    return message[1].replace('\\"', '"')[:300] if message else " ".join(reason.split())[:300]
