"""Money is CPU and memory times the user's prices, compared within blocks."""

import numpy as np
import pytest
from commandline import meshtrial
from refused import refused
from unit.inference.recorded import planned, study_of

from meshtrial import paths
from meshtrial.design.plan import PlannedRun
from meshtrial.errors import UsageError
from meshtrial.inference.money import GIB, HOURS_A_MONTH, Prices, at_size, bills
from meshtrial.records.dataset import StudyData
from meshtrial.report import tables
from meshtrial.report.tables.costs import money_at

PLAIN = {"path_cpu_cores": 0.10, "path_memory_bytes": 0.5 * GIB, "path_cpu_s_per_request": 100e-6}
PROXY = {
    "path_cpu_cores": 0.30,
    "path_memory_bytes": 1.5 * GIB,
    "path_cpu_s_per_request": 300e-6,
    "control_plane_cpu_cores": 0.05,
    "control_plane_memory_bytes": 0.25 * GIB,
}


@pytest.fixture
def data(small_plan, make_record) -> StudyData:
    rng = np.random.default_rng(2)

    def metered(run: PlannedRun) -> dict[str, float]:
        machine = 0.02 * run.repetition  # of a block, and cancelled in it
        values = dict(PROXY if run.treatment == "node-proxy" else PLAIN)
        values["path_cpu_cores"] += machine + rng.normal(0, 0.001)
        return values

    return study_of(small_plan, metered, runs=[make_record(small_plan, run, {}) for run in small_plan.runs])


def test_amounts_are_resources_times_prices(data):
    (bill,) = bills(data, Prices(core_hour=0.05, gib_hour=0.01))
    assert (bill.treatment, bill.baseline, bill.blocks) == ("node-proxy", "none", 6)
    # 0.2 cores and 1 GiB more, 730 hours.
    assert bill.month.estimate == pytest.approx(730 * (0.2 * 0.05 + 1 * 0.01), rel=0.02)
    assert bill.month.low < bill.month.estimate < bill.month.high
    assert bill.control_plane is not None
    assert bill.control_plane.estimate == pytest.approx(730 * (0.05 * 0.05 + 0.25 * 0.01))
    # 200 us a request more are 200 s a million: a eighteenth of an hour.
    assert bill.million.estimate == pytest.approx(200 / 3600 * 0.05)


def test_twice_the_price_is_twice_the_amount_and_nothing_costs_nothing(data):
    one, two = (bills(data, Prices(price, 0.0))[0] for price in (0.05, 0.10))
    assert two.month.estimate == pytest.approx(2 * one.month.estimate)
    assert bills(data, Prices(0.0, 0.01))[0].million.estimate == 0


@pytest.mark.parametrize(
    "prices",
    [
        (-1, 0.1),
        (0.1, float("nan")),
        (float("inf"), 0.1),
        (0, 0),
    ],
)
def test_prices_that_are_none_are_refused(prices):
    with refused(UsageError):
        Prices(*prices)


def test_the_table_shows_amounts_with_intervals_and_the_prices(data):
    shown = tables.money(data, 0.05, 0.01, "EUR").text.replace("\u00a0", " ")
    assert "0.05 per core-hour and 0.01 per GiB-hour" in shown
    row = next(line for line in shown.splitlines() if line.startswith("node-proxy"))
    assert row.count("EUR") == 9
    assert "+0.0027" in row or "+0.0028" in row


def test_the_command_prices_a_packed_study_and_refuses_none():
    packed = next((paths.CHECKOUT / "data" / "sample").glob("feature_impact*.tar.xz"))
    code, out, err = meshtrial("cost", packed, "--core-hour", "0.04", "--gib-hour", "0.005")
    assert (code, err) == (0, "")
    assert "control plane, cost per month" in out
    code, _, err = meshtrial("cost", packed, "--core-hour", "-1", "--gib-hour", "0")
    assert code == 2
    assert "core_hour = -1.0: must be a price of 0 or more" in err


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
    code, out, err = meshtrial("cost", sample / "scale_out-20261123T090922Z-9ce4cae7.tar.xz", *asked)
    assert (code, err) == (0, "")
    assert "month at 600 pods" in out
    code, _, err = meshtrial("cost", sample / "ambient_vs_no_mesh-20261126T074118Z-ea4186cf.tar.xz", *asked)
    assert code == 2
    assert "use a recorded scale_out study" in err
