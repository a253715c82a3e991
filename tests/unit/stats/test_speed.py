"""Analysis must stay cheap: CPU seconds, so that a busy machine does not decide."""

import time

import numpy as np

from meshtrial.stats import Margin, analyse_family
from meshtrial.stats.batch import hodges_lehmann_rows

NAMES = ["none", "a", "b", "c", "d", "e"]


def test_a_study_of_1000_runs_ten_responses_five_treatments() -> None:
    rng = np.random.default_rng(0)
    started = time.process_time()
    for _ in range(10):
        values = {name: np.exp(rng.normal(0, 0.08, 167)) for name in NAMES}
        assert len(analyse_family(values, "none", margin=Margin(0.05))) == 5
    assert time.process_time() - started < 10


def test_fifty_thousand_tests_with_intervals() -> None:
    d = np.random.default_rng(1).normal(0, 0.1, (50_000, 10))
    started = time.process_time()
    rows = hodges_lehmann_rows(d, 0.05)
    assert time.process_time() - started < 10
    assert (rows.excludes_null == (rows.p <= 0.05)).all()
