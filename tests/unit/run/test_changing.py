"""Changes at their moments of the load, others beside them, and nothing behind its end."""

from __future__ import annotations

import threading
import time

import pytest
from refused import refused
from waiting import wait_for

from meshtrial.design.study import Load
from meshtrial.errors import TestbedError
from meshtrial.load.obeyed import Taken
from meshtrial.run.changing import Changing

EVERY_S = 0.05


class Pretended:
    def __init__(self, *has: str, error: Exception | None = None) -> None:
        self.has, self.error = has, error
        self.asked: list[tuple[str, bool, float]] = []
        self.churned: list[int] = []

    def changes(self) -> tuple[str, ...]:
        return self.has

    def change(self, change: str, on: bool) -> Taken:
        self.asked.append((change, on, time.monotonic()))
        if self.error is not None:
            raise self.error
        return Taken(time.time(), 0.001)

    def churn(self, number: int) -> None:
        self.churned.append(number)


def load(*changes: str, cycles: int = 1, every_s: float = EVERY_S, churn: float = 0.0) -> Load:
    timing = {"change_every_s": every_s, "change_cycles": cycles} if changes else {}
    return Load(100, 1, 1, changes=changes, churn_per_min=churn, **timing)


def test_each_change_has_its_turn_and_what_there_is_not_leaves_its_empty():
    deployment, entered = Pretended("weight"), time.monotonic()
    with Changing(deployment, load("authorization", "weight", cycles=2)) as changing:  # type: ignore[arg-type]
        wait_for(lambda: len(deployment.asked) == 4)
    assert [(change, on) for change, on, _ in deployment.asked] == 2 * [("weight", True), ("weight", False)]
    # The turns of two authorizations pass before the first and in the middle.
    for turn, (_, _, at) in zip((3, 4, 7, 8), deployment.asked, strict=True):
        assert at - entered >= turn * EVERY_S
    assert [one.step.name for one in changing.result()] == ["weight"] * 4


def test_other_changes_are_made_at_their_rate_all_the_while():
    deployment = Pretended()
    with Changing(deployment, load(churn=6000)) as changing:  # type: ignore[arg-type]
        wait_for(lambda: len(deployment.churned) >= 60)
    assert deployment.churned[:60] == list(range(60))
    assert changing.result() == ()


def test_other_changes_that_are_not_kept_up_are_said():
    with Changing(Pretended(), load(churn=6000)) as changing:  # type: ignore[arg-type]
        pass
    with refused(TestbedError, names=["churn_per_min", 6000]):
        changing.result()


def test_a_load_that_ends_before_is_said_and_nothing_is_changed_behind_it():
    deployment = Pretended("weight")
    with Changing(deployment, load("weight", every_s=3600)) as changing:  # type: ignore[arg-type]
        pass
    with refused(TestbedError):
        changing.result()
    assert deployment.asked == []


def test_what_it_fails_with_reaches_whoever_waits():
    deployment = Pretended("weight", error=TestbedError("control plane: does not answer"))
    with Changing(deployment, load("weight")) as changing:  # type: ignore[arg-type]
        wait_for(lambda: deployment.asked)
    with refused(TestbedError):
        changing.result()


def test_an_interruption_passes_and_leaves_no_thread():
    deployment = Pretended("weight")
    asked = load("weight", every_s=3600, churn=1)
    with pytest.raises(KeyboardInterrupt), Changing(deployment, asked):  # type: ignore[arg-type]
        raise KeyboardInterrupt
    assert not [one for one in threading.enumerate() if one.name.startswith("change")]
