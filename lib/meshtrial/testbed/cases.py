"""Requests that a policy must answer in a known way; each backend has its own way to ask."""

from __future__ import annotations

from dataclasses import dataclass

from meshtrial.envoy.tokens import Tokens

Codes = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A request, and the HTTP statuses of which its answer must have one; ``name`` follows what is proven."""

    name: str
    headers: tuple[tuple[str, str], ...]
    answers: Codes
    method: str = "GET"


def token_cases(tokens: Tokens, missing: Codes, bad: Codes, audience: Codes) -> list[Case]:
    """What a check of tokens must refuse, and the good one that it must let in."""

    def bearer(token: str) -> tuple[tuple[str, str], ...]:
        return (("Authorization", f"Bearer {token}"),)

    return [
        Case("without a token", (), missing),
        Case("with a forged token", bearer(tokens.forged), bad),
        Case("with an expired token", bearer(tokens.expired), bad),
        Case("with another audience's token", bearer(tokens.foreign), audience),
        Case("with a good token", tokens.headers, (200,)),
    ]


def forbidden_method(tokens: Tokens) -> Case:
    """What the policy alone refuses, whoever looked at the token before it."""
    return Case("with a method that is not allowed", tokens.headers, (403,), "DELETE")
