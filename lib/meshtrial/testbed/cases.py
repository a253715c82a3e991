"""Requests that a policy must answer in a known way; each backend sends them in its own way."""

from __future__ import annotations

from dataclasses import dataclass

from meshtrial.envoy.keys import Tokens

Codes = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A request and the HTTP statuses that its answer may have; ``name`` follows the name of the proof."""

    name: str
    headers: tuple[tuple[str, str], ...]
    answers: Codes
    method: str = "GET"


def token_cases(tokens: Tokens, missing: Codes, bad: Codes, audience: Codes) -> list[Case]:
    """Return the requests that a check of tokens must refuse, and one with a good token that it must accept."""

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
    """Return a request that only the policy refuses, whatever checked the token before."""
    return Case("with a method that is not allowed", tokens.headers, (403,), "DELETE")
