"""Looks at a deployment while a load runs: as many as there are seconds, and none after it."""

import threading
import time
from collections.abc import Callable

import polars as pl
import pytest
from waiting import wait_for

from meshtrial.errors import TestbedError
from meshtrial.records import series
from meshtrial.records.schema import ComponentUsage
from meshtrial.run.sampling import Sampler
from meshtrial.run.stage import peak_responses, usage_responses


class Standing:
    """Uses half a core by its own clock, and may go at a look."""

    def __init__(self, fails_after: int = 10**9) -> None:
        self.clock: Callable[[], float] = time.monotonic
        self.began = self.clock()
        self.looks = 0
        self.fails_after = fails_after

    def looked(self, times: int) -> None:
        """Wait until it was looked at so often."""
        wait_for(lambda: self.looks >= times)

    def sample(self):
        self.looks += 1
        if self.looks > self.fails_after:
            raise TestbedError("it is gone")
        return {"app": (0.5 * (self.clock() - self.began), 2**20)}


def alive():
    return [thread for thread in threading.enumerate() if thread.name == "sampler"]


def test_it_looks_at_every_interval_and_stops_with_the_load():
    deployment, began = Standing(), time.monotonic()
    with Sampler(deployment, 1, every_s=0.05) as sampler:
        deployment.looked(5)
    assert not alive()
    looks = deployment.looks
    assert looks - 1 <= (time.monotonic() - began) / 0.05
    assert sampler.table().filter(measure="cpu_cores").height == looks - 1


def test_what_was_used_is_by_the_clock_of_each_look():
    deployment = Standing()
    deployment.clock, deployment.began = lambda: 0.7 * deployment.looks, 0.0  # goes on at looks alone
    with Sampler(deployment, every_s=0.7, clock=deployment.clock) as sampler:
        deployment.looked(5)
    cores = sampler.table().filter(measure="cpu_cores")
    assert cores["value"].to_list() == pytest.approx([0.5] * cores.height)
    assert cores.height >= 4


def test_a_component_that_goes_ends_the_course_and_nothing_else():
    deployment = Standing(fails_after=3)
    with Sampler(deployment, every_s=0.02) as sampler:
        deployment.looked(6)
    assert sampler.table().filter(measure="cpu_cores").height == 2


def test_where_there_are_only_slow_readings_no_thread_is_started():
    class Slow:
        def sample(self):
            return {}

    with Sampler(Slow()) as sampler:
        assert not alive()
    assert sampler.table().equals(series.empty())


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
