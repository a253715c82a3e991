import numpy as np
import pytest
from refused import as_reviewed, refused

from meshtrial.errors import UsageError
from meshtrial.stats.datachecks import coarse_quantile, repeated_values, varying_factors, warm_up


def test_warm_up() -> None:
    rng = np.random.default_rng(0)
    first, second = np.exp(rng.normal(0, 0.02, (2, 30)))
    assert warm_up(first, second) == ()
    found = warm_up(first * 1.1, second)
    assert [w.code for w in found] == ["warm-up"]
    assert "-8.4%" in found[0].message  # 1/1.1 - 1 = -9.1 %, and the noise of 30 runs
    # significant, and too small to matter
    assert warm_up(np.ones(30), np.full(30, 1.01)) == ()
    with pytest.raises(UsageError):
        warm_up([1, 2], [1])


def test_coarse_quantile_by_hand() -> None:
    # a 1 ms bucket on 10 ms is 10 %
    assert [w.code for w in coarse_quantile(0.001, 0.010, 0.05)] == ["coarse-quantile"]
    assert coarse_quantile(0.001, 0.010, 0.10) == ()
    assert "10.0%" in coarse_quantile(0.001, 0.010, 0.05)[0].message
    (told,) = coarse_quantile(0.001, 0.010, 0.05, "a run's time", "raise rps")
    as_reviewed(told.message)
    with pytest.raises(UsageError):
        coarse_quantile(0.001, 0.0, 0.05)


def test_repeated_values() -> None:
    assert [w.code for w in repeated_values([1, 1, 1, 2, 2, 2, 1])] == ["repeated-values"]
    assert repeated_values([1, 2, 3, 4, 4]) == ()
    assert repeated_values([0, 0, 0, 0]) == ()


def test_varying_factors_are_named() -> None:
    found = varying_factors(["a", "a", "b", "b"], {"image": ["v1", "v2", "v1", "v1"], "node": ["n1", "n1", "n2", "n2"]})
    assert len(found) == 1
    assert found[0].code == "varying-factor"
    assert "image varies inside a: v1 (1), v2 (1)" in found[0].message
    with refused(UsageError):
        varying_factors(["a"], {"image": []})
