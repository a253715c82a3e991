"""The sidecar pair's features: what each adds to the proxies, and how it proves that it is really on.

A feature's proof asks for the effect (a refused request, a counter that moved, a span that was sent),
never for the configuration that was meant to cause it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from meshtrial import native
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import ext_authz_filter, jwt_filters
from meshtrial.envoy.pki import write_private
from meshtrial.envoy.tokens import AUDIENCE, ISSUER
from meshtrial.records.schema import Proof
from meshtrial.testbed.cases import Case, forbidden_method, token_cases
from meshtrial.testbed.local import balance, observability, wire
from meshtrial.testbed.local.deployment import LocalDeployment, Prover
from meshtrial.testbed.local.pair import Pair
from meshtrial.testbed.local.proofs import WRITTEN_S, growth_prover

# The policy that the server evaluates; None is the one built into it.
OPA_POLICY: Path | None = None
# What a proxy makes of its refusals where the call is gRPC: unauthenticated and permission denied.
_GRPC_STATUS = {200: 0, 401: 16, 403: 7}


def add_jwt(deployment: LocalDeployment, pair: Pair, *, cache: bool) -> None:
    """RS256 token checked by the server's sidecar against a local key set: every time anew, or with Envoy's cache."""
    tokens = pair.tokens()
    pair.inbound_filters += jwt_filters(tokens, cache=cache)
    cases = token_cases(tokens, (401,), (401,), audience=(403,))
    pair.provers.append(lambda phase, _: _prove_statuses(deployment, pair, phase, "JWT", cases))


def _prove_statuses(
    deployment: LocalDeployment, pair: Pair, phase: str, name: str, cases: Sequence[Case]
) -> list[Proof]:
    grpc = deployment.load.protocol == "grpc"
    proofs = []
    for case in cases:
        (expected,) = case.answers
        if grpc:
            expected, kind = _GRPC_STATUS[expected], "gRPC status"
            method = "POST" if case.method == "GET" else case.method
            answer = wire.grpc_call(*pair.entry, deployment.app.grpc_path, case.headers, method)
        else:
            kind = "HTTP"
            answer = wire.http_get(*pair.entry, deployment.app.path, case.headers, case.method)
        passed = answer.status == expected
        proofs.append(Proof(f"{name} {case.name}", phase, passed, f"{kind} {expected}", answer.detail))
    return proofs


def add_opa(deployment: LocalDeployment, pair: Pair, *, log: bool) -> None:
    """Open Policy Agent behind gRPC ext_authz: a Rego policy that checks the token and the method."""
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
    refusal = (401 if guarded else 403,)
    cases = (*token_cases(tokens, refusal, refusal, audience=(403,)), forbidden_method(tokens))
    pair.provers.append(lambda phase, _: _prove_statuses(deployment, pair, phase, "OPA", cases))
    pair.provers.append(_decision_prover(admin, decisions if log else None))


def _decision_prover(admin: tuple[str, int], log: Path | None) -> Prover:
    asked = ("OPA decisions",) if log is None else ("OPA decisions", "OPA decision log")

    def counts() -> dict[tuple[str, str], int]:
        lines = 0 if log is None or not log.exists() else log.read_bytes().count(b"\n")
        decided = (int(wire.ask_json("policy server", admin, "/stats")["allowed"]), lines)
        return {(name, "policy server"): count for name, count in zip(asked, decided, strict=False)}

    return growth_prover(counts, lambda requests: dict.fromkeys(asked, requests), WRITTEN_S)


def _at(endpoint: tuple[str, int]) -> str:
    return f"{endpoint[0]}:{endpoint[1]}"


def least_request(deployment: LocalDeployment, pair: Pair) -> None:
    """The client's sidecar sends to the copy with fewer requests under way, of two drawn at random."""
    pair.policy = "LEAST_REQUEST"
    pair.provers.append(balance.turns_prover(deployment, pair, in_turn=False))


FEATURES: dict[str, Callable[[LocalDeployment, Pair], None]] = {
    **observability.FEATURES,
    "jwt": partial(add_jwt, cache=False),
    "jwt-cache": partial(add_jwt, cache=True),
    "opa": partial(add_opa, log=False),
    "opa-log": partial(add_opa, log=True),
    "least-request": least_request,
}
