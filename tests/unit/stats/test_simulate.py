import numpy as np
import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.stats.simulate import Noise, bootstrap, run_places, simulate

SILENT = Noise(rho=0.0, ar_sd=0.0, drift=0.0, tail_sd=0.0, shock_rate=0.0)


def test_without_noise_only_the_effects_are_left() -> None:
    values = simulate([0.0, 0.1, 0.2], 4, 2, np.random.default_rng(0), noise=SILENT)
    assert values.shape == (2, 4, 3)
    assert np.allclose(values, [0.0, 0.1, 0.2])


def test_every_block_runs_every_treatment_once_in_its_own_order() -> None:
    places = run_places(50, 8, 6, "randomised", np.random.default_rng(0))
    assert (np.sort(places, axis=2) == np.arange(48).reshape(8, 6)).all()
    assert len({tuple(row) for row in (places % 6).reshape(-1, 6)}) > 200


def test_sequential_runs_treatment_after_treatment() -> None:
    places = run_places(1, 3, 2, "sequential", np.random.default_rng(0))
    assert places[0].T.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_drift_is_the_change_from_first_to_last_run() -> None:
    noise = Noise(rho=0.0, ar_sd=0.0, drift=0.6, tail_sd=0.0, shock_rate=0.0)
    values = simulate([0.0, 0.0], 5, 1, np.random.default_rng(0), noise=noise, order="sequential")
    assert values[0, 0, 0] == 0
    assert values[0, -1, 1] == pytest.approx(0.6)


def test_ar1_has_the_declared_size_and_memory() -> None:
    noise = Noise(rho=0.8, ar_sd=0.08, drift=0.0, tail_sd=0.0, shock_rate=0.0)
    runs = simulate([0.0, 0.0], 100, 400, np.random.default_rng(1), noise=noise, order="sequential")
    series = np.concatenate((runs[:, :, 0], runs[:, :, 1]), axis=1)
    assert series.std() == pytest.approx(0.08, rel=0.03)
    assert np.corrcoef(series[:, :-1].ravel(), series[:, 1:].ravel())[0, 1] == pytest.approx(0.8, abs=0.02)


def test_shocks_are_positive_and_as_frequent_as_declared() -> None:
    noise = Noise(rho=0.0, ar_sd=0.0, drift=0.0, tail_sd=0.0, shock_rate=0.05, shock_mean=0.25)
    values = simulate([0.0, 0.0], 50, 400, np.random.default_rng(2), noise=noise)
    assert (values >= 0).all()
    assert (values > 0).mean() == pytest.approx(0.05, abs=0.005)
    assert values[values > 0].mean() == pytest.approx(0.25, rel=0.1)


def test_a_noisier_treatment_and_a_more_sensitive_one() -> None:
    own = Noise(rho=0.0, ar_sd=0.0, drift=0.0, tail_sd=0.05, shock_rate=0.0)
    values = simulate([0.0, 0.0], 50, 400, np.random.default_rng(3), noise=own, scales=[1, 4])
    spread = np.subtract(*np.quantile(values, [0.75, 0.25], axis=(0, 1)))
    assert spread[1] / spread[0] == pytest.approx(4, rel=0.1)
    machine = Noise(rho=0.5, ar_sd=0.05, drift=0.0, tail_sd=0.0, shock_rate=0.0)
    values = simulate([0.0, 0.0], 50, 400, np.random.default_rng(3), noise=machine, sensitivities=[1, 4])
    assert values[:, :, 1].std() / values[:, :, 0].std() == pytest.approx(4, rel=0.05)


def test_the_generator_decides_everything() -> None:
    a, b = (simulate([0.0, 0.1], 5, 3, np.random.default_rng(9)) for _ in range(2))
    assert (a == b).all()


def test_bootstrap_deals_whole_blocks() -> None:
    # blocks at 0, 10, 20 with runs one apart: no simulated block mixes two recorded ones
    recorded = np.array([[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]])
    values = bootstrap(recorded, [0.0, 0.0], 6, 200, np.random.default_rng(0))
    # the treatments' constant difference of 1 is no noise and is taken out
    assert np.ptp(values, axis=2).max() == pytest.approx(0)
    assert set(np.round(values.ravel() - values.min(), 6)) == {0.0, 10.0, 20.0}


def test_bootstrap_deals_more_treatments_than_were_recorded() -> None:
    recorded = np.random.default_rng(1).normal(0, 1, (6, 2))
    values = bootstrap(recorded, [0.0, 0.0, 5.0], 4, 50, np.random.default_rng(2))
    assert values.shape == (50, 4, 3)
    assert (values[:, :, 2] - values[:, :, 0]).mean() == pytest.approx(5, abs=0.3)


@pytest.mark.parametrize("bad", [[[1.0, 2.0]], [[1.0], [2.0]], [[1.0, np.nan], [1.0, 2.0]]])
def test_refuses_what_is_no_aa_record(bad: list[list[float]]) -> None:
    with pytest.raises(UsageError):
        bootstrap(bad, [0.0, 0.0], 4, 1, np.random.default_rng(0))


def test_refuses_impossible_noise_and_studies() -> None:
    with pytest.raises(UsageError):
        Noise(rho=1.0)
    with pytest.raises(UsageError):
        simulate([0.0], 4, 1, np.random.default_rng(0))
    with refused(UsageError):
        simulate([0.0, 0.0], 4, 1, np.random.default_rng(0), order="alphabetical")  # type: ignore[arg-type]
