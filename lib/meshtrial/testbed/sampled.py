"""Traces of a share of the requests: how many spans are about that share, and how many requests can show it.

Whether a request is traced is drawn for each by itself, so the number of spans is binomial; its bounds are exact.
"""

from __future__ import annotations

import math

from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof

# How seldom spans of the right share may lie below the bounds, and above: a study has thousands of such proofs.
RARE = 1e-6


def bounds(requests: int, percent: float) -> tuple[int, int]:
    """The fewest spans and the most that pass for this share of the requests; none at all never do."""
    from scipy.stats import binom  # takes a moment to load, which only treatments with such traces need

    share = percent / 100
    return max(1, int(binom.ppf(RARE, requests, share))), int(binom.isf(RARE, requests, share))


def proof(name: str, phase: str, spans: int, requests: int, percent: float) -> Proof:
    """That so many spans are about this share of the requests that went the same way."""
    fewest, most = bounds(requests, percent)
    wanted = f"{fewest} to {most}: {percent:g} % of {requests} requests"
    return Proof(name, phase, fewest <= spans <= most, wanted, str(spans))


def least_requests(percent: float) -> int:
    """So many that to see no span of them is as rare as it may be: with fewer, the share proves nothing."""
    return math.ceil(math.log(RARE) / math.log1p(-percent / 100)) if percent < 100 else 1


def check(treatment: Treatment, load: Load, percent: float) -> None:
    """Refuse a load that sends too few requests for the share to be shown; an open end may be long enough."""
    sent, least = load.mean_rps * load.measured_s, least_requests(percent)
    if 0 < sent < least:
        raise UsageError(
            f"treatment {treatment.name}: of {sent:.0f} requests in a run, {percent:g} % may well be none, which would "
            f"prove nothing; raise the rate or duration_s, to {least} requests or more"
        )
