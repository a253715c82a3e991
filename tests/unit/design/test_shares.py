import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from meshtrial.design import shares
from meshtrial.design.load import FixedRate
from meshtrial.errors import UsageError


def test_a_split_rate_does_not_lose_a_call_to_truncation():
    # 100 rps x 3/7 for 21 s is exactly 900 calls, but in floating point 899.9999999999999.
    load = FixedRate(100, 7, 21, generators=2)
    assert int(float(Fraction(300, 7)) * 21) == 899
    assert int(shares.split_rate(load, 3, 21) * 21) == 900


@given(
    rps=st.floats(1, 1e5), connections=st.integers(1, 600), generators=st.integers(1, 20), duration=st.floats(0.5, 600)
)
def test_the_parts_add_up(rps, connections, generators, duration):
    load = FixedRate(rps, connections, duration, generators=min(generators, connections))
    split = shares.split_connections(load)
    assert sum(split) == connections
    assert max(split) - min(split) <= 1
    rates = [shares.split_rate(load, c, duration) for c in split]
    assert math.isclose(math.fsum(rates), rps, rel_tol=1e-12)


@pytest.mark.parametrize(
    "given",
    [
        {"protocol": "sse"},
        {"protocol": "tcp", "keepalive": False},
        {"replicas": 2, "generators": 2},
    ],
    ids=lambda given: "-".join(given),
)
def test_idle_connections_need_one_application_that_keeps_them(given):
    with refused(UsageError, names=["idle_connections", 100, "http1", "replicas"]):
        shares.require_possible(FixedRate(100, 4, 2, idle_connections=100, **given))
