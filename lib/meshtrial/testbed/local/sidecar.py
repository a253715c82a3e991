"""The Envoy sidecar pair, and how its features hook in.

Between the sidecars HTTP/2 is spoken with and without TLS, so that the contrast between the two treatments is
TLS and nothing else.
"""

from __future__ import annotations

from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import balance, wire
from meshtrial.testbed.local.deployment import LocalDeployment, numbered
from meshtrial.testbed.local.features import FEATURES
from meshtrial.testbed.local.pair import Pair
from meshtrial.testbed.local.proofs import Keys, counter_prover, prove_mtls


def build(deployment: LocalDeployment) -> None:
    """Build the pair with the treatment's features."""
    apps = deployment.spawn_apps()
    pair = Pair(
        client=Proxy("client sidecar", deployment.new_endpoint()),
        servers=[Proxy(numbered("server sidecar", copy), deployment.new_endpoint()) for copy in range(len(apps))],
        entry=deployment.new_endpoint(),
        wires=[deployment.new_endpoint() for _ in apps],
        apps=apps,
    )
    client_tls = server_tls = None
    if deployment.treatment.has("mtls"):
        keys = Keys(deployment)
        client_tls = envoy.tls_context(keys.client, keys.server.spiffe, server=False)
        server_tls = envoy.tls_context(keys.server, keys.client.spiffe, server=True)
        pair.provers.append(lambda phase, _: [proof for at in pair.wires for proof in prove_mtls(keys, at, phase)])
    else:
        pair.provers.append(lambda phase, _: _prove_plain(pair, phase))
    for feature in deployment.treatment.features:
        if feature != "mtls":
            FEATURES[feature](deployment, pair)
    _assemble(deployment, pair, client_tls, server_tls)
    for server in pair.servers:
        deployment.spawn_proxy(server)
    deployment.spawn_proxy(pair.client)
    deployment.set_target([pair.entry], tuple(pair.headers))
    counters = {
        "requests through the client sidecar": ([pair.client], ["http.outbound.downstream_rq_total"]),
        "requests through the server sidecar": (pair.servers, ["http.inbound.downstream_rq_total"]),
    }
    if len(apps) > 1:
        deployment.provers.append(balance.share_prover(pair.servers))
        if not deployment.treatment.has("least-request"):
            deployment.provers.append(balance.turns_prover(deployment, pair, in_turn=True))
    deployment.provers += [*pair.provers, counter_prover(counters, per_request=1)]


def _assemble(deployment: LocalDeployment, pair: Pair, client_tls: Json | None, server_tls: Json | None) -> None:
    # The app is called as the client calls: gRPC stays HTTP/2 to the end.
    protocols = deployment.load.protocols
    names = ("app", "app-grpc")[: len(protocols)]
    for server, wire_of_copy, apps in zip(pair.servers, pair.wires, pair.apps, strict=True):
        for name, protocol, endpoint in zip(names, protocols, apps, strict=True):
            server.clusters.append(envoy.cluster(name, *endpoint, http2=protocol in ("grpc", "h2")))
        inbound = envoy.http_manager(
            "inbound",
            *names,
            http_filters=pair.inbound_filters,
            access_log=pair.access_logs[server.name],
            tracing=pair.tracing.get(server.name),
        )
        server.listeners.append(envoy.listener("inbound", *wire_of_copy, [inbound], server_tls))
    first, *others = pair.wires
    pair.client.clusters.append(
        envoy.cluster("server", *first, *others, http2=True, tls=client_tls, policy=pair.policy)
    )
    outbound = envoy.http_manager(
        "outbound", "server", access_log=pair.access_logs[pair.client.name], tracing=pair.tracing.get(pair.client.name)
    )
    pair.client.listeners.append(envoy.listener("outbound", *pair.entry, [outbound]))


def _prove_plain(pair: Pair, phase: str) -> list[Proof]:
    answers = [wire.speak_h2(*at) for at in pair.wires]
    return [Proof("plaintext between the sidecars", phase, a.accepted, "accepted", a.detail) for a in answers]
