"""Money is CPU and memory times the user's prices, compared within blocks."""

import numpy as np
import pytest
from commandline import meshtrial
from refused import refused
from unit.inference.recorded import study_of

from meshtrial import paths
from meshtrial.design.plan import PlannedRun
from meshtrial.errors import UsageError
from meshtrial.inference.money import Prices, bills
from meshtrial.records.dataset import StudyData
from meshtrial.report import tables

GIB = 2.0**30
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
    assert "at 0.05 a core-hour and 0.01 a GiB-hour" in shown
    row = next(line for line in shown.splitlines() if line.startswith("node-proxy"))
    assert row.count("EUR") == 9
    assert "+0.0027" in row or "+0.0028" in row


def test_the_command_prices_a_packed_study_and_refuses_none():
    packed = next((paths.CHECKOUT / "data" / "sample").glob("feature_impact*.zip"))
    code, out, err = meshtrial("cost", packed, "--core-hour", "0.04", "--gib-hour", "0.005")
    assert (code, err) == (0, "")
    assert "control plane, a month" in out
    code, _, err = meshtrial("cost", packed, "--core-hour", "-1", "--gib-hour", "0")
    assert code == 2
    assert "core_hour = -1.0: must be a price of 0 or more" in err
