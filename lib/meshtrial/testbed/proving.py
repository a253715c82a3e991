"""What proofs of both backends have in common: how many spans fit a share, and requests that a policy must answer.

Each request is traced by its own random draw, so the number of spans is binomial; its bounds are exact. Each backend
sends the requests in its own way.
"""

import math
from dataclasses import dataclass

from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.envoy.keys import Tokens
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof

# How often the spans of a correct share are below the bounds, or above: a study has thousands of such proofs.
RARE = 1e-6
Codes = tuple[int, ...]


def bounds(requests: int, percent: float) -> tuple[int, int]:
    """Return the fewest and the most spans that pass for this share of the requests; zero never passes."""
    from scipy.stats import binom  # slow to import, and needed only by treatments with such traces

    share = percent / 100
    return max(1, int(binom.ppf(RARE, requests, share))), int(binom.isf(RARE, requests, share))


def proof(name: str, phase: str, spans: int, requests: int, percent: float) -> Proof:
    """Return the proof that the spans fit this share of the requests that took the same path."""
    fewest, most = bounds(requests, percent)
    expected = f"{fewest} to {most}: {percent:g} % of {requests} requests"
    return Proof(name, phase, fewest <= spans <= most, expected, str(spans))


def least_requests(percent: float) -> int:
    """Return how many requests make seeing no span rare enough: with fewer, the share proves nothing."""
    return math.ceil(math.log(RARE) / math.log1p(-percent / 100)) if percent < 100 else 1


def check(treatment: Treatment, load: Load, percent: float) -> None:
    """Refuse a load that sends too few requests to show the share; a load with an open end may be long enough."""
    sent, least = load.mean_rps * load.measured_s, least_requests(percent)
    if 0 < sent < least:
        raise UsageError(
            f"treatment {treatment.name}: {percent:g} % of {sent:.0f} requests in a run may be none, which proves "
            f"nothing; raise the rate or duration_s, to {least} requests or more"
        )


# --- policies ---------------------------------------------------------------------------------------------------------


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
