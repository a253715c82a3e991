"""Changes of a deployment at known moments of its load, and others besides that no request meets."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

from meshtrial.design.changes import steps
from meshtrial.design.study import Load
from meshtrial.errors import TestbedError
from meshtrial.load.obeyed import Made
from meshtrial.testbed.base import Deployment


class Changing:
    """Makes a load's changes one after another while it is entered; nothing where the load has none.

    Every change has its turn in every treatment: what a deployment has not got leaves its turn empty. Left early (the
    load ended, or was interrupted), what has not begun does not begin.
    """

    def __init__(self, deployment: Deployment, load: Load) -> None:
        self._deployment = deployment
        self._load = load
        self._left = threading.Event()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="change")
        self._changes: Future[tuple[Made, ...]] | None = None
        self._churn: Future[int] | None = None

    def __enter__(self) -> Changing:
        if self._load.changes:
            # Asked before the load begins: the turns are its own.
            self._changes = self._pool.submit(self._make, frozenset(self._deployment.changes()))
        if self._load.churn_per_min:
            self._churn = self._pool.submit(self._disturb)
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._pool.shutdown()

    def result(self) -> tuple[Made, ...]:
        """What was changed, once it was left; or what failed."""
        if self._churn is not None:
            made, wanted = self._churn.result(), self._load.churn_per_min / 60 * self._load.duration_s
            if made < wanted / 2:
                raise TestbedError(
                    f"churn_per_min = {self._load.churn_per_min:g}: only {made} of {wanted:.0f} other changes were "
                    "taken in the run's time; ask for fewer"
                )
        return () if self._changes is None else self._changes.result()

    def _make(self, known: Collection[str]) -> tuple[Made, ...]:
        load, made, began = self._load, [], time.monotonic()
        for number, step in enumerate(steps(load.changes, load.change_cycles), start=1):
            if self._left.wait(max(0.0, began + number * load.change_every_s - time.monotonic())):
                raise TestbedError(f"change {step.name}: the load ended before it was made; lengthen change_every_s")
            if step.change in known:
                made.append(Made(step, self._deployment.change(step.change, step.on)))
        return tuple(made)

    def _disturb(self) -> int:
        """How many were made, by the clock, so that slow ones are made up for."""
        began, number = time.monotonic(), 0
        while not self._left.wait(max(0.0, began + number * 60 / self._load.churn_per_min - time.monotonic())):
            self._deployment.churn(number)
            number += 1
        return number
