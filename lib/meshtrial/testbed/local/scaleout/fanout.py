"""The load generator's fan-out: one address in front of all endpoints of the first tier.

fortio calls one address. An Envoy as plain TCP proxy deals its connections out in turn, so with a multiple of the
replicas every endpoint gets the same number. It belongs to the load generator: the same in every treatment, and
counted there.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Proxy

_CLUSTER = "endpoints"


def fan_out(admin: tuple[str, int], entry: tuple[str, int], endpoints: Sequence[tuple[str, int]]) -> Proxy:
    """The proxy that listens at ``entry`` and deals connections out to the endpoints."""
    cluster = envoy.cluster(_CLUSTER, *endpoints[0])
    members = [{"endpoint": {"address": envoy.socket_address(*at)}} for at in endpoints]
    cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": members}]
    cluster["lb_policy"] = "ROUND_ROBIN"
    kind = "extensions.filters.network.tcp_proxy.v3.TcpProxy"
    tcp = {
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": envoy.typed(kind, stat_prefix="fan_out", cluster=_CLUSTER),
    }
    return Proxy("fan-out", admin, listeners=[envoy.listener("entry", *entry, [tcp])], clusters=[cluster])
