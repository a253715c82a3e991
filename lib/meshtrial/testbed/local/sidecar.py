"""The Envoy sidecar pair with its features, or one of the two alone.

Between the sidecars HTTP/2 is spoken with and without TLS, so that the contrast between the two treatments is
TLS and nothing else.
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
from meshtrial.testbed.local.proofs import counter_prover, prove_own, share_prover, turns_prover
from meshtrial.testbed.local.sockets import Endpoint

ALONE = ("client-only", "server-only")
_LACKING = {
    "client-only": ("mtls", "jwt", "jwt-cache", "opa", "opa-log", "least-request"),
    "server-only": ("mtls", "least-request"),
}


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
    features.check(treatment, load)


def start(spec: Spec, fleet: Fleet) -> Started:
    """The application behind its sidecars, with what the treatment's features add to them."""
    pair = _laid_out(spec, fleet)
    added = joined([add(pair) for name in spec.treatment.features for add in FEATURES.get(name, ())])
    for _, proxy in pair.sidecars:
        proxy.clusters += added.clusters
        proxy.flags += tuple(added.flags)
    for server, at, apps in zip(pair.servers, pair.wires, pair.apps, strict=False):
        _add_inbound(pair, server, at, apps, added)
    for client in pair.clients:
        _add_outbound(pair, client, added)
    for proxy in (*pair.servers, *pair.clients):
        fleet.start_proxy(proxy)
    others = [] if pair.clients else [[at] for at in pair.wires[1:]]
    return Started(spec.target([pair.entry], pair.headers, others), _provers(pair, added))


def _laid_out(spec: Spec, fleet: Fleet) -> Pair:
    """The application, and its sidecars before they are configured."""
    apps = spec.start_apps(fleet)
    with_client, with_server = (not spec.treatment.has(other) for other in reversed(ALONE))
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


def _add_inbound(pair: Pair, server: Proxy, at: Endpoint, apps: Sequence[Endpoint], added: Addition) -> None:
    version = pair.spec.version
    server.clusters += added.server_clusters
    inbound = envoy.http_manager(
        "inbound",
        *_app_clusters(pair, server, apps),
        http_filters=[*added.filters, *(version.http_filters if version else ())],
        **_telemetry(server, added),
    )
    server.listeners.append(envoy.listener("inbound", *at, [inbound], added.tls[1]))


def _add_outbound(pair: Pair, client: Proxy, added: Addition) -> None:
    if pair.wires:
        first, *others = pair.wires
        names: Sequence[str] = ("server",)
        onward = envoy.cluster("server", *first, *others, http2=True, tls=added.tls[0], policy=added.policy)
        client.clusters.append(onward)
    else:
        names = _app_clusters(pair, client, pair.apps[0])
    outbound = envoy.http_manager("outbound", *names, **_telemetry(client, added))
    client.listeners.append(envoy.listener("outbound", *pair.entry, [outbound]))


def _telemetry(proxy: Proxy, added: Addition) -> Json:
    logs = [log for name, log in added.access_logs.items() if name == proxy.name]
    return {"access_log": logs, "tracing": added.tracing.get(proxy.name)}


def _app_clusters(pair: Pair, proxy: Proxy, apps: Sequence[Endpoint]) -> Sequence[str]:
    """Clusters of a copy of the application, one a protocol; it is called as the client calls: gRPC stays HTTP/2."""
    protocols = pair.spec.load.protocols
    names = ("app", "app-grpc")[: len(protocols)]
    for name, protocol, endpoint in zip(names, protocols, apps, strict=True):
        proxy.clusters.append(envoy.cluster(name, *endpoint, http2=protocol in ("grpc", "h2")))
    return names


def _provers(pair: Pair, added: Addition) -> list[Prover]:
    """Of the pair, of what was added, and at last of the requests: those of the proofs before must not count."""
    provers: list[Prover] = []
    if len(pair.apps) > 1:
        provers.append(share_prover(pair.servers))
        if pair.clients and not pair.spec.treatment.has("least-request"):
            provers.append(turns_prover(pair.servers, lambda: pair.ask(pair.headers), in_turn=True))
    if not pair.spec.treatment.has("mtls"):
        provers.append(lambda phase, _: _prove_plain(pair, phase))
    if not pair.servers:
        name, behind = "no proxy at the server", "behind the client's sidecar"
        provers.append(lambda phase, _: [prove_own(pair.fleet, "app", name, behind, pair.apps[0], phase)])
    ways = {"client": "outbound", "server": "inbound"}
    counters = {
        f"requests through the {side} sidecar": (proxies, [f"http.{ways[side]}.downstream_rq_total"])
        for side, proxies in pair.sides.items()
    }
    return [*provers, *added.provers, counter_prover(counters, per_request=1)]


def _prove_plain(pair: Pair, phase: str) -> list[Proof]:
    answers = [wire.speak_h2(*at) for at in pair.wires]
    return [Proof("plaintext between the sidecars", phase, a.accepted, "accepted", a.detail) for a in answers]
