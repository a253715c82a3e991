"""A treatment, a load and an app, rendered: every object of one deployment, before anything is applied. Pure.

Policies and configuration come first, then the load generators, then the application: generators that need nodes
of their own must find one before the application spreads over all of them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshtrial.design.study import Load, Treatment
from meshtrial.envoy.filters import jwt_filters
from meshtrial.envoy.tokens import AUDIENCE, ISSUER, Tokens
from meshtrial.errors import UsageError
from meshtrial.load.generators import Target
from meshtrial.testbed.kubernetes import manifests, reference, waypoints
from meshtrial.testbed.kubernetes.apps import App, note
from meshtrial.testbed.kubernetes.manifests import NOTE, Json
from meshtrial.testbed.kubernetes.meshdata import APP_PROTOCOLS, PROOFS, Feature, Mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions

PART, COMPONENT = f"{NOTE}part", f"{NOTE}component"


@dataclass(frozen=True)
class Rendered:
    """What will be applied, in order, and what it is called by.

    Attributes
    ----------
    namespace_labels, namespace_annotations : mapping
        Enrolment.
    objects : sequence
        Policies and configuration, then the load generators, then the application.
    app_pods, load_pods : int
    direct, inside : str
        The service's HTTP URL (no path) as a pod outside of everything calls it, and as the generators do.
    """

    namespace: str
    namespace_labels: dict[str, str]
    namespace_annotations: dict[str, str]
    objects: Sequence[Json]
    target: Target
    direct: str
    inside: str
    app: App
    app_pods: int
    load_pods: int
    policy_counter: tuple[str, str] | None = None
    images: tuple[str, ...] = field(default=())


def render(
    options: KubernetesOptions,
    namespace: str,
    treatment: Treatment,
    load: Load,
    app: App,
    mesh: Mesh | None,
    tokens: Tokens | None,
    load_hosts: Sequence[str] = (),
) -> Rendered:
    """Render one deployment; its generators only on these hosts, where there are any.

    Raises
    ------
    UsageError
        For a treatment, an application and a load that do not go together, or that nothing could prove.
    """
    features = mesh.check(treatment) if mesh is not None else _none(treatment)
    if mesh is not None and mesh.reference and (len(app.deployments) > 1 or "grpc" in load.protocols):
        raise UsageError(f"treatment {treatment.name}: the reference sidecar has one hop of HTTP, not {app.name}'s")
    for feature in features:
        if feature.apps and app.name not in feature.apps:
            allowed = ", ".join(feature.apps)
            raise UsageError(f"treatment {treatment.name}: {feature.name} is for the app {allowed}, not {app.name}")
    if mesh is not None:
        _carried(mesh, treatment, load)
        provable(mesh, treatment, features, app)
    host = f"{app.service}.{namespace}.svc.cluster.local"
    server = Path(f"policy/{options.opa_server}.yaml")
    policy = manifests.read(options.folder / server) if any(f.policy for f in features) else []
    policies = manifests.patched(
        [*_policies(mesh, features, tokens, app, namespace, load.protocol), *_policy_config(policy, tokens)],
        manifests.placed(options.app_node_selector, options.app_tolerations),
        waypoints.overlaid(*_waypoint(options, mesh, policy)),
    )
    apps = _app(options, app, load, mesh, features, policy)
    loads = _load(options, load, app, mesh, features, load_hosts)
    reference_objects: list[Json] = []
    if mesh is not None and mesh.reference:
        upstream = reference.Upstream(host, app.port, app.app_port)
        reference_objects = reference.objects(treatment, load, upstream, tokens)
    everything = manifests.patched(
        [*reference_objects, *policies, *loads, *apps],
        manifests.in_namespace(namespace),
        manifests.images(options.images, options.image_pull_policy),
    )
    through_sidecar = mesh is not None and mesh.reference
    authority = f"127.0.0.1:{reference.OUTBOUND_PORT}" if through_sidecar else f"{host}:{app.port}"
    needs_token = any(f.token for f in features) and tokens is not None
    headers = tokens.headers if needs_token and tokens is not None else ()
    url = authority if load.protocol == "grpc" else f"http://{authority}{app.path}"
    enrol = mesh.enrol if mesh is not None else None
    labels = {**(enrol.namespace_labels if enrol else {})}
    for feature in features:
        labels.update(feature.namespace_labels)
    return Rendered(
        namespace=namespace,
        namespace_labels=labels,
        namespace_annotations=dict(enrol.namespace_annotations) if enrol else {},
        objects=everything,
        target=Target(url, headers, f"{host}:{app.grpc_port}" if load.protocol == "mixed" else "").asking(
            load.response_bytes
        ),
        direct=f"http://{host}:{app.http_port}",
        inside=f"http://{authority}" if through_sidecar else f"http://{host}:{app.http_port}",
        app=app,
        app_pods=_count(apps),
        load_pods=_count(loads),
        policy_counter=_counter(policy),
        images=tuple(sorted({str(c["image"]) for o in everything for c in _containers(o) if "image" in c})),
    )


def _containers(manifest: Json) -> list[Json]:
    """Its containers, and those that an overlay gives a waypoint."""
    return manifests.containers(waypoints.deployment_in(manifest) or manifest)


def _carried(mesh: Mesh, treatment: Treatment, load: Load) -> None:
    if load.protocol not in mesh.protocols:
        raise UsageError(
            f"treatment {treatment.name}: {mesh.name} carries {', '.join(mesh.protocols)} here, not {load.protocol}"
        )


def provable(mesh: Mesh, treatment: Treatment, features: Sequence[Feature], app: App) -> None:
    """Refuse a treatment of which some part could not be shown to be there, or not there, on this application.

    Raises
    ------
    UsageError
        Naming the feature.
    """
    chosen = {feature.name for feature in features}
    for feature in mesh.features.values():
        on = feature.name in chosen
        names = feature.proofs if on else feature.absent_proofs
        if (on and (feature.counters or feature.logs or feature.policy)) or any(app.gives(PROOFS[n]) for n in names):
            continue
        # What is absent needs a proof only where something could be there without the feature.
        if on or (feature.absent and names):
            state = "with" if on else "without"
            raise UsageError(
                f"treatment {treatment.name}: nothing can prove that it is {state} {feature.name} "
                f"on the app {app.name}; take the app echo, which answers with the request's headers"
            )


def load_pods(load: Load, app: App) -> int:
    """How many generator pods: one a generator; in a scale-out study one an endpoint of that role."""
    return max(load.generators, load.replicas) if app.tiers else load.generators


def _app(
    options: KubernetesOptions,
    app: App,
    load: Load,
    mesh: Mesh | None,
    features: Sequence[Feature],
    policy: Sequence[Json],
) -> list[Json]:
    patches: list[Callable[[Json], None]] = [
        manifests.pod_metadata({PART: "app"}, {}),
        # Of the tiers the manifest has ten copies by itself, and one is a size like any other.
        manifests.replicas(load.replicas) if load.replicas > 1 or app.tiers else lambda _: None,
        manifests.held(options.hold_ms) if app.tiers else lambda _: None,
        manifests.limits(options.app_cpu, options.app_memory),
        manifests.requests(options.app_cpu_request, options.app_memory_request),
        manifests.app_protocols(mesh.app_protocols if mesh else APP_PROTOCOLS, app.service, load.protocol),
        *_enrolment(options, mesh, features, "app"),
    ]
    if policy and not (mesh is not None and mesh.waypoints):
        patches.append(_policy_server(options, policy))
    if mesh is not None and mesh.reference:
        patches += [_sidecar(options, mesh, "server"), reference.behind_sidecar]
    # The generators keep away from the application; said again from this side, for a scheduler that refused a pod by
    # another one's rule does not look again when that one is deleted (Kubernetes 1.34, InterPodAffinity's queueing
    # hint), but does for the pod's own rule. Else a generator of the last run that it saw too long costs five minutes.
    patches.append(
        manifests.placed(options.app_node_selector, options.app_tolerations, "load", options.load_separation)
    )
    return manifests.patched(app.objects, *patches)


def _waypoint(options: KubernetesOptions, mesh: Mesh | None, policy: Sequence[Json]) -> list[Callable[[Json], None]]:
    """What waypoints are told: to keep away from the generators, their limits, and the policy server that they ask."""
    if mesh is None or not mesh.waypoints:
        return []
    return [
        manifests.placed(options.app_node_selector, options.app_tolerations, "load", options.load_separation),
        waypoints.limited(_said(options, mesh), ("istio-proxy",)),
        *([_policy_server(options, policy)] if policy else []),
    ]


def _policy_server(options: KubernetesOptions, policy: Sequence[Json]) -> Callable[[Json], None]:
    """The policy server joins the pods whose proxies ask it, so that no network lies between the two."""
    source = [o for o in policy if o["kind"] == "Pod"]
    return manifests.with_container(
        manifests.patched(source, manifests.images(options.images, options.image_pull_policy))[0]
    )


def _said(options: KubernetesOptions, mesh: Mesh) -> dict[str, object]:
    return {"proxy_cpu": options.proxy_cpu, "proxy_memory": options.proxy_memory, **mesh.chosen}


def _load(
    options: KubernetesOptions,
    load: Load,
    app: App,
    mesh: Mesh | None,
    features: Sequence[Feature],
    load_hosts: Sequence[str],
) -> list[Json]:
    objects = manifests.read(options.folder / "loadgen" / "load.yaml")
    patches: list[Callable[[Json], None]] = [
        manifests.pod_metadata({PART: "load", COMPONENT: "client"}, {}),
        manifests.replicas(load_pods(load, app)),
        manifests.limits(options.load_cpu, options.load_memory, ("fortio",)),
        *_enrolment(options, mesh, [feature for feature in features if feature.bare], "load"),
        manifests.placed(options.load_node_selector, options.load_tolerations, "app", options.load_separation),
        manifests.on_hosts(load_hosts),
    ]
    if mesh is not None and mesh.reference:
        patches.append(_sidecar(options, mesh, "client"))
    return manifests.patched(objects, *patches)


def _sidecar(options: KubernetesOptions, mesh: Mesh, side: str) -> Callable[[Json], None]:
    source = next(o for o in manifests.read(mesh.folder / f"{side}.yaml") if o["kind"] == "Pod")
    limited = manifests.patched([source], manifests.limits(options.proxy_cpu, options.proxy_memory))
    return manifests.with_container(limited[0])


def _enrolment(
    options: KubernetesOptions, mesh: Mesh | None, features: Sequence[Feature], part: str
) -> list[Callable[[Json], None]]:
    if mesh is None:
        return []
    if any(feature.bare == part for feature in features):
        return [manifests.pod_metadata(dict(mesh.enrol.outside_labels), dict(mesh.enrol.outside_annotations))]
    said = _said(options, mesh)
    annotations = dict(mesh.enrol.pod_annotations)
    for feature in features:
        annotations.update(feature.pod_annotations)
    filled = {key: _filled(mesh, key, text, said) for key, text in annotations.items()}
    kept = {key: text for key, text in filled.items() if text}
    labels = {key: _filled(mesh, key, text, said) for key, text in mesh.enrol.pod_labels.items()}
    patches = [manifests.pod_metadata(labels, kept)]
    return [*patches, manifests.with_account_token] if mesh.enrol.service_account_token else patches


def _filled(mesh: Mesh, key: str, text: str, said: dict[str, object]) -> str:
    try:
        return text.format_map(said) if "{" in text and "\n" not in text else text
    except (KeyError, ValueError):
        raise UsageError(f"mesh {mesh.name}: annotation {key}: {text!r} names a parameter that nobody set") from None


def _policies(
    mesh: Mesh | None, features: Sequence[Feature], tokens: Tokens | None, app: App, namespace: str, protocol: str
) -> list[Json]:
    """The mesh's own resources: its base, each feature's, and the opposite of each that is absent."""
    if mesh is None:
        return []
    found = mesh.objects(mesh.base)
    chosen = {feature.name for feature in features}
    for feature in mesh.features.values():
        own = mesh.objects(feature.manifests if feature.name in chosen else feature.absent)
        found = manifests.replaced(found, own)
    # Places are named by the objects as they lie in their files, so a name is set after everything else.
    targets = [(item, item["kind"], item["metadata"]["name"]) for item in found]
    settings = [(f"mesh {mesh.name}", one) for one in mesh.settings]
    settings += [(f"mesh {mesh.name}, feature {f.name}", one) for f in features for one in f.settings]
    for what, setting in settings:
        aimed = [item for item, kind, name in targets if kind == setting.kind and setting.name in ("", name)]
        if not aimed:
            raise UsageError(f"{what}: there is no {setting.kind} {setting.name} to set {setting.value} in")
        for item in aimed:
            manifests.set_path(item, setting.path, _runtime(setting.value, tokens, app, namespace, protocol))
    return found


def _runtime(name: str, tokens: Tokens | None, app: App, namespace: str, protocol: str) -> Any:
    known: dict[str, Any] = {
        "service": app.service,
        "service_account": app.service_account,
        "namespace": namespace,
        "port": app.port,
        "http_port": app.http_port,
        "grpc_port": app.grpc_port,
        # What the generators send, in Kubernetes' names (http, http2, grpc), which meshes have in common.
        "app_protocol": APP_PROTOCOLS.get("http1" if protocol == "mixed" else protocol, ""),
    }
    if tokens is not None:
        jwks = json.dumps(tokens.jwks)
        known |= {
            "jwks": jwks,
            "jwks_base64": base64.b64encode(jwks.encode()).decode(),
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "envoy_jwt_filter": json.dumps(jwt_filters(tokens, cache=False)[0]).replace("typed_config", "typedConfig"),
        }
    if name not in known:
        raise UsageError(f"run-time value {name!r} is not known; known are {', '.join(known)}")
    return known[name]


def _policy_config(policy: Sequence[Json], tokens: Tokens | None) -> list[Json]:
    found = [o for o in policy if o["kind"] == "ConfigMap"]
    if found and tokens is not None:
        data = {"jwks": tokens.jwks, "issuer": ISSUER, "audience": AUDIENCE}
        found[0]["data"]["data.json"] = json.dumps(data)
    return found


def _counter(policy: Sequence[Json]) -> tuple[str, str] | None:
    for item in policy:
        if item["kind"] == "Pod":
            return note(item, "counter-url"), note(item, "counter-pattern")
    return None


def _none(treatment: Treatment) -> tuple[Feature, ...]:
    if treatment.features:
        raise UsageError(f"treatment {treatment.name}: none has no features on Kubernetes")
    return ()


def _count(objects: Sequence[Json]) -> int:
    return sum(int(o["spec"].get("replicas", 1)) for o in objects if o["kind"] == "Deployment")
