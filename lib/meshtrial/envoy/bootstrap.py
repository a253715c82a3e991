"""Building blocks of static Envoy bootstraps as plain dictionaries, for both backends.

Retries and route time-outs are off in every treatment, so that a proxy neither hides nor adds a failure. Type names are
those of Envoy's v3 API, https://www.envoyproxy.io/docs/envoy/v1.38.0/api-v3/api.
"""

import http.client
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshtrial import network
from meshtrial.envoy.keys import AUDIENCE, ISSUER, Identity, Tokens
from meshtrial.errors import TestbedError

Json = dict[str, Any]
_TYPE = "type.googleapis.com/envoy."
# Far above what a study opens; the default of 1024 would silently shed load.
_THRESHOLDS = {"thresholds": [dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 100_000)]}


def typed(name: str, **fields: Any) -> Json:
    """Return a protobuf Any with its type name."""
    return {"@type": _TYPE + name, **fields}


def extension(name: str, kind: str, **fields: Any) -> Json:
    """Return an extension ``envoy.<name>`` with its typed configuration ``extensions.<kind>``."""
    return {"name": f"envoy.{name}", "typed_config": typed(f"extensions.{kind}", **fields)}


def socket_address(address: str, port: int) -> Json:
    """Return a TCP address."""
    return {"socket_address": {"address": address, "port_value": port}}


def tls_context(identity: Identity, peer_spiffe: str, *, server: bool, groups: Sequence[str] = ()) -> Json:
    """Return a transport socket for mutual TLS 1.3 that checks the peer's SPIFFE name.

    ``groups`` are the key exchanges that it accepts, the preferred one first; empty: Envoy's own choice.
    """
    match = [{"san_type": "URI", "matcher": {"exact": peer_spiffe}}]
    common = {
        "tls_params": {
            "tls_minimum_protocol_version": "TLSv1_3",
            "tls_maximum_protocol_version": "TLSv1_3",
            **({"ecdh_curves": list(groups)} if groups else {}),
        },
        "alpn_protocols": ["h2"],
        "tls_certificates": [
            {
                "certificate_chain": {"filename": str(identity.certificate)},
                "private_key": {"filename": str(identity.key)},
            }
        ],
        "validation_context": {
            "trusted_ca": {"filename": str(identity.authority)},
            "match_typed_subject_alt_names": match,
        },
    }
    kind = f"transport_sockets.tls.v3.{'Downstream' if server else 'Upstream'}TlsContext"
    required = {"require_client_certificate": True} if server else {}
    return extension("transport_sockets.tls", kind, common_tls_context=common, **required)


def cluster(
    name: str,
    address: str,
    port: int,
    *more: tuple[str, int],
    http2: bool = False,
    tls: Json | None = None,
) -> Json:
    """Return a static cluster of one endpoint, or of several that take turns."""
    endpoints = [{"endpoint": {"address": socket_address(*where)}} for where in ((address, port), *more)]
    result: Json = {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": _THRESHOLDS,
        "lb_policy": "ROUND_ROBIN",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
    }
    if tls is not None:
        result["transport_socket"] = tls
    if http2:
        kind = "extensions.upstreams.http.v3.HttpProtocolOptions"
        options = typed(kind, explicit_http_config={"http2_protocol_options": {}})
        result["typed_extension_protocol_options"] = {f"envoy.{kind}": options}
    return result


def listener(name: str, address: str, port: int, filters: Sequence[Json], tls: Json | None = None) -> Json:
    """Return a TCP listener with one filter chain."""
    chain: Json = {"filters": list(filters)}
    if tls is not None:
        chain["transport_socket"] = tls
    return {"name": name, "address": socket_address(address, port), "filter_chains": [chain]}


def http_manager(
    prefix: str,
    upstream: str,
    grpc_upstream: str = "",
    *,
    http_filters: Sequence[Json] = (),
    access_log: Sequence[Json] = (),
    tracing: Json | None = None,
    paths: Sequence[str] = (),
) -> Json:
    """Return an HTTP connection manager that routes all or some paths to one cluster, and gRPC to its own if given."""
    matches = [{"path": path} for path in paths] or [{"prefix": "/"}]
    routes: list[Json] = [{"match": match, "route": {"cluster": upstream, "timeout": "0s"}} for match in matches]
    if grpc_upstream:
        route = {"cluster": grpc_upstream, "timeout": "0s"}
        routes.insert(0, {"match": {"prefix": "/", "grpc": {}}, "route": route})
    fields: Json = {"generate_request_id": tracing is not None}
    if access_log:
        fields["access_log"] = list(access_log)
    if tracing is not None:
        fields["tracing"] = tracing
    return _manager(prefix, {"*": routes}, http_filters, **fields)


def connect_manager(prefix: str, upstreams: Mapping[str, str]) -> Json:
    """Return the end of an HTTP/2 CONNECT tunnel, which forwards bytes as TCP to the requested authority's cluster."""
    upgrade = {"upgrade_type": "CONNECT"}

    def route(upstream: str) -> Json:
        onward = {"cluster": upstream, "timeout": "0s", "upgrade_configs": [{**upgrade, "connect_config": {}}]}
        return {"match": {"connect_matcher": {}}, "route": onward}

    return _manager(
        prefix,
        {authority: [route(upstream)] for authority, upstream in upstreams.items()},
        codec_type="HTTP2",
        generate_request_id=False,
        http2_protocol_options={"allow_connect": True},
        upgrade_configs=[upgrade],
        stream_idle_timeout="0s",
    )


def connect_tunnel(prefix: str, upstream: str, authority: str) -> Json:
    """Return the start of an HTTP/2 CONNECT tunnel: every TCP connection becomes one stream."""
    return tcp_proxy(prefix, upstream, tunneling_config={"hostname": authority})


def tcp_proxy(prefix: str, upstream: str, **more: Json) -> Json:
    """Return a filter that forwards bytes to a cluster without parsing them."""
    kind = "filters.network.tcp_proxy.v3.TcpProxy"
    return extension("filters.network.tcp_proxy", kind, stat_prefix=prefix, cluster=upstream, **more)


def direct_response(prefix: str, status: int) -> Json:
    """Return an HTTP server that answers every request with one status."""
    return _manager(prefix, {"*": [{"match": {"prefix": "/"}, "direct_response": {"status": status}}]})


def _manager(
    prefix: str,
    routes: Mapping[str, Sequence[Json]],
    filters: Sequence[Json] = (),
    codec_type: str = "AUTO",
    **more: Any,
) -> Json:
    """Return an HTTP connection manager with routes by authority."""
    hosts = [{"name": f"{prefix}-{i}", "domains": [a], "routes": list(rs)} for i, (a, rs) in enumerate(routes.items())]
    name = "filters.network.http_connection_manager"
    return extension(
        name,
        f"{name}.v3.HttpConnectionManager",
        stat_prefix=prefix,
        route_config={"name": prefix, "virtual_hosts": hosts},
        http_filters=[*filters, extension("filters.http.router", "filters.http.router.v3.Router")],
        **{"codec_type": "AUTO"} | more,
    )


def jwt_filters(tokens: Tokens, *, cache: bool) -> list[Json]:
    """Return Envoy's jwt_authn filter, which requires a token on every path."""
    provider: Json = {
        "issuer": ISSUER,
        "audiences": [AUDIENCE],
        "local_jwks": {"inline_string": json.dumps(tokens.jwks)},
        "forward": True,
    }
    if cache:
        provider["jwt_cache_config"] = {"jwt_cache_size": 100}
    rules = [{"match": {"prefix": "/"}, "requires": {"provider_name": "trial"}}]
    kind = "filters.http.jwt_authn.v3.JwtAuthentication"
    return [extension("filters.http.jwt_authn", kind, providers={"trial": provider}, rules=rules)]


def ext_authz_filter() -> Json:
    """Return Envoy's ext_authz filter, which asks the cluster ``opa`` over gRPC and refuses without its answer."""
    service = {"envoy_grpc": {"cluster_name": "opa"}, "timeout": "1s"}
    policy = {"grpc_service": service, "transport_api_version": "V3", "failure_mode_allow": False}
    return extension("filters.http.ext_authz", "filters.http.ext_authz.v3.ExtAuthz", **policy)


@dataclass
class Proxy:
    """The configuration of one Envoy."""

    name: str  # of the component, e.g. ``client sidecar``
    admin: tuple[str, int]  # loopback address of its admin interface
    listeners: list[Json] = field(default_factory=list)
    clusters: list[Json] = field(default_factory=list)
    extra: Json = field(default_factory=dict)
    flags: tuple[str, ...] = ()  # in addition to those of `command`
    starts: int = 1  # how often it was started; each start resets its counters
    changed: Callable[[Json], Json] = dict  # a version's change of the whole configuration; by default none

    def bootstrap(self) -> Json:
        """Return the whole static configuration."""
        return self.changed(
            {
                "node": {"id": self.name.replace(" ", "-"), "cluster": "meshtrial"},
                "admin": {"address": socket_address(*self.admin)},
                "static_resources": {"listeners": self.listeners, "clusters": self.clusters},
                **self.extra,
            }
        )

    def command(self, envoy: Path, folder: Path) -> tuple[str, ...]:
        """Write the bootstrap to a file and return the command line that runs it."""
        path = folder / f"{self.name.replace(' ', '-')}.json"
        path.write_text(json.dumps(self.bootstrap(), indent=1))
        # Without --disable-hot-restart a second Envoy fails on the shared base id.
        flags = ("--concurrency", "1", "--disable-hot-restart", "-l", "warning", "--skip-deprecated-logs")
        return (str(envoy), "-c", str(path), *flags, *self.flags)

    def stats(self, pattern: str) -> Mapping[str, int]:
        """Return counters and gauges whose names match the regular expression; errors as in :meth:`query`."""
        rows = self.query(f"/stats?format=json&usedonly=false&filter={pattern}", "stats")
        return {row["name"]: int(row["value"]) for row in rows if isinstance(row.get("value"), int)}

    def query(self, path: str, key: str) -> list[Json]:
        """Return the list under a key of the admin interface's answer; TestbedError if it does not answer."""
        try:
            with network.ask(network.url(self.admin[0], f"{self.admin[1]}{path}"), 5) as answer:
                rows: list[Json] = json.load(answer)[key]
                return rows
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise TestbedError(f"{self.name}: its admin interface does not answer ({error})") from None
