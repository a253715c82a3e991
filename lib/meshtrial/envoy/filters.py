"""HTTP filters that policies put into a sidecar, the same on either backend."""

from __future__ import annotations

import json

from meshtrial.envoy import bootstrap
from meshtrial.envoy.bootstrap import Json
from meshtrial.envoy.tokens import AUDIENCE, ISSUER, Tokens


def jwt_filters(tokens: Tokens, *, cache: bool) -> list[Json]:
    """Envoy's jwt_authn filter, requiring the provider on every path."""
    provider: Json = {
        "issuer": ISSUER,
        "audiences": [AUDIENCE],
        "local_jwks": {"inline_string": json.dumps(tokens.jwks)},
        "forward": True,
    }
    if cache:
        provider["jwt_cache_config"] = {"jwt_cache_size": 100}
    rules = [{"match": {"prefix": "/"}, "requires": {"provider_name": "trial"}}]
    name = "extensions.filters.http.jwt_authn.v3.JwtAuthentication"
    config = bootstrap.typed(name, providers={"trial": provider}, rules=rules)
    return [{"name": "envoy.filters.http.jwt_authn", "typed_config": config}]


def ext_authz_filter() -> Json:
    """Envoy's ext_authz filter, which asks the cluster ``opa`` over gRPC and refuses where it does not answer."""
    service = {"envoy_grpc": {"cluster_name": "opa"}, "timeout": "1s"}
    name = "extensions.filters.http.ext_authz.v3.ExtAuthz"
    config = bootstrap.typed(name, grpc_service=service, transport_api_version="V3", failure_mode_allow=False)
    return {"name": "envoy.filters.http.ext_authz", "typed_config": config}
