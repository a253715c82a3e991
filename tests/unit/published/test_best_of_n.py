"""Dropping the worst runs by their maximum: known properties of such rules hold in the simulation."""

import json
import sys

import numpy as np
import pytest
from refused import refused

from best_of_n import Rule, kept_best, outcomes
from meshtrial import MeshtrialError, paths


@pytest.fixture(scope="module")
def found():
    return {(one.order, one.rule.dropped, one.rule.runs): one for one in outcomes(repetitions=1500, seed=3)}


def test_the_runs_with_the_largest_maxima_go_each_treatments_own():
    values = np.array([[[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]])
    maxima = np.array([[[9.0, 5.0], [7.0, 6.0], [8.0, 4.0]]])
    kept = kept_best(values, maxima, Rule(3, 1))
    assert sorted(kept[0, :, 0]) == [2.0, 3.0]
    assert sorted(kept[0, :, 1]) == [10.0, 30.0]


def test_the_order_makes_the_winners_and_the_exact_test_on_blocks_does_not(found):
    for runs, dropped in ((8, 0), (8, 3), (5, 0), (5, 2)):
        after, blocks = found["sequential", dropped, runs], found["randomised", dropped, runs]
        assert after.winners(0.05) > blocks.winners(0.05) + 0.1
        assert after.called > 0.1 > blocks.called
        assert after.winners(0.05) > after.winners(0.10)
    exact = found["randomised", 0, 8].exact
    assert exact is not None
    assert exact <= 0.05 + 3 * (0.05 * 0.95 / 1500) ** 0.5
    assert found["randomised", 3, 8].exact is None


def test_a_steady_difference_stays_and_a_stall_is_dropped_away(found):
    whole, best = found["randomised", 0, 8], found["randomised", 3, 8]
    assert whole.slower == pytest.approx(0.10, abs=0.02)
    assert best.slower == pytest.approx(0.10, abs=0.02)
    assert whole.stalls == pytest.approx(whole.stalls_truth, abs=0.05)
    assert best.stalls < 0.05
    assert whole.spread == 1 > best.spread


def test_the_same_seed_gives_the_same_numbers():
    one, other = (outcomes([Rule(4, 1)], repetitions=100, seed=7, orders=["randomised"])[0] for _ in range(2))
    assert np.array_equal(one.identical, other.identical)


def test_rules_and_sizes_that_say_nothing_are_refused():
    with refused(MeshtrialError):
        Rule(3, 2)
    with refused(MeshtrialError):
        outcomes(repetitions=10)


def test_every_cell_of_the_notebook_runs(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    notebook = json.loads((paths.NOTEBOOKS / "best_of_n.ipynb").read_text())
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            exec("".join(cell["source"]).replace("4000", "300"), names)
    shown = names["best_of_n"].table(names["found"])  # type: ignore[attr-defined]
    assert set(shown.text.split()) >= {"worst", "dropped", "randomised"}
