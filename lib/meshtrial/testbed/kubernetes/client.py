"""The one place that touches the untyped Kubernetes client: plain dictionaries in, plain dictionaries out.

Paths are written out: manifests and what a mesh brings are dictionaries, and the client's typed calls would turn every
answer into objects that drop the fields they do not know.

Every thread gets an ApiClient of its own, and so does every exec, because ``kubernetes.stream.stream``
swaps ``call_api`` of the client that it is given. An API server that does not answer is waited for, for
``patience_s``; what a user can mend becomes one line that says what, where and what to do next.
"""

import copy
import email.utils
import json
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from kubernetes import client as k8s
from kubernetes import config as _untyped_config
from kubernetes.client.exceptions import ApiException
from kubernetes.config import kube_config as _untyped_kube_config
from kubernetes.dynamic import DynamicClient

from meshtrial import network, waiting
from meshtrial.errors import MissingToolError, TestbedError, UsageError
from meshtrial.typed import SHAPE_ERRORS, read_yaml, shortened

T = TypeVar("T")
Json = dict[str, Any]
# What an API server says while it starts, stops or is overloaded; all else is an answer.
_BLINK = {0, 429, 500, 502, 503, 504}
_TIMEOUT = (3.0, 30.0)
# A server that was never heard is more likely gone, or at another address, than blinking.
_FIRST_PATIENCE_S = 10.0


class NotFoundError(TestbedError):
    """The object is not there."""


class ConflictError(TestbedError):
    """The object is there already, or was changed by somebody else meanwhile."""


class Cluster:
    """A cluster by its kubeconfig context, or the one that this process runs in; empty for the user's own defaults."""

    def __init__(self, kubeconfig: str = "", context: str = "", patience_s: float = 60.0) -> None:
        self.patience_s = patience_s  # for a silent API server; 10 s at most for one that has not answered yet
        self._configuration, self.context = configuration_of(kubeconfig, context)
        self._configuration.retries = 0  # urllib3's own retries would hide how long the server was silent
        self._local = threading.local()
        self.kubeconfig = kubeconfig
        self.server = str(self._configuration.host)
        self.heard = False  # whether it has answered anything yet
        self.kubelets: dict[str, str] | None = None  # where each is asked; empty where the API server asks for us

    def new_client(self, host: str = "") -> k8s.ApiClient:
        """Return an ApiClient that nobody else uses, of the API server or of another host."""
        configuration = self._configuration
        if host:
            configuration = copy.deepcopy(configuration)
            configuration.host = host
        return k8s.ApiClient(configuration)

    def client(self, host: str = "") -> DynamicClient:
        """Return this thread's client of the API server or of another host."""
        clients: dict[str, DynamicClient] = self._local.__dict__.setdefault("clients", {})
        if host not in clients:
            # Paths are written out, so nothing is discovered: discovery would leave a file in /tmp.
            clients[host] = DynamicClient(self.new_client(host), discoverer=lambda *_: None)
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
        """The API server's own clock, in seconds since 1970: clocks of other machines may differ from it."""
        self.get("/version")
        if not self._local.date:
            raise TestbedError(f"{self.server} ({self.where()}) does not say what time it is (no Date in its answers)")
        return email.utils.parsedate_to_datetime(str(self._local.date)).timestamp()

    def call(self, what: str, work: Callable[[], T], patience_s: float | None = None) -> T:
        """Do something that may be done twice; wait for a blinking API server; translate errors."""
        began = time.monotonic()
        patience_s = self.patience_s if patience_s is None else patience_s

        def may_pass(error: Exception) -> bool:
            self.heard = self.heard or bool(isinstance(error, ApiException) and error.status)
            limit = patience_s if self.heard else min(patience_s, _FIRST_PATIENCE_S)
            return is_blink(error) and time.monotonic() - began <= limit

        try:
            done = waiting.retried(work, may_pass, patience_s)
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self.translate(what, error) from None
        self.heard = True
        return done

    def get(self, path: str, once_s: float | None = None, **query: Any) -> Json:
        """An object or a list as JSON; asked a single time, for no longer than ``once_s``, where that is given."""
        answer: Json = json.loads(self._read(path, once_s, query))
        return answer

    def text(self, path: str, once_s: float | None = None, **query: Any) -> str:
        """An answer that is not JSON: metrics, logs."""
        return self._read(path, once_s, query).decode(errors="replace")

    def items(self, path: str, once_s: float | None = None, **query: Any) -> list[Json]:
        """The items of a list."""
        items: list[Json] = self.get(path, once_s, **query).get("items") or []
        return items

    def _read(self, path: str, once_s: float | None, query: Json) -> bytes:
        timeout, patience_s = (_TIMEOUT, None) if once_s is None else ((1.0, once_s), 0.0)
        return self.call(f"get {path}", lambda: self.request("GET", path, query, timeout=timeout), patience_s)

    def kubelet(self, node: str, path: str) -> str:
        """What a kubelet says (``/stats/summary``): asked itself, or by the API server where that was given.

        A kubelet lets itself be asked with ``nodes/metrics`` and ``nodes/stats``. With ``nodes/proxy``, the way through
        the API server, commands can be run in every pod of the cluster.
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
                f"node {node}: its kubelet at {host} does not answer ({_short(error)}); where it cannot be reached, or "
                "its certificate is not the cluster's, give nodes/proxy (manifests/README.md)"
            ) from None

    def post(self, path: str, body: Json) -> Json:
        """Create an object."""
        made: Json = json.loads(self.call(f"create {path}", lambda: self.request("POST", path, None, body)))
        return made

    def merge(self, path: str, body: Json) -> None:
        """Merge-patch an object."""
        kind = "application/merge-patch+json"
        self.call(f"patch {path}", lambda: self.request("PATCH", path, None, body, kind))

    def apply(self, what: str, path: str, body: Json, query: Mapping[str, str]) -> None:
        """Server-side apply of an object, for whom the query says."""
        kind = "application/apply-patch+yaml"
        self.call(what, lambda: self.request("PATCH", path, query, body, kind))

    def delete(self, path: str, *, grace_s: int | None = None, uid: str = "", **query: str) -> bool:
        """Delete an object, or what a query chooses of a list; with a uid only the one that has it.

        False when it was not there.
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
        """Whether this identity may do that (SelfSubjectAccessReview)."""
        resource, _, sub = resource.partition("/")
        attributes = {"verb": verb, "resource": resource, "subresource": sub, "group": group, "name": name}
        spec = {"resourceAttributes": attributes | {"namespace": namespace}}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
        answer = self.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        return bool(answer.get("status", {}).get("allowed"))

    def where(self) -> str:
        """How messages name this cluster."""
        return f"context {self.context}" if self.context else self.server

    def translate(self, what: str, error: Exception) -> TestbedError:
        """One line for what went wrong: what, where, what to do next."""
        if not isinstance(error, ApiException) or error.status in (0, None):
            return TestbedError(
                f"{what}: no answer from the API server {self.server} ({self.where()}): {_short(error)}; "
                "check that the cluster runs and that this kubeconfig is its own ('kubectl cluster-info')"
            )
        message = _message(error)
        if error.status == 401:
            return TestbedError(
                f"{what}: {self.where()} refuses the credentials; log in to the cluster again, then start again"
            )
        if error.status == 403 and " cannot " in message:  # RBAC's words; admission (quota, policies) has others
            return TestbedError(
                f"{what}: no right to do it in {self.where()} ({message}); an administrator gives it with "
                "'kubectl apply -f manifests/rbac.yaml'"
            )
        if error.status == 404:
            return NotFoundError(f"{what}: not there ({message})")
        if error.status == 409:
            return ConflictError(f"{what}: {message}")
        return TestbedError(f"{what}: the API server answers {error.status}: {message}")


def is_blink(error: Exception) -> bool:
    """Whether the API server gave no answer, or only that it is busy starting or stopping."""
    if isinstance(error, ApiException):
        return (error.status or 0) in _BLINK
    return isinstance(error, urllib3.exceptions.HTTPError | OSError)


def _kubelet_host(node: Json) -> str:
    status = node.get("status", {})
    port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port", 10250)
    addresses = {one["type"]: one["address"] for one in status.get("addresses") or []}
    host = addresses.get("InternalIP") or addresses.get("Hostname") or node["metadata"]["name"]
    return network.url(host, str(port), "https")


def _message(error: ApiException) -> str:
    try:
        message = json.loads(error.body or "{}").get("message", "")
    except (ValueError, AttributeError):
        message = ""
    return str(message or error.reason or error.status)


def _short(error: Exception) -> str:
    cause = getattr(error, "reason", None) or error
    return " ".join(str(cause).split())[:200]


# --- kubeconfig -------------------------------------------------------------------------------------------------------

config: Any = _untyped_config
kube_config: Any = _untyped_kube_config
_LOOPBACK = ("localhost", "127.0.0.0/8", "::1/128")


def configuration_of(kubeconfig: str, context: str) -> tuple[Any, str]:
    """The client's configuration and the context's name, which is empty inside a cluster.

    Without a path it is KUBECONFIG or the usual file, without a context the current one.
    """
    configuration = k8s.Configuration()
    files = _files(kubeconfig)
    if not files and not context:
        return _in_cluster(configuration)
    with _one_line(", ".join(map(str, files)) or "(default)"):
        current = _load(configuration, files, context)
    # A proxy that the kubeconfig names (proxy-url) is meant, for loopback may be another machine's behind it. One of
    # the environment is kept away from loopback, as kubectl does.
    if configuration.proxy == k8s.Configuration(host=configuration.host).proxy:
        configuration.no_proxy = ",".join(filter(None, (configuration.no_proxy, *_LOOPBACK)))
    return configuration, current


def _files(kubeconfig: str) -> list[Path]:
    """The files that there are: the one that was given, or of a list in KUBECONFIG those that exist."""
    if kubeconfig:
        path = Path(kubeconfig).expanduser()
        if not path.is_file():
            raise UsageError(f"kubeconfig = {kubeconfig!r}: there is no such file")
        return [path]
    usual = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [path for name in usual.split(os.pathsep) if (path := Path(name).expanduser()).is_file()]


def _load(configuration: Any, files: list[Path], context: str) -> str:
    merged = kube_config.KubeConfigMerger("")
    for path in files:
        read_yaml(path, f"kubeconfig {path} cannot be used", "clusters, users and contexts")
        merged.load_config(str(path))
    read = merged.config
    if read is None:
        raise config.ConfigException("there is no such file")
    there = {kind: [item["name"] for item in read[f"{kind}s"].value] for kind in ("context", "cluster", "user")}
    has = ", ".join(there["context"]) or "none"
    if context and context not in there["context"]:
        raise UsageError(f"context = {context!r} is not in the kubeconfig; it has {has}")
    name = context or read.value.get("current-context")
    if name not in there["context"]:
        current = f"its current context, {name}, is not in it" if name else "it has no current context"
        raise config.ConfigException(f"{current}; give context= one of these: {has}")
    parts = read["contexts"].get_with_name(name)["context"]
    for kind in ("cluster", "user"):
        if (part := parts.safe_get(kind)) and part not in there[kind]:
            raise config.ConfigException(f"context {name} names the {kind} {part}, which is not in it")
    with _heard() as said:
        kube_config.KubeConfigLoader(read, name, config_base_path=None).load_and_set(configuration)
    if said:
        raise config.ConfigException(f"its plugin gives no credentials ({said[-1]})")
    if not configuration.host:
        raise config.ConfigException(f"the cluster of context {name} has no server")
    _read_certificates(configuration)
    return str(name)


@contextmanager
def _one_line(files: str) -> Iterator[None]:
    try:
        yield
    except (config.ConfigException, OSError) as error:
        why = " ".join(str(error).split())[:300]
    except SHAPE_ERRORS as error:
        why = f"it has not the form of a kubeconfig ({shortened(error, 120)})"
    else:
        return
    raise UsageError(f"kubeconfig {files} cannot be used: {why}") from None


class _Listener(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        if record.pathname == kube_config.__file__:
            self.said.append(record.getMessage())


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What the client logs of credentials that it could not get: it goes on without them."""
    listener = _Listener([])
    logging.getLogger().addHandler(listener)
    try:
        yield listener.said
    finally:
        logging.getLogger().removeHandler(listener)


def _read_certificates(configuration: Any) -> None:
    """Read them as the first request would."""
    try:
        if configuration.ssl_ca_cert:
            what = "certificate authority"
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(configuration.ssl_ca_cert)
        if configuration.cert_file:
            what = "client certificate"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # Without a password OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(configuration.cert_file, configuration.key_file, password="")
    except ssl.SSLError as error:
        raise config.ConfigException(f"its {what} cannot be read ({error.reason or error})") from None


def _in_cluster(configuration: Any) -> tuple[Any, str]:
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        raise MissingToolError(
            "no cluster is known: there is no kubeconfig and this is not a pod; set kubeconfig=PATH or $KUBECONFIG"
        ) from None
    return configuration, ""
