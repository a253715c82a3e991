"""A pair of Envoys that pass bytes on: two more processes and sockets in the path, and nothing is read."""

from __future__ import annotations

from meshtrial.design.study import Load, Treatment
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.errors import UsageError
from meshtrial.testbed.local.deployment import LocalDeployment
from meshtrial.testbed.local.proofs import counter_prover

# A request is never shorter than this on the wire, whatever the protocol.
_BYTES = 10


def check(treatment: Treatment, load: Load) -> None:
    """Refuse several copies of the application: bytes are not balanced by request."""
    if load.replicas > 1:
        raise UsageError(f"treatment {treatment.name}: it has one target for each protocol; leave replicas out")


def build(deployment: LocalDeployment) -> None:
    """The application behind two TCP proxies, one after the other."""
    apps = deployment.spawn_app()
    client = Proxy("client TCP proxy", deployment.new_endpoint())
    server = Proxy("server TCP proxy", deployment.new_endpoint())
    entries = []
    for number, app in enumerate(apps):
        entry, between, name = deployment.new_endpoint(), deployment.new_endpoint(), f"bytes-{number}"
        entries.append(entry)
        for proxy, at, onward in ((client, entry, between), (server, between, app)):
            proxy.clusters.append(envoy.cluster(name, *onward))
            proxy.listeners.append(envoy.listener(name, *at, [envoy.tcp_proxy(name, name)]))
    deployment.spawn_proxy(server)
    deployment.spawn_proxy(client)
    deployment.set_target(entries)
    sent = [f"cluster.bytes-{number}.upstream_cx_tx_bytes_total" for number in range(len(apps))]
    counters = {"bytes through the client": ([client], sent), "bytes through the server": ([server], sent)}
    deployment.provers.append(counter_prover(counters, per_request=_BYTES))
