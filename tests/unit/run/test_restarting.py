"""A restart at a known moment of the load: when it begins, what it fails with, and that nobody is left waiting."""

import threading
import time

import pytest
from refused import refused
from waiting import wait_for

from meshtrial.errors import TestbedError
from meshtrial.records.schema import Proof
from meshtrial.run.restarting import Restarting


class Pretended:
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


def test_it_begins_at_its_moment_and_is_waited_for():
    deployment, entered = Pretended(takes_s=0.2), time.monotonic()
    with Restarting(deployment, "app", 0.1) as restarting:  # type: ignore[arg-type]
        wait_for(lambda: deployment.asked)
    assert deployment.ended
    found = restarting.result()
    assert found is not None
    ((part, at),) = deployment.asked
    assert part == "app"
    assert at - entered >= 0.1
    assert found.ended_unix_s - found.began_unix_s >= 0.2
    assert [proof.name for proof in found.proofs] == ["restarted"]


def test_without_a_part_nothing_happens():
    deployment = Pretended()
    with Restarting(deployment, "", 0.0) as restarting:  # type: ignore[arg-type]
        pass
    assert restarting.result() is None
    assert deployment.asked == []


def test_a_load_that_ends_before_is_said_and_nothing_is_restarted_behind_it():
    deployment = Pretended()
    with Restarting(deployment, "app", 3600.0) as restarting:  # type: ignore[arg-type]
        pass
    with refused(TestbedError):
        restarting.result()
    assert deployment.asked == []


def test_what_it_fails_with_reaches_whoever_waits():
    deployment = Pretended(error=TestbedError("app: nothing listens"))
    with Restarting(deployment, "app", 0.0) as restarting:  # type: ignore[arg-type]
        wait_for(lambda: deployment.asked)
    with refused(TestbedError):
        restarting.result()


def test_an_interruption_passes_and_leaves_no_thread():
    deployment = Pretended()
    with pytest.raises(KeyboardInterrupt), Restarting(deployment, "app", 3600.0):  # type: ignore[arg-type]
        raise KeyboardInterrupt
    assert not [one for one in threading.enumerate() if one.name.startswith("restart")]
    assert deployment.asked == []
