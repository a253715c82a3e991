"""Render a treatment, a load and an app: every object of one deployment, before anything is applied.

Policies and configuration come first, then the load generators, then the application: generators that need nodes of
their own must have them before the application uses all of them.
"""

import base64
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from meshtrial.design.load import ChangesUnderLoad, Load
from meshtrial.design.study import Treatment
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.keys import AUDIENCE, ISSUER, Authority, Identity, Tokens, spiffe_name
from meshtrial.errors import UsageError
from meshtrial.load.generators import Target
from meshtrial.testbed import proving
from meshtrial.testbed.kubernetes import manifests
from meshtrial.testbed.kubernetes.apps import App, note
from meshtrial.testbed.kubernetes.manifests import NOTE, Json, Patch
from meshtrial.testbed.kubernetes.meshdata import APP_PROTOCOLS, PROOFS, Feature, Mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.pods import PART

COMPONENT = f"{NOTE}component"


@dataclass(frozen=True)
class NodeAssignment:
    """The only hosts for generators, and for everything else; without any, the scheduler chooses."""

    load: tuple[str, ...] = ()
    app: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setup:
    """A treatment under a load on an application, in a namespace, with everything that it is made from."""

    options: KubernetesOptions
    namespace: str
    treatment: Treatment
    load: Load
    app: App
    mesh: Mesh | None
    tokens: Tokens
    nodes: NodeAssignment = NodeAssignment()

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """The features of the treatment."""
        return features_of(self.treatment, self.mesh)

    @property
    def reference(self) -> bool:
        """Whether its data plane is the reference sidecar."""
        return self.mesh is not None and self.mesh.reference

    @property
    def host(self) -> str:
        """The entry Service's DNS name."""
        return f"{self.app.service}.{self.namespace}.svc.cluster.local"

    @property
    def policy(self) -> list[Json]:
        """The policy server's own objects, if a feature needs one."""
        wanted = any(feature.policy for feature in self.features)
        return manifests.read(self.options.folder / f"policy/{self.options.opa_server}.yaml") if wanted else []

    @property
    def policy_pod(self) -> Json | None:
        """The pod whose containers decide, if a feature needs them."""
        return next((item for item in self.policy if item["kind"] == "Pod"), None)

    @property
    def parameters(self) -> dict[str, object]:
        """The values that the user chose for proxies and this mesh, by name."""
        chosen = self.mesh.chosen if self.mesh is not None else {}
        return {"proxy_cpu": self.options.proxy_cpu, "proxy_memory": self.options.proxy_memory, **chosen}


@dataclass(frozen=True)
class Rendered:
    """The objects to apply, in order, and the URLs of the deployment.

    ``direct`` and ``inside`` are the service's URL (no path; ``tcp://`` for bytes) for a pod outside of the mesh, and
    for the generators.
    """

    setup: Setup
    namespace_labels: dict[str, str]  # enrolment
    namespace_annotations: dict[str, str]
    objects: Sequence[Json]
    target: Target
    direct: str
    inside: str
    app_pods: int
    load_pods: int
    policy_counter: tuple[str, str] | None


def features_of(treatment: Treatment, mesh: Mesh | None) -> tuple[Feature, ...]:
    """Return the features of a treatment; UsageError for one that its mesh lacks."""
    if mesh is None and treatment.features:
        raise UsageError(f"treatment {treatment.name}: none has no features on Kubernetes")
    return mesh.check(treatment) if mesh is not None else ()


def changes_of(setup: Setup) -> tuple[str, ...]:
    """Return what can change under load: endpoints of an app with two versions, authorization with a denial."""
    two = bool(setup.app.second) and not (setup.mesh and setup.mesh.one_service)
    changes = {"endpoints": two, "authorization": bool(two and denial_of(setup))}
    return tuple(name for name, possible in changes.items() if possible)


def denial_of(setup: Setup) -> list[Json]:
    """Return the objects that deny every request to the application while they exist."""
    mesh = setup.mesh
    if mesh is None:
        return []
    files = (*mesh.denial, *(name for feature in setup.features for name in feature.denial))
    return manifests.patched(mesh.objects(files), manifests.in_namespace(setup.namespace))


def render(setup: Setup) -> Rendered:
    """Render one deployment; UsageError for what does not fit together, or what nothing could prove."""
    if setup.mesh is not None:
        setup = replace(setup, mesh=setup.mesh.carrying(setup.load.protocol, setup.treatment))
    options, treatment, load, app, mesh = setup.options, setup.treatment, setup.load, setup.app, setup.mesh
    features = setup.features
    if isinstance(load, ChangesUnderLoad) and not set(load.changes) & set(changes_of(setup)):
        asked = ", ".join(load.changes)
        raise UsageError(
            f"treatment {treatment.name}: {asked} cannot be changed there under load on the app {app.name}"
        )
    hops = sum(item["kind"] == "Deployment" for item in app.objects)
    if setup.reference and (hops > 1 or "grpc" in load.protocols):
        raise UsageError(f"treatment {treatment.name}: the reference sidecar supports one hop of HTTP, not {app.name}")
    for feature in features:
        if feature.apps and app.name not in feature.apps:
            allowed = ", ".join(feature.apps)
            raise UsageError(f"treatment {treatment.name}: {feature.name} is for the app {allowed}, not {app.name}")
        for counter in feature.counters:
            if counter.of:
                proving.check(treatment, load, counter.percent)
    if mesh is not None:
        _require_provable(setup, mesh)
    policies = manifests.patched(
        [*_policies(setup), *_policy_config(setup)],
        manifests.placed(options.app_node_selector, options.app_tolerations),
        manifests.on_hosts(setup.nodes.app),
        manifests.overlay_patched(*_waypoint(setup)),
    )
    apps, loads = _app(setup), _load(setup)
    sidecars = _reference_sidecars(setup) if setup.reference else []
    everything = manifests.patched(
        [*sidecars, *policies, *loads, *apps],
        manifests.in_namespace(setup.namespace),
        manifests.images(options.images, options.image_pull_policy),
        _pulled(options),
    )
    authority = f"127.0.0.1:{_OUTBOUND_PORT}" if setup.reference else f"{setup.host}:{app.port}"
    scheme = "tcp" if load.echoes else "http"
    direct = f"{scheme}://{setup.host}:{app.http_port}"
    headers = setup.tokens.headers if any(f.token for f in features) else ()
    url = authority if load.protocol == "grpc" else f"{scheme}://{authority}{app.path}"
    grpc = f"{setup.host}:{app.grpc_port}" if load.protocol == "mixed" else ""
    policy = setup.policy_pod
    labels = dict(mesh.enrol.namespace_labels) if mesh is not None else {}
    for feature in features:
        labels.update(feature.namespace_labels)
    return Rendered(
        setup,
        namespace_labels=labels,
        namespace_annotations=dict(mesh.enrol.namespace_annotations) if mesh is not None else {},
        objects=everything,
        target=Target(url, headers, grpc).asking(load.response_bytes),
        direct=direct,
        inside=f"http://{authority}" if setup.reference else direct,
        app_pods=_count(apps),
        load_pods=_count(loads),
        policy_counter=(note(policy, "counter-url"), note(policy, "counter-pattern")) if policy else None,
    )


def _require_provable(setup: Setup, mesh: Mesh) -> None:
    """Refuse a treatment with a part whose presence or absence nothing could show on this application."""
    for feature in mesh.features.values():
        on = feature in setup.features
        names = feature.proofs if on else feature.absent_proofs
        provable = any(setup.app.gives(PROOFS[name]) for name in names)
        if provable or (on and (feature.counters or feature.logs or feature.policy)):
            continue
        # An absent feature needs a proof only where something is applied in its place.
        if on or (feature.absent and names):
            state = "with" if on else "without"
            raise UsageError(
                f"treatment {setup.treatment.name}: no check can show that it runs {state} {feature.name} "
                f"on the app {setup.app.name}; use the app echo, which answers with the request's headers"
            )


def load_pods(load: Load, app: App) -> int:
    """Return the number of generator pods: one per generator; in a scale-out study one per endpoint of that role."""
    return max(load.generators, load.replicas) if app.tiers else load.generators


def _app(setup: Setup) -> list[Json]:
    options, app, load, mesh = setup.options, setup.app, setup.load, setup.mesh
    patches: list[Patch] = [
        manifests.pod_metadata({PART: "app"}, {}),
        # The manifest of the tiers has ten copies, and one is a size like any other.
        manifests.replicas(load.replicas) if load.replicas > 1 or app.tiers else lambda _: None,
        manifests.held(options.hold_ms) if app.tiers else lambda _: None,
        manifests.started_with("connections") if load.new_connections else lambda _: None,
        manifests.limits(options.app_cpu, options.app_memory),
        manifests.requests(options.app_cpu_request, options.app_memory_request),
        manifests.app_protocols(mesh.app_protocols if mesh else APP_PROTOCOLS, app.service, load.protocol),
        *_enrolment(setup, "app"),
    ]
    if not (mesh is not None and mesh.waypoints):
        patches += _policy_server(setup)
    if setup.reference:
        patches += [_sidecar(setup, "server"), _behind_sidecar]
    # The generators' anti-affinity is repeated on this side. A scheduler that refused a pod by the rule of another pod
    # does not retry when that pod is deleted (Kubernetes 1.34, InterPodAffinity's queueing hint). For the pod's own
    # rule it does. Otherwise a deleted generator that the scheduler still sees can cost five minutes.
    return manifests.patched(app.objects, *patches, *_app_placement(setup))


def _app_placement(setup: Setup) -> list[Patch]:
    """Return the placement of the application and of waypoints: on its hosts, apart from the generators."""
    options = setup.options
    away = manifests.placed(options.app_node_selector, options.app_tolerations, "load", options.load_separation)
    return [away, manifests.on_hosts(setup.nodes.app)]


def _waypoint(setup: Setup) -> list[Patch]:
    """Return the patches of waypoints: placement apart from the generators, limits, and the policy server."""
    limited = manifests.proxy_limits(setup.parameters, ("istio-proxy", "agentgateway"))
    return [*_app_placement(setup), limited, _pulled(setup.options), *_policy_server(setup)]


def _pulled(options: KubernetesOptions) -> Patch:
    return manifests.pulled_with([name for _, name in options.pull_secrets])


def _policy_server(setup: Setup) -> list[Patch]:
    """Return the patch that adds the policy server to the pods whose proxies ask it: no network is between them."""
    images = manifests.images(setup.options.images, setup.options.image_pull_policy)
    source = manifests.patched([setup.policy_pod] if setup.policy_pod else [], images)
    return [manifests.with_container(item) for item in source]


def _load(setup: Setup) -> list[Json]:
    options = setup.options
    objects = manifests.read(options.folder / "loadgen" / "load.yaml")
    patches: list[Patch] = [
        manifests.pod_metadata({PART: "load", COMPONENT: "client"}, {}),
        manifests.replicas(load_pods(setup.load, setup.app)),
        manifests.limits(options.load_cpu, options.load_memory, ("fortio",)),
        *_enrolment(setup, "load"),
        manifests.placed(options.load_node_selector, options.load_tolerations, "app", options.load_separation),
        manifests.on_hosts(setup.nodes.load),
    ]
    return manifests.patched(objects, *patches, *([_sidecar(setup, "client")] if setup.reference else []))


def _sidecar(setup: Setup, side: str) -> Patch:
    assert setup.mesh is not None
    source = next(o for o in manifests.read(setup.mesh.folder / f"{side}.yaml") if o["kind"] == "Pod")
    limits = manifests.limits(setup.options.proxy_cpu, setup.options.proxy_memory)
    return manifests.with_container(manifests.patched([source], limits)[0])


def _enrolment(setup: Setup, part: str) -> list[Patch]:
    mesh = setup.mesh
    if mesh is None:
        return []
    if any(feature.bare == part for feature in setup.features):
        return [manifests.pod_metadata(dict(mesh.enrol.outside_labels), dict(mesh.enrol.outside_annotations))]
    annotations = dict(mesh.enrol.pod_annotations)
    for feature in setup.features:
        # The generators get annotations only of features that keep a side out of the mesh.
        if part == "app" or feature.bare:
            annotations.update(feature.pod_annotations)
    filled = {key: _filled(mesh, key, text, setup.parameters) for key, text in annotations.items()}
    non_empty = {key: text for key, text in filled.items() if text}
    labels = {key: _filled(mesh, key, text, setup.parameters) for key, text in mesh.enrol.pod_labels.items()}
    patches = [manifests.pod_metadata(labels, non_empty)]
    return [*patches, manifests.with_account_token] if mesh.enrol.service_account_token else patches


def _filled(mesh: Mesh, key: str, text: str, parameters: dict[str, object]) -> str:
    try:
        return text.format_map(parameters) if "{" in text and "\n" not in text else text
    except (KeyError, ValueError):
        raise UsageError(f"mesh {mesh.name}: annotation {key}: {text!r} names a parameter without a value") from None


def _resources_of(mesh: Mesh, features: Sequence[Feature]) -> list[Json]:
    """Return the mesh's own resources: its base, those of each feature, and the opposite of each absent one."""
    objects = mesh.objects(mesh.base)
    for feature in mesh.features.values():
        changed = mesh.objects(feature.manifests if feature in features else feature.absent)
        objects = manifests.replaced(objects, changed)
    return objects


def shared_of(mesh: Mesh, features: Sequence[Feature]) -> dict[tuple[str, str], Json]:
    """Return the resources that deployments of the mesh share, by kind and name."""
    objects = [item for item in _resources_of(mesh, features) if item["kind"] in mesh.shared]
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


def _policies(setup: Setup) -> list[Json]:
    mesh = setup.mesh
    if mesh is None:
        return []
    objects = _resources_of(mesh, setup.features)
    # Paths refer to the objects as in their files, so a name is set last.
    targets = [(item, item["kind"], item["metadata"]["name"]) for item in objects]
    settings = [(f"mesh {mesh.name}", setting) for setting in mesh.settings]
    settings += [(f"mesh {mesh.name}, feature {f.name}", setting) for f in setup.features for setting in f.settings]
    for label, setting in settings:
        matching = [item for item, kind, name in targets if kind == setting.kind and setting.name in ("", name)]
        if not matching:
            raise UsageError(f"{label}: no {setting.kind} {setting.name} to set {setting.value} in")
        for item in matching:
            manifests.set_path(item, setting.path, _runtime(setup, setting.value))
    return objects


def _runtime(setup: Setup, name: str) -> Any:
    app, protocol, jwks = setup.app, setup.load.protocol, json.dumps(setup.tokens.jwks)
    jwt_filter = json.dumps(envoy.jwt_filters(setup.tokens, cache=False)[0])
    known: dict[str, Any] = {
        "service": app.service,
        "service_account": app.service_account,
        "namespace": setup.namespace,
        "port": app.port,
        "http_port": app.http_port,
        "grpc_port": app.grpc_port,
        # What the generators send, in Kubernetes' names (http, http2, grpc), which meshes share.
        "app_protocol": APP_PROTOCOLS.get("http1" if protocol == "mixed" else protocol, ""),
        "jwks": jwks,
        "jwks_base64": base64.b64encode(jwks.encode()).decode(),
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "envoy_jwt_filter": jwt_filter.replace("typed_config", "typedConfig"),
    }
    if name not in known:
        raise UsageError(f"run-time value {name!r} is not known; known are {', '.join(known)}")
    return known[name]


def _policy_config(setup: Setup) -> list[Json]:
    maps = [item for item in setup.policy if item["kind"] == "ConfigMap"]
    if maps:
        data = {"jwks": setup.tokens.jwks, "issuer": ISSUER, "audience": AUDIENCE}
        maps[0]["data"]["data.json"] = json.dumps(data)
    return maps


def _count(objects: Sequence[Json]) -> int:
    return sum(int(o["spec"].get("replicas", 1)) for o in objects if o["kind"] == "Deployment")


# --- reference sidecar ------------------------------------------------------------------------------------------------

# The local backend's bootstraps, as explicit containers beside app and generator. There is no redirection and no
# control plane: the generator calls its sidecar on loopback, and the Service leads to the server's sidecar. It is the
# lower bound for meshes that use Envoy, and never called Istio.
_READINGS_PORT, _ADMIN_PORT, _INBOUND_PORT, _OUTBOUND_PORT, _POLICY_PORT = 9901, 9902, 15006, 15001, 9191
_READ = ("/ready", "/server_info", "/stats/prometheus")
_KEYS = Path("/etc/meshtrial/keys")


def _reference_sidecars(setup: Setup) -> list[Json]:
    """Return ConfigMaps with both bootstraps and, with mTLS, Secrets with keys made now."""
    configs = [_config("envoy-server", _server_bootstrap(setup)), _config("envoy-client", _client_bootstrap(setup))]
    return configs + (_secrets() if setup.treatment.has("mtls") else [])


def _server_bootstrap(setup: Setup) -> Json:
    treatment = setup.treatment
    proxy = envoy.Proxy("server sidecar", ("127.0.0.1", _ADMIN_PORT))
    h2 = setup.load.protocol in ("grpc", "h2")
    proxy.clusters.append(envoy.cluster("app", "127.0.0.1", setup.app.app_port, http2=h2))
    filters: list[Json] = []
    if treatment.has("jwt"):
        filters += envoy.jwt_filters(setup.tokens, cache=False)
    if treatment.has("opa"):
        proxy.clusters.append(envoy.cluster("opa", "127.0.0.1", _POLICY_PORT, http2=True))
        filters.append(envoy.ext_authz_filter())
    mtls = treatment.has("mtls")
    tls = envoy.tls_context(_identity("server"), _identity("client").spiffe, server=True) if mtls else None
    manager = envoy.http_manager("inbound", "app", http_filters=filters)
    # The peer's certificate reaches the app, as in a mesh, so that the proof can read it there.
    manager["typed_config"]["forward_client_cert_details"] = "SANITIZE_SET"
    manager["typed_config"]["set_current_client_cert_details"] = {"uri": True}
    proxy.listeners.append(envoy.listener("inbound", "0.0.0.0", _INBOUND_PORT, [manager], tls))
    return _readable(proxy)


def _client_bootstrap(setup: Setup) -> Json:
    proxy = envoy.Proxy("client sidecar", ("127.0.0.1", _ADMIN_PORT))
    mtls = setup.treatment.has("mtls")
    tls = envoy.tls_context(_identity("client"), _identity("server").spiffe, server=False) if mtls else None
    server = envoy.cluster("server", setup.host, setup.app.port, http2=True, tls=tls)
    server["type"] = "STRICT_DNS"
    proxy.clusters.append(server)
    manager = envoy.http_manager("outbound", "server")
    proxy.listeners.append(envoy.listener("outbound", "127.0.0.1", _OUTBOUND_PORT, [manager]))
    return _readable(proxy)


def _readable(proxy: envoy.Proxy) -> Json:
    """Return the bootstrap of a sidecar whose admin port is on loopback, and whose pages are on the pod's address."""
    proxy.clusters.append(envoy.cluster("admin", *proxy.admin))
    manager = envoy.http_manager("readings", "admin", paths=_READ)
    proxy.listeners.append(envoy.listener("readings", "0.0.0.0", _READINGS_PORT, [manager]))
    return proxy.bootstrap()


def _behind_sidecar(manifest: Json) -> None:
    """Lead the Service to the sidecar, move the app to loopback, and probe the sidecar instead of the app."""
    if manifest["kind"] == "Service":
        for port in manifest["spec"]["ports"]:
            port["targetPort"] = _INBOUND_PORT
    pod = manifests.template(manifest)
    if pod is None:
        return
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    for replacement in json.loads(annotations.get("meshtrial.dev/loopback", "[]")):
        for container in pod["spec"]["containers"]:
            flag = replacement.partition("=")[0]
            container["args"] = [replacement if str(a).startswith(f"{flag}=") else a for a in container.get("args", [])]
    for container in pod["spec"]["containers"]:
        if "readinessProbe" in container and container["name"] != "envoy":
            container["readinessProbe"] = {"tcpSocket": {"port": _INBOUND_PORT}, "periodSeconds": 1}


def _identity(workload: str) -> Identity:
    return Identity(spiffe_name(workload), _KEYS / "tls.crt", _KEYS / "tls.key", _KEYS / "ca.crt")


def _config(name: str, bootstrap: Json) -> Json:
    data = {"envoy.yaml": yaml.safe_dump(bootstrap, sort_keys=False)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


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
