"""A Kubernetes API in memory with the parts that meshtrial uses: objects, selectors, logs, a clock, and outages."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

from kubernetes.client.exceptions import ApiException

from meshtrial.testbed.kubernetes.client import Cluster

Json = dict[str, Any]


class FakeApi(Cluster):
    """Objects by their path; a path without an object lists those directly below it."""

    def __init__(self) -> None:  # the real one reads a kubeconfig
        self.patience_s, self.context, self.kubeconfig, self.server = 0.0, "fake", "", "https://fake"
        self.has_answered = True
        self.kubelets: dict[str, str] | None = {}
        self.objects: dict[str, Json] = {}
        self.logs: dict[str, str] = {}  # ``namespace/pod/container`` (and ``... previous``) to text
        self.asked: list[str] = []  # ``METHOD path`` of every request
        self.now = 1_800_000_000.0  # its clock, seconds since 1970
        self.silent = False  # whether nobody answers
        self.unanswered = 0  # what was asked meanwhile
        self.refused: set[str] = set()
        self._uids = itertools.count(1)

    def add(self, path: str, body: Json | None = None, **labels: str) -> Json:
        """Add an object with a name and a uid."""
        item = json.loads(json.dumps(body or {}))
        metadata = item.setdefault("metadata", {})
        metadata.setdefault("name", path.rsplit("/", 1)[1])
        metadata.setdefault("uid", f"uid-{next(self._uids)}")
        metadata.setdefault("labels", {}).update({k.replace("__", "/"): v for k, v in labels.items()})
        if "/namespaces/" in path and path.rsplit("/", 2)[1] != "namespaces":
            metadata.setdefault("namespace", path.split("/namespaces/")[1].split("/")[0])
        self.objects[path] = item
        return item

    def allowed(self, verb: str, resource: str, group: str = "", namespace: str = "", name: str = "") -> bool:
        """Whatever is not refused."""
        return not any(part in resource for part in self.refused)

    def server_time(self) -> float:
        """Its own clock."""
        if self.silent:
            self.unanswered += 1
            raise self.translate("clock", ConnectionRefusedError("connection refused"))
        return self.now

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout: tuple[float, float] = (1.0, 1.0),
        host: str = "",
    ) -> bytes:
        """Answer, or raise as the client does."""
        self.asked.append(f"{method} {host}{path}")
        if self.silent:
            self.unanswered += 1
            raise ConnectionRefusedError("connection refused")
        if any(part in path for part in self.refused):
            raise ApiException(status=403, reason="forbidden: cannot do that")
        query = dict(query or {})
        if path.endswith("/log"):
            return self._log(path, query)
        if method == "POST":
            name = body["metadata"]["name"]
            if f"{path}/{name}" in self.objects:
                raise ApiException(status=409, reason="AlreadyExists")
            return json.dumps(self.add(f"{path}/{name}", body)).encode()
        if method == "DELETE" and path not in self.objects and self._is_list(path):
            selector = str(query.get("labelSelector", ""))
            for key in [k for k, i in self.objects.items() if k.rpartition("/")[0] == path and _chosen(i, selector)]:
                del self.objects[key]
            return b"{}"
        if method == "GET" and path not in self.objects:
            return json.dumps({"items": self._below(path, query)}).encode() if self._is_list(path) else self._missing()
        if content_type == "application/apply-patch+yaml" and path not in self.objects:
            self.add(path, body)
        if path not in self.objects:
            self._missing()
        if method == "PATCH":
            _merge(self.objects[path], body)
        elif method == "DELETE":
            wanted = (body or {}).get("preconditions", {}).get("uid")
            if wanted and wanted != self.objects[path]["metadata"]["uid"]:
                raise ApiException(status=409, reason="Conflict")
            inside = f"/{path.partition('/v1/')[2]}/"
            for key in [k for k in self.objects if k == path or inside in k]:
                del self.objects[key]
            return b"{}"
        return json.dumps(self.objects[path]).encode()

    def _log(self, path: str, query: Mapping[str, Any]) -> bytes:
        parts = path.split("/")
        key = f"{parts[4]}/{parts[6]}/{query['container']}" + (" previous" if query.get("previous") == "true" else "")
        if key not in self.logs:
            self._missing()
        return self.logs[key].encode()

    @staticmethod
    def _missing() -> bytes:
        raise ApiException(status=404, reason="NotFound")

    @staticmethod
    def _is_list(path: str) -> bool:
        head, _, last = path.rpartition("/")
        return head.endswith("/v1") or (head.rpartition("/")[0].endswith("/namespaces") and last.endswith("s"))

    def _below(self, path: str, query: Mapping[str, Any]) -> list[Json]:
        head, _, kind = path.rpartition("/")
        found = []
        for key, item in self.objects.items():
            place, _, _ = key.rpartition("/")
            everywhere = place.endswith(f"/{kind}") and place.startswith(f"{head}/namespaces/")
            if (place == path or everywhere) and _chosen(item, str(query.get("labelSelector", ""))):
                found.append(item)
        return found


def _chosen(item: Json, selector: str) -> bool:
    labels = item["metadata"].get("labels") or {}
    pairs = [part.partition("=") for part in selector.split(",") if part]
    return all(labels.get(key) == value if sign else key in labels for key, sign, value in pairs)


def _merge(item: Json, body: Json) -> None:
    for key, value in body.items():
        if value is None:
            item.pop(key, None)
        elif isinstance(value, dict) and isinstance(item.get(key), dict):
            _merge(item[key], value)
        else:
            item[key] = value


def pod(namespace: str, name: str, *, ready: bool = True, **status: Any) -> Json:
    """Return a pod as the API server lists it."""
    state = "True" if ready else "False"
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": state}], **status},
    }
