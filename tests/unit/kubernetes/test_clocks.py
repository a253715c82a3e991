"""Two clocks, from what is heard of one of them."""

from __future__ import annotations

import pytest

from meshtrial.testbed.kubernetes import clocks


@pytest.mark.parametrize("offset_s", [-0.25, 0.0, 3.0])
@pytest.mark.parametrize("way_s", [0.0, 0.003, 0.02])
@pytest.mark.parametrize("seen_s", [0.0, 0.005, 0.01])
def test_the_truth_lies_within_the_error(offset_s: float, way_s: float, seen_s: float):
    # Words take their way, sometimes longer; a question and its answer take it both ways. The second had come before.
    heard = [offset_s + seen_s + way_s + more for more in (0.004, 0.0, 0.1)]
    found = clocks.estimate(heard, 2 * way_s, 0.01)
    assert abs(found.offset_s - offset_s) <= found.error_s + 1e-12
    assert found.error_s == pytest.approx(way_s + 0.005)
