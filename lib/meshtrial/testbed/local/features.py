"""The sidecar pair's features: what each adds to the proxies, and how it proves that it is really on.

A feature's proof asks for the effect (a refused request, a counter that moved, a span that was sent),
never for the configuration that was meant to cause it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from meshtrial import native
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.filters import ext_authz_filter, jwt_filters
from meshtrial.envoy.pki import write_private
from meshtrial.envoy.tokens import AUDIENCE, ISSUER, Tokens
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import balance, observability, wire
from meshtrial.testbed.local.deployment import LocalDeployment
from meshtrial.testbed.local.pair import Pair
from meshtrial.testbed.local.proofs import grown_enough

# The policy that the server evaluates; None is the one built into it.
OPA_POLICY: Path | None = None
# What a proxy makes of its refusals where the call is gRPC: unauthenticated and permission denied.
_GRPC_STATUS = {200: 0, 401: 16, 403: 7}


def jwt(deployment: LocalDeployment, pair: Pair) -> None:
    """RS256 token checked by the server's sidecar against a local key set, every time anew."""
    _add_jwt(deployment, pair, cache=False)


def jwt_cache(deployment: LocalDeployment, pair: Pair) -> None:
    """The same with Envoy's cache of tokens that it has already verified."""
    _add_jwt(deployment, pair, cache=True)


def _add_jwt(deployment: LocalDeployment, pair: Pair, *, cache: bool) -> None:
    tokens = pair.tokens()
    pair.inbound_filters += jwt_filters(tokens, cache=cache)
    cases = _token_cases(tokens, missing=401, audience=403)
    pair.provers.append(lambda phase, _: _prove_statuses(deployment, pair, phase, "JWT", cases))


@dataclass(frozen=True)
class Case:
    """A request that a policy must answer in a known way."""

    headers: tuple[tuple[str, str], ...]
    expected: int
    method: str = "GET"


def _token_cases(tokens: Tokens, *, missing: int, audience: int) -> dict[str, Case]:
    def bearer(token: str) -> tuple[tuple[str, str], ...]:
        return (("Authorization", f"Bearer {token}"),)

    return {
        "without a token": Case((), missing),
        "with a forged token": Case(bearer(tokens.forged), missing),
        "with an expired token": Case(bearer(tokens.expired), missing),
        "with another audience's token": Case(bearer(tokens.foreign), audience),
        "with a good token": Case(tokens.headers, 200),
    }


def _prove_statuses(
    deployment: LocalDeployment,
    pair: Pair,
    phase: str,
    name: str,
    cases: dict[str, Case],
) -> list[Proof]:
    grpc = deployment.load.protocol == "grpc"
    proofs = []
    for words, case in cases.items():
        if grpc:
            expected, kind = _GRPC_STATUS[case.expected], "gRPC status"
            method = "POST" if case.method == "GET" else case.method
            answer = wire.grpc_call(*pair.entry, deployment.app.grpc_path, case.headers, method)
        else:
            expected, kind = case.expected, "HTTP"
            answer = wire.http_get(*pair.entry, deployment.app.path, case.headers, case.method)
        passed = answer.status == expected
        proofs.append(Proof(f"{name} {words}", phase, passed, f"{kind} {expected}", answer.detail))
    return proofs


def opa(deployment: LocalDeployment, pair: Pair) -> None:
    """Open Policy Agent behind gRPC ext_authz: a Rego policy that checks the token and the method."""
    _add_opa(deployment, pair, log=False)


def opa_log(deployment: LocalDeployment, pair: Pair) -> None:
    """The same with OPA's decision log written."""
    _add_opa(deployment, pair, log=True)


def _add_opa(deployment: LocalDeployment, pair: Pair, *, log: bool) -> None:
    tokens = pair.tokens()
    data = {"jwks": tokens.jwks, "issuer": ISSUER, "audience": AUDIENCE}
    data_file = write_private(deployment.folder / "opa-data.json", json.dumps(data).encode())
    grpc, admin = deployment.new_endpoint(), deployment.new_endpoint()
    decisions = deployment.folder / "decisions.log"
    argv = [str(native.find("opa-extauthz")), "-grpc", _at(grpc), "-admin", _at(admin), "-data", str(data_file)]
    if OPA_POLICY is not None:
        argv += ["-policy", str(OPA_POLICY)]
    if log:
        argv += ["-decision-log", str(decisions)]
    deployment.note_version("opa-extauthz")
    deployment.spawn("policy server", "policy", argv, [grpc, admin])
    for server in pair.servers:
        server.clusters.append(envoy.cluster("opa", *grpc, http2=True))
    pair.inbound_filters.append(ext_authz_filter())
    # Behind a JWT filter a bad token does not reach OPA; the method is then what OPA alone refuses.
    guarded = any(deployment.treatment.has(name) for name in ("jwt", "jwt-cache"))
    cases = _token_cases(tokens, missing=401 if guarded else 403, audience=403)
    cases["with a method that is not allowed"] = Case(tokens.headers, 403, "DELETE")
    pair.provers.append(lambda phase, _: _prove_statuses(deployment, pair, phase, "OPA", cases))
    pair.provers.append(_decision_prover(admin, decisions if log else None))


def _decision_prover(admin: tuple[str, int], log: Path | None) -> Callable[[str, int], list[Proof]]:
    before = {"allowed": 0, "lines": 0}

    def counts() -> dict[str, int]:
        lines = 0 if log is None or not log.exists() else log.read_bytes().count(b"\n")
        return {"allowed": int(wire.get_json(*admin, "/stats")["allowed"]), "lines": lines}

    def prove(phase: str, requests: int) -> list[Proof]:
        if phase == "before":
            before.update(counts())
            return []
        grown = grown_enough(counts, before, dict.fromkeys(("allowed",) if log is None else before, requests))
        names = {"allowed": "OPA decisions", "lines": "OPA decision log"}
        return [
            Proof(names[key], phase, value >= requests > 0, f"at least {requests}", str(value))
            for key, value in grown.items()
        ]

    return prove


def _at(endpoint: tuple[str, int]) -> str:
    return f"{endpoint[0]}:{endpoint[1]}"


def least_request(deployment: LocalDeployment, pair: Pair) -> None:
    """The client's sidecar sends to the copy with fewer requests under way, of two drawn at random."""
    pair.policy = "LEAST_REQUEST"
    pair.provers.append(balance.turns_prover(deployment, pair, in_turn=False))


FEATURES: dict[str, Callable[[LocalDeployment, Pair], None]] = {
    "observability": observability.add,
    "jwt": jwt,
    "jwt-cache": jwt_cache,
    "opa": opa,
    "opa-log": opa_log,
    "least-request": least_request,
}
