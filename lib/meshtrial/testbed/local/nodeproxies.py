"""Two node proxies, as in ambient meshes: TCP in, HTTP/2 CONNECT over mutual TLS between them, TCP out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.records.schema import Proof
from meshtrial.testbed.local.deployment import Prover, Spec, Started
from meshtrial.testbed.local.fleet import Fleet, host_port
from meshtrial.testbed.local.proofs import Keys, connections_prover, counter_prover, make_keys, prove_mtls
from meshtrial.testbed.local.sockets import Endpoint

# The fewest bytes that a request takes on the wire. fortio's GET is longer than 60 bytes of text. In HTTP/2 repeated
# headers are one byte each after a 9-byte frame header. A gRPC message adds a second frame and a prefix.
LEAST_BYTES = {"http1": 60, "h2": 10, "grpc": 24, "sse": 60, "grpc-stream": 24}


@dataclass(frozen=True)
class Tunnel:
    """The two proxies, and the address of the tunnel between them."""

    client: Proxy
    server: Proxy
    keys: Keys
    at: Endpoint
    names: tuple[str, ...]  # of the server's clusters

    def prove_mtls(self, phase: str, _: int) -> list[Proof]:
        """Prove mutual TLS of the tunnel."""
        return prove_mtls(self.keys, self.at, phase)

    def bytes_prover(self, per_request: int) -> Prover:
        """Prove that at least this many bytes per request entered and left the tunnel, which none bypasses unseen."""
        counters = {
            "bytes into the tunnel": ([self.client], ["cluster.tunnel.upstream_cx_tx_bytes_total"]),
            "bytes out of the tunnel": (
                [self.server],
                [f"cluster.{name}.upstream_cx_tx_bytes_total" for name in self.names],
            ),
        }
        return counter_prover(counters, per_request)


def start_tunnel(fleet: Fleet, backends: Mapping[str, tuple[Endpoint, Sequence[Endpoint]]]) -> Tunnel:
    """Start the node proxies; ``backends`` gives by name the address that is called and those behind the tunnel.

    Several addresses of one name are balanced by connection, because this architecture carries bytes.
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
    return Tunnel(client, server, keys, tunnel, tuple(backends))


def start(spec: Spec, fleet: Fleet) -> Started:
    """Start the copies of the application behind node proxies."""
    copies = spec.start_apps(fleet)
    names = ("app", "app-grpc")[: len(copies[0])]
    entries = [fleet.new_endpoint() for _ in names]
    tunnel = start_tunnel(fleet, dict(zip(names, zip(entries, zip(*copies, strict=True), strict=True), strict=True)))
    provers: list[Prover] = [tunnel.prove_mtls]
    if len(copies) > 1:
        provers.append(connections_prover(tunnel.server, names[0]))
    least = LEAST_BYTES | {"tcp": spec.load.payload_bytes or LEAST_BYTES["http1"]}
    provers.append(tunnel.bytes_prover(min(least[protocol] for protocol in spec.load.protocols)))
    return Started(spec.target(entries), provers)
