import numpy as np
import pytest

from meshtrial.stats.calibration import Rule, check_row


@pytest.mark.parametrize(
    ("rule", "nominal", "hits", "passed"),
    [
        # of 400, se at .05 is .0109: up to 33 hits (.0825) are allowed
        ("at most", 0.05, 33, True),
        ("at most", 0.05, 34, False),
        ("at least", 0.95, 367, True),
        ("at least", 0.95, 366, False),
        ("more than", 0.10, 41, True),
        ("more than", 0.10, 40, False),
        ("about", 0.5, 245, True),
        ("about", 0.5, 320, False),
        ("exactly", 0.0, 0, True),
        ("exactly", 0.0, 1, False),
    ],
)
def test_rules(rule: Rule, nominal: float, hits: int, passed: bool) -> None:
    row = check_row("c", "cell", rule, nominal, np.arange(400) < hits)
    assert row.passed is passed
    assert row.observed == hits / 400
    assert row.repetitions == 400


def test_standard_error() -> None:
    assert check_row("c", "cell", "at most", 0.05, np.zeros(400, dtype=bool)).mc_se == pytest.approx(0.0109, abs=1e-4)
