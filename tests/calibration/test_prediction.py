"""How often the interval of a prediction contains the system's real cost."""

import numpy as np
import pytest
from unit.prediction.single_hops import CALLEE_US, CALLER_US, recorded, sidecars

from meshtrial.design.system import Call, System
from meshtrial.prediction import Options, predict

pytestmark = pytest.mark.calibration

STUDIES = 400
NOISE_US = 20.0  # of a block, in the caller's proxy


def share_covered(system: System, true_cores: float, studies: int, session_us: float = 0.0) -> float:
    """The share of predictions whose interval contains the true number of cores."""
    rng = np.random.default_rng(5)

    def drawn(seed: int) -> bool:
        records = []
        for study in range(studies):
            shift = session_us * rng.standard_normal()
            at_rates = {"sidecar": lambda load, noise, shift=shift: sidecars(load, noise + shift)}
            records.append(recorded(at_rates, noise_us=NOISE_US, seed=1 + seed * studies + study))
        cores = predict(system, records, "sidecar", options=Options(model_error=0.0)).cores
        future = session_us * rng.standard_normal() * 1e-6 * 300  # of another session, in the caller's 300 rps
        return cores.low <= true_cores + future <= cores.high

    return float(np.mean([drawn(seed) for seed in range(STUDIES)]))


# A chain whose proxies have rates at and between the two measured ones.
CHAIN = System({}, (Call("a", "b", 100), Call("b", "c", 200)))
SHARE = np.log10(3)  # of the way from 100 to 1,000, at b's 300 requests per second


def true_cores() -> float:
    def us(table: dict[int, float], share: float) -> float:
        return table[100] * (1 - share) + table[1000] * share

    b = 100 * us(CALLEE_US, SHARE) + 200 * us(CALLER_US, SHARE)
    return 1e-6 * (100 * CALLER_US[100] + b + 200 * us(CALLEE_US, np.log10(2)))


def test_the_interval_over_blocks_covers_as_often_as_it_states():
    assert 0.92 <= share_covered(CHAIN, true_cores(), 1) <= 0.98


def test_the_interval_of_three_studies_covers_another_session():
    assert 0.92 <= share_covered(CHAIN, true_cores(), 3, session_us=30.0) <= 0.99
