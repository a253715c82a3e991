"""What the machine's counters say of a run."""

import pytest

from meshtrial.run.stage import machine_responses
from meshtrial.testbed.base import MachineUse


def test_what_neither_components_nor_this_process_used_is_foreign():
    used = MachineUse(busy=0.5, stolen=0.1, programs_s=8.0, total_s=20.0, own_s=0.5)
    found = machine_responses([used], components_s=5.5)
    assert found == {"machine_busy": 0.5, "machine_stolen": 0.1, "foreign_load": pytest.approx(0.1)}


def test_slices_share_the_components_seconds():
    one = MachineUse(busy=0.5, programs_s=3.0, total_s=10.0)
    other = MachineUse(busy=0.7, programs_s=5.0, total_s=10.0)
    assert machine_responses([one, other], components_s=4.0)["foreign_load"] == pytest.approx((1 + 3) / 20)


def test_a_node_that_counts_its_own_daemons_says_nothing_of_foreign_programs():
    assert machine_responses([MachineUse(busy=0.5)], components_s=1.0) == {"machine_busy": 0.5}
    assert machine_responses([], components_s=1.0) == {}
