import numpy as np
import pytest

from meshtrial.stats.batch import hodges_lehmann_rows, signed_rank_p_rows
from meshtrial.stats.hodges_lehmann import hodges_lehmann
from meshtrial.stats.signedrank import signed_rank


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_rows_are_the_scalar_test(alternative: str) -> None:
    rng = np.random.default_rng(0)
    d = np.concatenate((rng.normal(0.5, 1, (20, 9)), rng.integers(-3, 4, (20, 9))))  # half of them with ties and zeros
    expected = [signed_rank(row, alternative).p for row in d]  # type: ignore[arg-type]
    assert signed_rank_p_rows(d, alternative).tolist() == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [4, 6, 9, 10])
def test_rows_are_the_scalar_interval(n: int) -> None:
    rng = np.random.default_rng(n)
    d = np.concatenate((rng.normal(0.5, 1, (20, n)), rng.integers(-3, 4, (20, n)), rng.integers(1, 3, (5, n))))
    rows = hodges_lehmann_rows(d, 0.1)
    for i, row in enumerate(d):
        one = hodges_lehmann(row, 0.1)
        assert (rows.estimate[i], rows.low[i], rows.high[i], rows.p[i]) == (one.estimate, one.low, one.high, one.p)
        assert rows.excludes_null[i] == one.excludes(0.0)


def test_the_interval_excludes_zero_exactly_where_the_test_rejects() -> None:
    d = np.random.default_rng(1).normal(0.03, 0.1, (20_000, 10))
    rows = hodges_lehmann_rows(d, 0.05)
    assert (rows.excludes_null == (rows.p <= 0.05)).all()
    assert 0 < rows.excludes_null.mean() < 1
