import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from meshtrial.design import shares
from meshtrial.design.load import FixedRate


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
