"""A stage: samples, a restart and changes during its load, and the responses of machine and deployment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import polars as pl
import pytest
from refused import refused
from waiting import wait_for

from meshtrial.design.load import ChangesUnderLoad, Load
from meshtrial.errors import TestbedError
from meshtrial.load.propagation import ChangeTime
from meshtrial.records import series
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.run.stage import (
    Intervention,
    changing,
    churning,
    deployment_responses,
    machine_responses,
    peak_responses,
    restarting,
    sampling,
    usage_responses,
)
from meshtrial.testbed.base import Facts, MachineUse

EVERY_S = 0.05


class Standing:
    """Uses half a core by its own clock, and may disappear at a sample."""

    def __init__(self, fails_after: int = 10**9) -> None:
        self.clock: Callable[[], float] = time.monotonic
        self.began = self.clock()
        self.looks = 0
        self.fails_after = fails_after

    def looked(self, times: int) -> None:
        """Wait until it was sampled n times."""
        wait_for(lambda: self.looks >= times)

    def sample(self):
        self.looks += 1
        if self.looks > self.fails_after:
            raise TestbedError("it is gone")
        return {"app": (0.5 * (self.clock() - self.began), 2**20)}


def alive():
    return [thread for thread in threading.enumerate() if thread.name.startswith("intervention")]


def test_it_looks_at_every_interval_and_stops_with_the_load():
    deployment, began = Standing(), time.monotonic()
    with sampling(deployment, 1, every_s=0.05) as samples:
        deployment.looked(5)
    assert not alive()
    looks = deployment.looks
    assert looks - 1 <= (time.monotonic() - began) / 0.05
    assert samples.result().filter(measure="cpu_cores").height == looks - 1


def test_what_was_used_is_by_the_clock_of_each_look():
    deployment = Standing()
    deployment.clock, deployment.began = lambda: 0.7 * deployment.looks, 0.0  # time passes only at samples
    with sampling(deployment, every_s=0.7, clock=deployment.clock) as samples:
        deployment.looked(5)
    cores = samples.result().filter(measure="cpu_cores")
    assert cores["value"].to_list() == pytest.approx([0.5] * cores.height)
    assert cores.height >= 4


def test_a_component_that_goes_ends_the_course_and_nothing_else():
    deployment = Standing(fails_after=3)
    with sampling(deployment, every_s=0.02) as samples:
        deployment.looked(6)
    assert samples.result().filter(measure="cpu_cores").height == 2


def test_where_there_are_only_slow_readings_nothing_is_sampled():
    class Slow:
        def sample(self):
            return {}

    with sampling(Slow()) as samples:
        pass
    assert samples.result().equals(series.empty())


def test_cpu_a_gib_is_told_of_bytes_alone():
    usage = [ComponentUsage("app", "app", 4, 1.0, 1), ComponentUsage("client sidecar", "data plane", 4, 0.5, 1)]
    # 2048 messages of 64 KiB are an eighth of a GiB.
    found = usage_responses(usage, 2048, 65536)
    assert {k: v for k, v in found.items() if k.endswith("_gib")} == {
        "path_cpu_s_per_gib": 12.0,
        "data_plane_cpu_s_per_gib": 4.0,
        "app_cpu_s_per_gib": 8.0,
    }
    assert not [name for name in (*usage_responses(usage, 2048), *usage_responses(usage, 0, 1)) if "_gib" in name]


def test_the_peak_is_the_second_in_which_all_of_a_part_used_the_most_together():
    both = {"client sidecar": (0.1, 0.3, 0.3), "server sidecar": (0.4, 0.1, 0.25), "app": (0.0, 1.0, 0.0)}
    rows = [(0, second, name, "cpu_cores", v) for name, values in both.items() for second, v in enumerate(values)]
    sampled = pl.DataFrame(rows, schema=series.COLUMNS, orient="row")
    usage = [ComponentUsage(n, "app" if n == "app" else "data plane", 3, 1, 1) for n in both]
    found = peak_responses(sampled, usage)
    assert round(found["data_plane_peak_cpu_cores"], 9) == 0.55
    assert round(found["path_peak_cpu_cores"], 9) == 1.4
    assert peak_responses(sampled.filter(pl.col("second") < 2), usage) == {}


class Restartable:
    def __init__(self, takes_s: float = 0.0, error: Exception | None = None) -> None:
        self.takes_s, self.error = takes_s, error
        self.asked: list[tuple[str, float]] = []
        self.ended = False

    def restart(self, part: str) -> tuple[Proof, ...]:
        self.asked.append((part, time.monotonic()))
        time.sleep(self.takes_s)
        self.ended = True
        if self.error is not None:
            raise self.error
        return (Proof("restarted", "during", True, "", ""),)


def test_a_restart_begins_at_its_moment_and_is_waited_for():
    deployment, entered = Restartable(takes_s=0.2), time.monotonic()
    with restarting(deployment, "app", 0.1) as restart:  # type: ignore[arg-type]
        wait_for(lambda: deployment.asked)
    assert deployment.ended
    found = restart.result()
    assert found is not None
    ((part, at),) = deployment.asked
    assert part == "app"
    assert at - entered >= 0.1
    assert found.ended_unix_s - found.began_unix_s >= 0.2
    assert [proof.name for proof in found.proofs] == ["restarted"]


def test_without_a_part_nothing_is_restarted():
    deployment = Restartable()
    with restarting(deployment, "", 0.0) as restart:  # type: ignore[arg-type]
        pass
    assert restart.result() is None
    assert deployment.asked == []


class Changeable:
    def __init__(self, *has: str, error: Exception | None = None) -> None:
        self.has, self.error = has, error
        self.asked: list[tuple[str, bool, float]] = []
        self.churned: list[int] = []

    def changes(self) -> tuple[str, ...]:
        return self.has

    def change(self, change: str, on: bool) -> ChangeTime:
        self.asked.append((change, on, time.monotonic()))
        if self.error is not None:
            raise self.error
        return ChangeTime(time.time(), 0.001)

    def churn(self, number: int) -> None:
        self.churned.append(number)


def load(*changes: str, cycles: int = 1, every_s: float = EVERY_S, churn: float = 0.0) -> Load:
    return ChangesUnderLoad(
        100, 1, 1, changes=changes, change_every_s=every_s, change_cycles=cycles, churn_per_min=churn
    )


def test_each_change_has_its_turn_and_what_there_is_not_leaves_its_empty():
    deployment, entered = Changeable("weight"), time.monotonic()
    with changing(deployment, load("authorization", "weight", cycles=2)) as changes:  # type: ignore[arg-type]
        wait_for(lambda: len(deployment.asked) == 4)
    assert [(change, on) for change, on, _ in deployment.asked] == 2 * [("weight", True), ("weight", False)]
    # The turns of two authorizations come before the first and in the middle.
    for turn, (_, _, at) in zip((3, 4, 7, 8), deployment.asked, strict=True):
        assert at - entered >= turn * EVERY_S
    assert [one.step.name for one in changes.result()] == ["weight"] * 4


def test_other_changes_are_made_at_their_rate_all_the_while():
    deployment = Changeable()
    with churning(deployment, load(churn=6000)) as churn:  # type: ignore[arg-type]
        wait_for(lambda: len(deployment.churned) >= 60)
    assert deployment.churned[:60] == list(range(60))
    churn.result()


def test_other_changes_that_are_not_kept_up_are_said():
    with churning(Changeable(), load(churn=6000)) as churn:  # type: ignore[arg-type]
        pass
    with refused(TestbedError, names=["churn_per_min", 6000]):
        churn.result()


def a_restart(error: Exception | None = None, at_s: float = 0.0) -> tuple[Restartable, Intervention]:
    deployment = Restartable(error=error)
    return deployment, restarting(deployment, "app", at_s)  # type: ignore[arg-type]


def a_change(error: Exception | None = None, at_s: float = EVERY_S) -> tuple[Changeable, Intervention]:
    deployment = Changeable("weight", error=error)
    return deployment, changing(deployment, load("weight", every_s=at_s))  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [a_restart, a_change], ids=["restarting", "changing"])
def test_an_error_is_raised_after_the_load(made):
    deployment, intervention = made(TestbedError("app: nothing listens"))
    with intervention:
        wait_for(lambda: deployment.asked)
    with pytest.raises(TestbedError, match="nothing listens"):
        intervention.result()


@pytest.mark.parametrize("made", [a_restart, a_change], ids=["restarting", "changing"])
def test_a_load_that_ends_too_early_is_an_error_and_nothing_happens_after_it(made):
    deployment, intervention = made(at_s=3600.0)
    with intervention:
        pass
    with refused(TestbedError):
        intervention.result()
    assert deployment.asked == []


@pytest.mark.parametrize("made", [a_restart, a_change], ids=["restarting", "changing"])
def test_an_interruption_is_raised_and_leaves_no_thread(made):
    deployment, intervention = made(at_s=3600.0)
    with pytest.raises(KeyboardInterrupt), intervention:
        raise KeyboardInterrupt
    assert not alive()
    assert deployment.asked == []


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
