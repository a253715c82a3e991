"""The Envoy sidecar pair, and how its features hook in; or one of the two alone.

Between the sidecars HTTP/2 is spoken with and without TLS, so that the contrast between the two treatments is
TLS and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial.design.study import Load, Treatment
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import balance, observability, wire
from meshtrial.testbed.local.deployment import LocalDeployment, numbered
from meshtrial.testbed.local.direct import prove_own
from meshtrial.testbed.local.features import FEATURES
from meshtrial.testbed.local.pair import Pair
from meshtrial.testbed.local.proofs import counter_prover, make_keys, prove_mtls
from meshtrial.testbed.local.sockets import Endpoint

ALONE = ("client-only", "server-only")
_LACKING = {
    "client-only": ("mtls", "jwt", "jwt-cache", "opa", "opa-log", "least-request"),
    "server-only": ("mtls", "least-request"),
}


def build(deployment: LocalDeployment) -> None:
    """Build the sidecars with the treatment's features."""
    apps = deployment.spawn_apps()
    with_client, with_server = (not deployment.treatment.has(other) for other in reversed(ALONE))
    copies = range(len(apps)) if with_server else range(0)
    wires = [deployment.new_endpoint() for _ in copies]
    pair = Pair(
        clients=[Proxy("client sidecar", deployment.new_endpoint())] if with_client else [],
        servers=[Proxy(numbered("server sidecar", copy), deployment.new_endpoint()) for copy in copies],
        entry=deployment.new_endpoint() if with_client else wires[0],
        wires=wires,
        apps=apps,
    )
    client_tls = server_tls = None
    if deployment.treatment.has("mtls"):
        keys = make_keys(deployment)
        client_tls = envoy.tls_context(keys.client, keys.server.spiffe, server=False)
        server_tls = envoy.tls_context(keys.server, keys.client.spiffe, server=True)
        pair.provers.append(lambda phase, _: [proof for at in pair.wires for proof in prove_mtls(keys, at, phase)])
    else:
        pair.provers.append(lambda phase, _: _prove_plain(pair, phase))
    for feature in deployment.treatment.features:
        if feature not in ("mtls", *ALONE):
            FEATURES[feature](deployment, pair)
    pair.inbound_filters += deployment.http_filters
    _assemble_servers(deployment, pair, server_tls)
    _assemble_client(deployment, pair, client_tls)
    for proxy in (*pair.servers, *pair.clients):
        deployment.spawn_proxy(proxy)
    others = [] if with_client else [[at] for at in wires[1:]]
    deployment.set_target([pair.entry], tuple(pair.headers), copies=others)
    counters = {
        f"requests through the {side} sidecar": (proxies, [f"http.{way}.downstream_rq_total"])
        for side, way, proxies in (("client", "outbound", pair.clients), ("server", "inbound", pair.servers))
        if proxies
    }
    if len(apps) > 1:
        deployment.provers.append(balance.share_prover(pair.servers))
        if with_client and not deployment.treatment.has("least-request"):
            deployment.provers.append(balance.turns_prover(deployment, pair, in_turn=True))
    if not with_server:
        behind = "behind the client's sidecar"
        pair.provers.append(lambda phase, _: [prove_own(deployment, "no proxy at the server", behind, apps[0], phase)])
    deployment.provers += [*pair.provers, counter_prover(counters, per_request=1)]


def check(treatment: Treatment, load: Load) -> None:
    """Refuse features that need a sidecar or copies that are not there, or that exclude each other."""
    if load.protocol == "tcp":
        raise UsageError(
            f"treatment {treatment.name}: a sidecar here reads HTTP; bytes pass a tcp-pair or a node-proxy"
        )
    alone = [name for name in ALONE if treatment.has(name)]
    if len(alone) > 1:
        raise UsageError(f"treatment {treatment.name}: with neither sidecar it is none")
    for name in alone:
        wanted = ", ".join(feature for feature in _LACKING[name] if treatment.has(feature))
        if wanted:
            raise UsageError(f"treatment {treatment.name}: {wanted} needs the sidecar that {name} leaves out")
    if treatment.has("client-only") and load.replicas > 1:
        raise UsageError(f"treatment {treatment.name}: copies are told apart by their own sidecars; leave replicas out")
    observability.check(treatment, load)
    if treatment.has("least-request") and load.replicas < 2:
        raise UsageError(
            f"treatment {treatment.name}: one copy of the app leaves nothing to balance; set replicas to 2 or more"
        )


def _assemble_servers(deployment: LocalDeployment, pair: Pair, tls: Json | None) -> None:
    for server, wire_of_copy, apps in zip(pair.servers, pair.wires, pair.apps, strict=False):
        names = _app_clusters(deployment, server, apps)
        inbound = envoy.http_manager(
            "inbound",
            *names,
            http_filters=pair.inbound_filters,
            access_log=pair.access_logs[server.name],
            tracing=pair.tracing.get(server.name),
        )
        server.listeners.append(envoy.listener("inbound", *wire_of_copy, [inbound], tls))


def _assemble_client(deployment: LocalDeployment, pair: Pair, tls: Json | None) -> None:
    for client in pair.clients:
        if pair.wires:
            first, *others = pair.wires
            onward: Sequence[str] = ("server",)
            client.clusters.append(envoy.cluster("server", *first, *others, http2=True, tls=tls, policy=pair.policy))
        else:
            onward = _app_clusters(deployment, client, pair.apps[0])
        outbound = envoy.http_manager(
            "outbound", *onward, access_log=pair.access_logs[client.name], tracing=pair.tracing.get(client.name)
        )
        client.listeners.append(envoy.listener("outbound", *pair.entry, [outbound]))


def _app_clusters(deployment: LocalDeployment, proxy: Proxy, apps: Sequence[Endpoint]) -> Sequence[str]:
    """Clusters of a copy of the application, one a protocol; it is called as the client calls: gRPC stays HTTP/2."""
    protocols = deployment.load.protocols
    names = ("app", "app-grpc")[: len(protocols)]
    for name, protocol, endpoint in zip(names, protocols, apps, strict=True):
        proxy.clusters.append(envoy.cluster(name, *endpoint, http2=protocol in ("grpc", "h2")))
    return names


def _prove_plain(pair: Pair, phase: str) -> list[Proof]:
    answers = [wire.speak_h2(*at) for at in pair.wires]
    return [Proof("plaintext between the sidecars", phase, a.accepted, "accepted", a.detail) for a in answers]
