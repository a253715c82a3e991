"""The machine's counters for a run."""

import pytest

from meshtrial.run.stage import deployment_responses, machine_responses
from meshtrial.testbed.base import Facts, MachineUse


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


def test_responses_of_what_a_deployment_tells():
    measured = {
        "latency_p50_s": 0.203,
        "path_cpu_cores": 0.5,
        "control_plane_cpu_cores": 0.25,
        "data_plane_cpu_cores": 0.3,
    }
    own = {"push_time_s": 0.1, "not known": 1}
    told = Facts(hold_s=0.2, endpoints=30, proxies=30, responses=own, notes={"spread": 2})
    beyond, sums = {"latency_net_p50_s": 0.003}, {"total_cpu_cores": 0.75, "proxy_cpu_cores": 0.01}
    expected = {"push_time_s": 0.1, "ready_time_s": 7.0} | beyond | sums
    assert deployment_responses(told, measured, 7.0) == pytest.approx(expected)
    assert told.to_dict() == {"hold_s": 0.2, "endpoints": 30, "proxies": 30, "responses": own, "spread": 2}
    assert Facts().to_dict() == {}
    assert deployment_responses(Facts(ready_s=5.5), measured, 7.0) == {"ready_time_s": 5.5}
    assert deployment_responses(Facts(fresh=False, ready_s=5.5), {}, 7.0) == {}  # the time of another run
