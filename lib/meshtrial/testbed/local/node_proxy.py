"""Two node proxies with an HTTP/2 CONNECT tunnel over mutual TLS: the architecture of ambient meshes."""

from __future__ import annotations

from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.testbed.local.balance import connections_prover
from meshtrial.testbed.local.deployment import LocalDeployment
from meshtrial.testbed.local.proofs import counter_prover, make_keys, prove_mtls

# The least that a request takes on the wire: fortio's GET is above 60 bytes of text. In HTTP/2 repeated
# headers are a byte each behind the 9 bytes of their frame; a gRPC message has a second frame and a prefix.
_BYTES = {"http1": 60, "h2": 10, "grpc": 24}


def build(deployment: LocalDeployment) -> None:
    """Two node proxies: TCP in, HTTP/2 CONNECT over mutual TLS between them, TCP out (the ambient architecture)."""
    keys = make_keys(deployment)
    copies = deployment.spawn_apps()
    apps = copies[0]
    entries, tunnel = [deployment.new_endpoint() for _ in apps], deployment.new_endpoint()
    clusters = ("app", "app-grpc")[: len(apps)]
    authorities = [f"{address}:{port}" for address, port in apps]
    server = Proxy("server node proxy", deployment.new_endpoint())
    # Of several copies each takes whole connections: this architecture carries bytes.
    of_protocol = zip(*copies, strict=True)
    for name, (first, *others) in zip(clusters, of_protocol, strict=True):
        server.clusters.append(envoy.cluster(name, *first, *others))
    server_tls = envoy.tls_context(keys.server, keys.client.spiffe, server=True)
    tunnel_end = envoy.connect_manager("tunnel", dict(zip(authorities, clusters, strict=True)))
    server.listeners.append(envoy.listener("tunnel", *tunnel, [tunnel_end], server_tls))
    client = Proxy("client node proxy", deployment.new_endpoint())
    client_tls = envoy.tls_context(keys.client, keys.server.spiffe, server=False)
    client.clusters.append(envoy.cluster("tunnel", *tunnel, http2=True, tls=client_tls))
    for cluster, entry, authority in zip(clusters, entries, authorities, strict=True):
        start = envoy.connect_tunnel(f"to-{cluster}", "tunnel", authority)
        client.listeners.append(envoy.listener(f"to-{cluster}", *entry, [start]))
    deployment.spawn_proxy(server)
    deployment.spawn_proxy(client)
    deployment.set_target(entries)
    deployment.provers.append(lambda phase, _: prove_mtls(keys, tunnel, phase))
    counters = {
        "bytes into the tunnel": ([client], ["cluster.tunnel.upstream_cx_tx_bytes_total"]),
        "bytes out of the tunnel": ([server], [f"cluster.{name}.upstream_cx_tx_bytes_total" for name in clusters]),
    }
    if len(copies) > 1:
        deployment.provers.append(connections_prover(server, clusters[0]))
    # What did not go through the tunnel would be missing here.
    least = _BYTES | {"tcp": deployment.load.payload_bytes or _BYTES["http1"]}
    deployment.provers.append(counter_prover(counters, per_request=min(least[p] for p in deployment.load.protocols)))
