"""Money at a size that was not measured: a line through each block, an interval over blocks, its limits in words."""

import numpy as np
import pytest
from commandline import meshtrial
from refused import refused
from unit.inference.recorded import planned, study_of

from meshtrial import paths
from meshtrial.design.plan import PlannedRun
from meshtrial.errors import UsageError
from meshtrial.inference.extrapolated import at_size
from meshtrial.inference.money import GIB, HOURS_A_MONTH, Prices
from meshtrial.records.dataset import StudyData
from meshtrial.report.tables.costs import money_at

CORES, BYTES, FIXED_CORES = 0.004, GIB / 64, 0.3  # a sidecar, and a control plane
PRICES = Prices(0.04, 0.005)


def recorded(blocks: int = 6, power: float = 1.0, noise: float = 0.0) -> StudyData:
    plan, rng = planned("scale_out", blocks=blocks), np.random.default_rng(4)

    def truth(run: PlannedRun) -> dict[str, float]:
        meshed = run.treatment.startswith("sidecar")
        sidecars = (3 * plan.load_of(run).replicas) ** power * meshed
        machine = 0.05 * run.repetition  # of a block, and cancelled in it
        drawn = 1 + noise * rng.normal()
        return {
            "total_cpu_cores": 0.2 + machine + (CORES * sidecars + FIXED_CORES * meshed) * drawn,
            "total_memory_bytes": 2e8 + BYTES * sidecars * drawn,
        }

    return study_of(plan, truth)


def monthly(pods: int) -> float:
    return HOURS_A_MONTH * (0.04 * (FIXED_CORES + CORES * pods) + 0.005 * pods / 64)


@pytest.mark.parametrize("pods", [100, 900])
def test_the_line_is_the_truth_where_costs_are_one(pods):
    (one,) = at_size(recorded(), PRICES, pods)
    assert (one.treatment, one.baseline, one.sizes[0], one.sizes[-1]) == ("sidecar+mtls", "none", 30, 300)
    assert one.month.estimate == pytest.approx(monthly(pods))
    assert one.hundred.estimate == pytest.approx(monthly(200) - monthly(100))
    assert one.bounded


def test_the_interval_grows_with_the_distance_and_holds_the_truth():
    data = recorded(blocks=10, noise=0.01)
    near, far = (at_size(data, PRICES, pods)[0] for pods in (150, 900))
    for one, pods in ((near, 150), (far, 900)):
        assert one.bounded
        assert one.month.low < monthly(pods) < one.month.high
    assert far.month.high - far.month.low > 3 * (near.month.high - near.month.low)


def test_costs_that_may_bend_have_an_envelope_as_far_as_twice_and_nothing_beyond():
    data = recorded(blocks=10, power=1.3, noise=0.001)
    shown = money_at(data, 0.04, 0.005, 600, "EUR").text
    assert "600 pods are 2 times the largest measured size" in shown
    assert "month at 600 pods" in shown
    assert "the interval is the envelope of straight lines, parabolas and power laws" in shown
    (one,) = at_size(data, PRICES, 600)
    truth = HOURS_A_MONTH * (0.04 * (FIXED_CORES + CORES * 600**1.3) + 0.005 * 600**1.3 / 64)
    assert one.month.low < truth < one.month.high
    (beyond,) = at_size(data, PRICES, 601)
    assert (beyond.month, beyond.bounded) == (None, False)
    assert beyond.hundred.n == 10
    assert "too much to extrapolate to this size" in money_at(data, 0.04, 0.005, 900).text


def test_within_the_measured_sizes_nothing_is_said_of_distance():
    assert "times the largest" not in money_at(recorded(), 0.04, 0.005, 90).text


@pytest.mark.parametrize("pods", [0, -5, 3001])
def test_a_size_that_is_none_or_too_far_is_refused(pods):
    with refused(UsageError):
        at_size(recorded(), PRICES, pods)


def test_the_command_takes_studies_that_scale_out_alone():
    sample = paths.CHECKOUT / "data" / "sample"
    asked = ["--core-hour", "0.04", "--gib-hour", "0.005", "--pods", "600"]
    code, out, err = meshtrial("cost", next(sample.glob("scale_out*.zip")), *asked)
    assert (code, err) == (0, "")
    assert "month at 600 pods" in out
    code, _, err = meshtrial("cost", next(sample.glob("ambient*.zip")), *asked)
    assert code == 2
    assert "measured one size; take a recorded scale_out study" in err
