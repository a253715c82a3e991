"""Two node proxies, as in ambient meshes: TCP in, HTTP/2 CONNECT over mutual TLS between them, TCP out."""

from collections.abc import Mapping, Sequence

from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.testbed.local.deployment import Prover, Spec, Started
from meshtrial.testbed.local.fleet import Fleet, host_port
from meshtrial.testbed.local.proofs import connections_prover, counter_prover, make_keys, prove_mtls
from meshtrial.testbed.local.sockets import Endpoint

# The fewest bytes that a request takes on the wire. fortio's GET is longer than 60 bytes of text. In HTTP/2 repeated
# headers are one byte each after a 9-byte frame header. A gRPC message adds a second frame and a prefix.
LEAST_BYTES = {"http1": 60, "h2": 10, "grpc": 24, "sse": 60, "grpc-stream": 24}


def start_tunnel(
    fleet: Fleet, backends: Mapping[str, tuple[Endpoint, Sequence[Endpoint]]], per_request: int
) -> tuple[Proxy, Prover, Prover]:
    """Start the node proxies; ``backends`` gives by name the address that is called and those behind the tunnel.

    Several addresses of one name are balanced by connection, because this architecture carries bytes. Return the
    server's proxy, the proof of mutual TLS, and the proof that at least ``per_request`` bytes for every request entered
    and left the tunnel, which none bypasses unseen.
    """
    keys, tunnel = make_keys(fleet), fleet.new_endpoint()
    server = Proxy("server node proxy", fleet.new_endpoint())
    server_tls = envoy.tls_context(keys.server, keys.client.spiffe, server=True)
    authorities = {host_port(first): name for name, (_, (first, *_others)) in backends.items()}
    tunnel_end = envoy.connect_manager("tunnel", authorities)
    server.listeners.append(envoy.listener("tunnel", *tunnel, [tunnel_end], server_tls))
    client = Proxy("client node proxy", fleet.new_endpoint())
    client_tls = envoy.tls_context(keys.client, keys.server.spiffe, server=False)
    client.clusters.append(envoy.cluster("tunnel", *tunnel, http2=True, tls=client_tls))
    for name, (entry, (first, *others)) in backends.items():
        server.clusters.append(envoy.cluster(name, *first, *others))
        tunnel_start = envoy.connect_tunnel(f"to-{name}", "tunnel", host_port(first))
        client.listeners.append(envoy.listener(f"to-{name}", *entry, [tunnel_start]))
    fleet.start_proxy(server)
    fleet.start_proxy(client)
    counters = {
        "bytes into the tunnel": ([client], ["cluster.tunnel.upstream_cx_tx_bytes_total"]),
        "bytes out of the tunnel": ([server], [f"cluster.{name}.upstream_cx_tx_bytes_total" for name in backends]),
    }
    return server, lambda phase, _: prove_mtls(keys, tunnel, phase), counter_prover(counters, per_request)


def start(spec: Spec, fleet: Fleet) -> Started:
    """Start the copies of the application behind node proxies."""
    copies = spec.start_apps(fleet)
    names = ("app", "app-grpc")[: len(copies[0])]
    entries = [fleet.new_endpoint() for _ in names]
    least = LEAST_BYTES | {"tcp": spec.load.payload_bytes or LEAST_BYTES["http1"]}
    backends = dict(zip(names, zip(entries, zip(*copies, strict=True), strict=True), strict=True))
    server, mtls, carried = start_tunnel(fleet, backends, min(least[protocol] for protocol in spec.load.protocols))
    connections = [connections_prover(server, names[0])] if len(copies) > 1 else []
    return Started(spec.target(entries), [mtls, *connections, carried])
