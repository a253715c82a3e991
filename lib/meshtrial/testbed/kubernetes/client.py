"""Send requests to a Kubernetes API server: plain dictionaries in, plain dictionaries out.

This is the only module that uses the client library. Paths are written out, because manifests and the objects of a mesh
are dictionaries, and the client's typed calls drop the fields that they do not know.

Every thread has a client of its own, and so does every exec, because ``kubernetes.stream.stream`` replaces a method of
the client that it is given. A request waits up to ``patience_s`` for an API server that does not answer. An error that
a user can repair becomes one line: what failed, where, and what to do.
"""

import copy
import email.utils
import json
import logging
import logging.handlers
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from kubernetes import client as k8s
from kubernetes import config as _untyped_config
from kubernetes import dynamic as _untyped_dynamic
from kubernetes.client.exceptions import ApiException
from kubernetes.config import kube_config as _untyped_kube_config

from meshtrial import network, waiting
from meshtrial.errors import MissingToolError, TestbedError, UsageError
from meshtrial.typed import SHAPE_ERRORS, read_yaml, shortened

dynamic: Any = _untyped_dynamic
T = TypeVar("T")
Json = dict[str, Any]
# Statuses of an API server that starts, stops or is overloaded.
_TRANSIENT = {0, 429, 500, 502, 503, 504}
_TIMEOUT = (3.0, 30.0)
# A server that has never answered is more likely to be gone, or at another address, than overloaded.
_FIRST_PATIENCE_S = 10.0


class NotFoundError(TestbedError):
    """The object does not exist."""


class ConflictError(TestbedError):
    """The object exists already, or somebody else has changed it meanwhile."""


class Cluster:
    """A cluster, by its kubeconfig context; without one, the default or the cluster that this process runs in."""

    def __init__(self, kubeconfig: str = "", context: str = "", patience_s: float = 60.0) -> None:
        self.patience_s = patience_s  # for a silent API server; at most 10 s before its first answer
        self._configuration, self.context = configuration_of(kubeconfig, context)
        self._configuration.retries = 0  # urllib3's own retries would hide how long the server did not answer
        self._local = threading.local()
        self.kubeconfig = kubeconfig
        self.server = str(self._configuration.host)
        self.has_answered = False
        self.kubelets: dict[str, str] | None = None  # URL by node; empty where the API server forwards the request

    def new_client(self, host: str = "") -> Any:
        """Return an ApiClient that nobody else uses, of the API server or of another host."""
        configuration = self._configuration
        if host:
            configuration = copy.deepcopy(configuration)
            configuration.host = host
            configuration.refresh_api_key_hook = self._refresh_token
        return k8s.ApiClient(configuration)

    def _refresh_token(self, configuration: Any) -> None:
        """Give another host's configuration the current token; the library's own hook would change its host, too."""
        if self._configuration.refresh_api_key_hook is not None:
            self._configuration.refresh_api_key_hook(self._configuration)
        configuration.api_key = dict(self._configuration.api_key)

    def client(self, host: str = "") -> Any:
        """Return this thread's client of the API server or of another host."""
        clients: dict[str, Any] = self._local.__dict__.setdefault("clients", {})
        if host not in clients:
            # Paths are written out, so nothing is discovered: discovery would leave a file in /tmp.
            clients[host] = dynamic.DynamicClient(self.new_client(host), discoverer=lambda *_: None)
        return clients[host]

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout: tuple[float, float] = _TIMEOUT,
        host: str = "",
    ) -> bytes:
        """Send one request to the API server, or to another host, and return the answer's body.

        Nothing is retried; the client's own errors are raised.
        """
        answer = self.client(host).request(
            method,
            path,
            body,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json, */*"},
            content_type=content_type,
            _request_timeout=timeout,
            serialize=False,
        )
        data: bytes = answer.data
        self._local.date = answer.headers.get("Date")
        return data

    def server_time(self) -> float:
        """Return the API server's clock in seconds since 1970; other machines' clocks may differ from it."""
        self.get("/version")
        if not self._local.date:
            raise TestbedError(f"{self.server} ({self.where()}) sends no Date in its answers, so its clock is unknown")
        return email.utils.parsedate_to_datetime(str(self._local.date)).timestamp()

    def call(self, label: str, work: Callable[[], T], patience_s: float | None = None) -> T:
        """Return what ``work`` returns; repeat it while the API server is unavailable, and translate its errors.

        ``work`` must be safe to repeat.
        """
        began = time.monotonic()
        patience_s = self.patience_s if patience_s is None else patience_s

        def is_worth_repeating(error: Exception) -> bool:
            self.has_answered = self.has_answered or bool(isinstance(error, ApiException) and error.status)
            limit = patience_s if self.has_answered else min(patience_s, _FIRST_PATIENCE_S)
            return is_transient(error) and time.monotonic() - began <= limit

        try:
            result = waiting.retried(work, is_worth_repeating, patience_s)
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self.translate(label, error) from None
        self.has_answered = True
        return result

    def get(self, path: str, once_s: float | None = None, **query: Any) -> Json:
        """Return an object or a list; with ``once_s``, ask a single time and wait at most that long."""
        answer: Json = json.loads(self._read(path, once_s, query))
        return answer

    def text(self, path: str, once_s: float | None = None, **query: Any) -> str:
        """Return an answer that is not JSON: metrics or logs."""
        return self._read(path, once_s, query).decode(errors="replace")

    def items(self, path: str, once_s: float | None = None, **query: Any) -> list[Json]:
        """Return the items of a list."""
        items: list[Json] = self.get(path, once_s, **query).get("items") or []
        return items

    def _read(self, path: str, once_s: float | None, query: Json) -> bytes:
        timeout, patience_s = (_TIMEOUT, None) if once_s is None else ((1.0, once_s), 0.0)
        return self.call(f"get {path}", lambda: self.request("GET", path, query, timeout=timeout), patience_s)

    def kubelet(self, node: str, path: str) -> str:
        """Return a page of a kubelet (``/stats/summary``), through the API server if this account has ``nodes/proxy``.

        Otherwise the kubelet itself is asked; for that the account needs ``nodes/metrics`` and ``nodes/stats``. With
        ``nodes/proxy`` an account can run commands in every pod of the cluster, so most accounts do not have it.
        """
        if self.kubelets is None:
            proxied = self.allowed("get", "nodes/proxy")
            items = () if proxied else self.items("/api/v1/nodes")
            self.kubelets = {item["metadata"]["name"]: _kubelet_host(item) for item in items}
        if node not in self.kubelets:
            return self.text(f"/api/v1/nodes/{node}/proxy{path}")
        host = self.kubelets[node]
        try:
            return self.request("GET", path, host=host).decode(errors="replace")
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise TestbedError(
                f"node {node}: its kubelet at {host} does not answer ({_short(error)}); if it cannot be reached, or "
                "its certificate is not the cluster's, grant nodes/proxy (manifests/README.md)"
            ) from None

    def post(self, path: str, body: Json) -> Json:
        """Create an object and return it."""
        created: Json = json.loads(self.call(f"create {path}", lambda: self.request("POST", path, None, body)))
        return created

    def merge(self, path: str, body: Json) -> None:
        """Merge-patch an object."""
        kind = "application/merge-patch+json"
        self.call(f"patch {path}", lambda: self.request("PATCH", path, None, body, kind))

    def apply(self, label: str, path: str, body: Json, query: Mapping[str, str]) -> None:
        """Apply an object server-side; the query names the field manager."""
        kind = "application/apply-patch+yaml"
        self.call(label, lambda: self.request("PATCH", path, query, body, kind))

    def delete(self, path: str, *, grace_s: int | None = None, uid: str = "", **query: str) -> bool:
        """Delete an object, or the objects of a list that a query selects; return False if it does not exist.

        With a ``uid``, only the object that has it is deleted.
        """
        body: Json = {"propagationPolicy": "Background"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            self.call(f"delete {path}", lambda: self.request("DELETE", path, query, body))
        except NotFoundError:
            return False
        return True

    def allowed(self, verb: str, resource: str, group: str = "", namespace: str = "", name: str = "") -> bool:
        """Return whether this account has a right (SelfSubjectAccessReview)."""
        resource, _, sub = resource.partition("/")
        attributes = {"verb": verb, "resource": resource, "subresource": sub, "group": group, "name": name}
        spec = {"resourceAttributes": attributes | {"namespace": namespace}}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
        answer = self.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        return bool(answer.get("status", {}).get("allowed"))

    def where(self) -> str:
        """Return how messages name this cluster."""
        return f"context {self.context}" if self.context else self.server

    def translate(self, label: str, error: Exception) -> TestbedError:
        """Return the error as one line: what failed, where, and what to do."""
        if not isinstance(error, ApiException) or error.status in (0, None):
            return TestbedError(
                f"{label}: no answer from the API server {self.server} ({self.where()}): {_short(error)}; "
                "check that the cluster runs and that this kubeconfig is its own ('kubectl cluster-info')"
            )
        try:
            message = str(json.loads(error.body or "{}").get("message") or error.reason or error.status)
        except (ValueError, AttributeError):
            message = str(error.reason or error.status)
        if error.status == 401:
            return TestbedError(
                f"{label}: {self.where()} refuses the credentials; log in to the cluster, then start again"
            )
        if error.status == 403 and " cannot " in message:  # RBAC's words; admission (quota, policies) has others
            return TestbedError(
                f"{label}: this account has no right to do it in {self.where()} ({message}); "
                "an administrator grants it with 'kubectl apply -f manifests/rbac.yaml'"
            )
        if error.status == 404:
            return NotFoundError(f"{label}: does not exist ({message})")
        if error.status == 409:
            return ConflictError(f"{label}: {message}")
        return TestbedError(f"{label}: the API server answers {error.status}: {message}")


def is_transient(error: Exception) -> bool:
    """Return whether the API server gave no answer, or is starting, stopping or overloaded."""
    if isinstance(error, ApiException):
        return (error.status or 0) in _TRANSIENT
    return isinstance(error, urllib3.exceptions.HTTPError | OSError)


def _kubelet_host(node: Json) -> str:
    status = node.get("status", {})
    port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port", 10250)
    addresses = {entry["type"]: entry["address"] for entry in status.get("addresses") or []}
    host = addresses.get("InternalIP") or addresses.get("Hostname") or node["metadata"]["name"]
    return network.url(host, str(port), "https")


def _short(error: Exception) -> str:
    cause = getattr(error, "reason", None) or error
    return " ".join(str(cause).split())[:200]


# --- kubeconfig -------------------------------------------------------------------------------------------------------

config: Any = _untyped_config
kube_config: Any = _untyped_kube_config
_LOOPBACK = ("localhost", "127.0.0.0/8", "::1/128")


def configuration_of(kubeconfig: str, context: str) -> tuple[Any, str]:
    """Return the client's configuration and the name of the context, which is empty inside a cluster.

    Without a path, the kubeconfig is KUBECONFIG or the default file; without a context, it is the current one. Whatever
    a kubeconfig lacks is refused here in one line. The library itself raises Python's own errors, only logs a plugin
    that yields no credentials, and reports unreadable certificates as a server that does not answer.
    """
    configuration = k8s.Configuration()
    files = _files(kubeconfig)
    if not files and not context:
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            raise MissingToolError(
                "no cluster is known: there is no kubeconfig, and this is not a pod; set kubeconfig=PATH or $KUBECONFIG"
            ) from None
        return configuration, ""
    try:
        current = _load(configuration, files, context)
    except (config.ConfigException, OSError) as error:
        why = " ".join(str(error).split())[:300]
    except SHAPE_ERRORS as error:
        why = f"it is not a kubeconfig ({shortened(error, 120)})"
    else:
        # A proxy of the kubeconfig (proxy-url) is used for loopback too, which may be another machine's. A proxy of the
        # environment is not, as in kubectl.
        if configuration.proxy == k8s.Configuration(host=configuration.host).proxy:
            configuration.no_proxy = ",".join(filter(None, (configuration.no_proxy, *_LOOPBACK)))
        return configuration, current
    raise UsageError(f"kubeconfig {', '.join(map(str, files)) or '(default)'} cannot be used: {why}")


def _files(kubeconfig: str) -> list[Path]:
    """Return the kubeconfig that was given, or those of KUBECONFIG that exist."""
    if kubeconfig:
        path = Path(kubeconfig).expanduser()
        if not path.is_file():
            raise UsageError(f"kubeconfig = {kubeconfig!r}: the file does not exist")
        return [path]
    names = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [path for name in names.split(os.pathsep) if (path := Path(name).expanduser()).is_file()]


def _load(configuration: Any, files: list[Path], context: str) -> str:
    merged = kube_config.KubeConfigMerger("")
    for path in files:
        read_yaml(path, f"kubeconfig {path} cannot be used", "clusters, users and contexts")
        merged.load_config(str(path))
    read = merged.config
    if read is None:
        raise config.ConfigException("the file does not exist")
    names = {kind: [item["name"] for item in read[f"{kind}s"].value] for kind in ("context", "cluster", "user")}
    known = ", ".join(names["context"]) or "none"
    if context and context not in names["context"]:
        raise UsageError(f"context = {context!r} is not in the kubeconfig; it has {known}")
    name = context or read.value.get("current-context")
    if name not in names["context"]:
        current = f"its current context, {name}, does not exist" if name else "it has no current context"
        raise config.ConfigException(f"{current}; give context= one of these: {known}")
    parts = read["contexts"].get_with_name(name)["context"]
    for kind in ("cluster", "user"):
        if (part := parts.safe_get(kind)) and part not in names[kind]:
            raise config.ConfigException(f"context {name} names the {kind} {part}, which does not exist")
    # The client only logs that it could not get credentials, and continues without them.
    log = logging.handlers.BufferingHandler(1000)
    log.setLevel(logging.ERROR)
    logging.getLogger().addHandler(log)
    try:
        kube_config.KubeConfigLoader(read, name, config_base_path=None).load_and_set(configuration)
    finally:
        logging.getLogger().removeHandler(log)
    if logged := [record.getMessage() for record in log.buffer if record.pathname == kube_config.__file__]:
        raise config.ConfigException(f"its plugin yields no credentials ({logged[-1]})")
    if not configuration.host:
        raise config.ConfigException(f"the cluster of context {name} has no server")
    _read_certificates(configuration)
    return str(name)


def _read_certificates(configuration: Any) -> None:
    try:
        if configuration.ssl_ca_cert:
            what = "certificate authority"
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(configuration.ssl_ca_cert)
        if configuration.cert_file:
            what = "client certificate"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
            context.load_cert_chain(configuration.cert_file, configuration.key_file, password="")
    except ssl.SSLError as error:
        raise config.ConfigException(f"its {what} cannot be read ({error.reason or error})") from None
