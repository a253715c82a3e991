"""The Envoy reference sidecar: the local backend's bootstraps, as explicit containers beside app and generator.

There is no redirection and no control plane: the generator calls its sidecar on loopback, and the Service leads to the
server's sidecar. It is the lower bound for meshes that use Envoy, and never called Istio.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.keys import Authority, Identity, Tokens, spiffe_name
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.manifests import Json, template

READINGS_PORT, ADMIN_PORT, INBOUND_PORT, OUTBOUND_PORT, POLICY_PORT = 9901, 9902, 15006, 15001, 9191
_READ = ("/ready", "/server_info", "/stats/prometheus")
_KEYS = Path("/etc/meshtrial/keys")


@dataclass(frozen=True)
class Upstream:
    """Where the client's sidecar finds the server's: the Service, and the app's port behind it."""

    host: str
    port: int
    app_port: int


def objects(treatment: Treatment, load: Load, upstream: Upstream, tokens: Tokens | None) -> list[Json]:
    """Return ConfigMaps with both bootstraps and, with mTLS, Secrets with keys made now."""
    configs = [
        _config("envoy-server", _server_bootstrap(treatment, load, upstream, tokens)),
        _config("envoy-client", _client_bootstrap(treatment, upstream)),
    ]
    if treatment.has("mtls"):
        configs += _secrets()
    return configs


def _server_bootstrap(treatment: Treatment, load: Load, upstream: Upstream, tokens: Tokens | None) -> Json:
    proxy = envoy.Proxy("server sidecar", ("127.0.0.1", ADMIN_PORT))
    h2 = load.protocol in ("grpc", "h2")
    proxy.clusters.append(envoy.cluster("app", "127.0.0.1", upstream.app_port, http2=h2))
    filters: list[Json] = []
    if treatment.has("jwt"):
        if tokens is None:
            raise UsageError("sidecar+jwt: without tokens")
        filters += envoy.jwt_filters(tokens, cache=False)
    if treatment.has("opa"):
        proxy.clusters.append(envoy.cluster("opa", "127.0.0.1", POLICY_PORT, http2=True))
        filters.append(envoy.ext_authz_filter())
    tls = None
    if treatment.has("mtls"):
        tls = envoy.tls_context(_identity("server"), _identity("client").spiffe, server=True)
    manager = envoy.http_manager("inbound", "app", http_filters=filters)
    # The peer's certificate reaches the app, as in a mesh, so that the proof can read it there.
    manager["typed_config"]["forward_client_cert_details"] = "SANITIZE_SET"
    manager["typed_config"]["set_current_client_cert_details"] = {"uri": True}
    proxy.listeners.append(envoy.listener("inbound", "0.0.0.0", INBOUND_PORT, [manager], tls))
    return _readable(proxy)


def _client_bootstrap(treatment: Treatment, upstream: Upstream) -> Json:
    proxy = envoy.Proxy("client sidecar", ("127.0.0.1", ADMIN_PORT))
    tls = None
    if treatment.has("mtls"):
        tls = envoy.tls_context(_identity("client"), _identity("server").spiffe, server=False)
    server = envoy.cluster("server", upstream.host, upstream.port, http2=True, tls=tls)
    server["type"] = "STRICT_DNS"
    proxy.clusters.append(server)
    manager = envoy.http_manager("outbound", "server")
    proxy.listeners.append(envoy.listener("outbound", "127.0.0.1", OUTBOUND_PORT, [manager]))
    return _readable(proxy)


def _readable(proxy: envoy.Proxy) -> Json:
    """Return the bootstrap of a sidecar whose admin port is on loopback, and whose pages are on the pod's address."""
    proxy.clusters.append(envoy.cluster("admin", *proxy.admin))
    manager = envoy.http_manager("readings", "admin", paths=_READ)
    proxy.listeners.append(envoy.listener("readings", "0.0.0.0", READINGS_PORT, [manager]))
    return proxy.bootstrap()


def behind_sidecar(manifest: Json) -> None:
    """Lead the Service to the sidecar, move the app to loopback, and probe the sidecar instead of the app."""
    if manifest["kind"] == "Service":
        for port in manifest["spec"]["ports"]:
            port["targetPort"] = INBOUND_PORT
    pod = template(manifest)
    if pod is None:
        return
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    for replacement in json.loads(annotations.get("meshtrial.dev/loopback", "[]")):
        for container in pod["spec"]["containers"]:
            flag = replacement.partition("=")[0]
            container["args"] = [replacement if str(a).startswith(f"{flag}=") else a for a in container.get("args", [])]
    for container in pod["spec"]["containers"]:
        if "readinessProbe" in container and container["name"] != "envoy":
            container["readinessProbe"] = {"tcpSocket": {"port": INBOUND_PORT}, "periodSeconds": 1}


def _identity(workload: str) -> Identity:
    return Identity(spiffe_name(workload), _KEYS / "tls.crt", _KEYS / "tls.key", _KEYS / "ca.crt")


def _config(name: str, bootstrap: Json) -> Json:
    text = yaml.safe_dump(bootstrap, sort_keys=False)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"envoy.yaml": text},
    }


def _secrets() -> list[Json]:
    secrets = []
    with tempfile.TemporaryDirectory(prefix="meshtrial-keys-") as folder:
        authority = Authority(Path(folder))
        for workload in ("server", "client"):
            identity = authority.issue(workload)
            data = {
                "ca.crt": identity.authority.read_text(),
                "tls.crt": identity.certificate.read_text(),
                "tls.key": identity.key.read_text(),
            }
            metadata = {"name": f"envoy-{workload}-keys"}
            secrets.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    return secrets
