"""The Envoy sidecar pair with its features, or one sidecar of the two alone.

The sidecars speak HTTP/2 to each other with and without TLS, so that TLS is the only difference between the two
treatments.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import features, wire
from meshtrial.testbed.local.deployment import Prover, Spec, Started
from meshtrial.testbed.local.features import FEATURES, Addition, Pair, joined
from meshtrial.testbed.local.fleet import Fleet, numbered
from meshtrial.testbed.local.proofs import counter_prover, prove_app_listens, share_prover, turns_prover
from meshtrial.testbed.local.sockets import Endpoint

ALONE = ("client-only", "server-only")
_NOT_WITH = {  # features that need the sidecar that is left out
    "client-only": ("mtls", "unpooled", "jwt", "jwt-cache", "opa", "opa-log", "least-request"),
    "server-only": ("mtls", "unpooled", "least-request"),
}


def check(treatment: Treatment, load: Load) -> None:
    """Raise UsageError for features that exclude each other, or need a sidecar or copies that are not there."""
    if load.protocol == "tcp":
        raise UsageError(
            f"treatment {treatment.name}: a local sidecar carries HTTP only; use tcp-pair or node-proxy for tcp"
        )
    alone = [name for name in ALONE if treatment.has(name)]
    if len(alone) > 1:
        raise UsageError(f"treatment {treatment.name}: client-only and server-only exclude each other; use none")
    for name in alone:
        if impossible := ", ".join(feature for feature in _NOT_WITH[name] if treatment.has(feature)):
            raise UsageError(f"treatment {treatment.name}: {impossible} needs the sidecar that {name} leaves out")
    if treatment.has("client-only") and load.replicas > 1:
        raise UsageError(f"treatment {treatment.name}: server sidecars distinguish the copies; leave out replicas")
    features.check(treatment, load)


def start(spec: Spec, fleet: Fleet) -> Started:
    """Start the application behind its sidecars, with the additions of the treatment's features."""
    pair = _make_pair(spec, fleet)
    added = joined([add(pair) for name in spec.treatment.features for add in FEATURES.get(name, ())])
    for _, proxy in pair.sidecars:
        proxy.clusters += added.clusters
        proxy.flags += tuple(added.flags)
    for server, endpoint, apps in zip(pair.servers, pair.wires, pair.apps, strict=False):
        _add_inbound(pair, server, endpoint, apps, added)
    for client in pair.clients:
        _add_outbound(pair, client, added)
    for proxy in (*pair.servers, *pair.clients):
        fleet.start_proxy(proxy)
    copies = [] if pair.clients else [[endpoint] for endpoint in pair.wires[1:]]
    return Started(spec.target([pair.entry], pair.headers, copies), _provers(pair, added))


def _make_pair(spec: Spec, fleet: Fleet) -> Pair:
    """Start the application and lay out its sidecars, which are configured later."""
    apps = spec.start_apps(fleet)
    with_client, with_server = not spec.treatment.has("server-only"), not spec.treatment.has("client-only")
    copies = range(len(apps)) if with_server else range(0)
    wires = [fleet.new_endpoint() for _ in copies]
    return Pair(
        spec,
        fleet,
        clients=[Proxy("client sidecar", fleet.new_endpoint())] if with_client else [],
        servers=[Proxy(numbered("server sidecar", copy), fleet.new_endpoint()) for copy in copies],
        entry=fleet.new_endpoint() if with_client else wires[0],
        wires=wires,
        apps=apps,
    )


def _add_inbound(pair: Pair, server: Proxy, endpoint: Endpoint, apps: Sequence[Endpoint], added: Addition) -> None:
    version = pair.spec.version
    server.clusters += added.server_clusters
    inbound = envoy.http_manager(
        "inbound",
        *_app_clusters(pair, server, apps),
        http_filters=[*added.filters, *(version.http_filters if version else ())],
        **_telemetry(server, added),
    )
    server.listeners.append(envoy.listener("inbound", *endpoint, [inbound], added.tls[1]))


def _add_outbound(pair: Pair, client: Proxy, added: Addition) -> None:
    if pair.wires:
        first, *others = pair.wires
        names: Sequence[str] = ("server",)
        cluster = envoy.cluster("server", *first, *others, http2=True, tls=added.tls[0])
        client.clusters.append(cluster | added.upstream)
    else:
        names = _app_clusters(pair, client, pair.apps[0])
    outbound = envoy.http_manager("outbound", *names, **_telemetry(client, added))
    client.listeners.append(envoy.listener("outbound", *pair.entry, [outbound]))


def _telemetry(proxy: Proxy, added: Addition) -> Json:
    logs = [log for name, log in added.access_logs.items() if name == proxy.name]
    return {"access_log": logs, "tracing": added.tracing.get(proxy.name)}


def _app_clusters(pair: Pair, proxy: Proxy, apps: Sequence[Endpoint]) -> Sequence[str]:
    """Add a cluster for each protocol of a copy and return their names; gRPC and h2 are forwarded as HTTP/2."""
    protocols = pair.spec.load.protocols
    names = ("app", "app-grpc")[: len(protocols)]
    for name, protocol, endpoint in zip(names, protocols, apps, strict=True):
        proxy.clusters.append(envoy.cluster(name, *endpoint, http2=protocol in ("grpc", "grpc-stream", "h2")))
    return names


def _provers(pair: Pair, added: Addition) -> list[Prover]:
    """Return all provers; the request counters come last, because the other proofs send requests too."""
    provers: list[Prover] = []
    if len(pair.apps) > 1:
        provers.append(share_prover(pair.servers))
        if pair.clients and not pair.spec.treatment.has("least-request"):
            provers.append(turns_prover(pair.servers, lambda: pair.ask(pair.headers), in_turn=True))
    if not pair.spec.treatment.has("mtls"):
        provers.append(lambda phase, _: _prove_plain(pair, phase))
    if not pair.servers:
        name, behind = "no proxy at the server", "behind the client's sidecar"
        provers.append(lambda phase, _: [prove_app_listens(pair.fleet, "app", name, behind, pair.apps[0], phase)])
    prefixes = {"client": "outbound", "server": "inbound"}
    counters = {
        f"requests through the {side} sidecar": (proxies, [f"http.{prefixes[side]}.downstream_rq_total"])
        for side, proxies in pair.sides.items()
    }
    return [*provers, *added.provers, counter_prover(counters, per_request=1)]


def _prove_plain(pair: Pair, phase: str) -> list[Proof]:
    name, answers = "plaintext between the sidecars", [wire.speak_h2(*endpoint) for endpoint in pair.wires]
    return [Proof(name, phase, answer.accepted, "accepted", answer.detail) for answer in answers]
