"""What happens to a deployment under load: sampling once per second, a restart, changes.

Each is a context manager around the load. When the load ends, for whatever reason, nothing further is started, and
what was started is waited for, so that the deployment can be stopped completely.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import polars as pl

from meshtrial.design.changes import steps
from meshtrial.design.load import ChangesUnderLoad, Load
from meshtrial.errors import MeshtrialError, TestbedError
from meshtrial.load.propagation import AppliedChange
from meshtrial.records import series
from meshtrial.records.schema import Proof
from meshtrial.testbed.base import Deployment

EVERY_S = 1.0


class Sampler:
    """Samples CPU and memory of a deployment while it is entered.

    If a testbed's readings are too slow for that, its samples and the table are empty.
    """

    def __init__(
        self,
        deployment: Deployment,
        slice_index: int = 0,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deployment = deployment
        self._clock = clock
        self._slice = slice_index
        self._every_s = every_s
        self._samples: dict[str, list[series.UsageSample]] = defaultdict(list)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._began = 0.0

    def __enter__(self) -> Self:
        self._began = self._clock()
        self._take()
        if self._samples:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=5)

    def table(self) -> pl.DataFrame:
        """Return the samples, with columns :data:`meshtrial.records.series.COLUMNS`."""
        return series.of_samples(self._samples, self._slice)

    def _run(self) -> None:
        turn = 1
        # Wait until a multiple of the interval, so that samples do not drift.
        while not self._done.wait(max(0.0, self._began + turn * self._every_s - self._clock())):
            self._take()
            turn += 1

    def _take(self) -> None:
        # A component that has ended fails its own check, so sampling just stops here.
        with suppress(MeshtrialError, OSError):
            at_s = self._clock() - self._began
            for component, (cpu_s, memory_bytes) in self._deployment.sample().items():
                self._samples[component].append(series.UsageSample(at_s, cpu_s, memory_bytes))


class _Intervention:
    """Something done to a deployment in separate threads."""

    def __init__(self, deployment: Deployment, threads: int) -> None:
        self._deployment = deployment
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=type(self).__name__)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()


@dataclass(frozen=True)
class Restarted:
    """A restart, with times of this machine's clock."""

    began_unix_s: float  # when it was requested
    ended_unix_s: float  # when it served again
    proofs: tuple[Proof, ...]


class Restarting(_Intervention):
    """Restarts a part ``at_s`` seconds after it is entered, unless ``part`` is empty."""

    def __init__(self, deployment: Deployment, part: str, at_s: float) -> None:
        super().__init__(deployment, threads=1)
        self._part = part
        self._at_s = at_s
        self._future: Future[Restarted | None] | None = None

    def __enter__(self) -> Self:
        if self._part:
            self._future = self._pool.submit(self._run)
        return self

    def result(self) -> Restarted | None:
        """Return the restart, or raise its error, after the load; None if nothing was to be restarted."""
        if self._future is None:
            return None
        restarted = self._future.result()
        if restarted is None:
            raise TestbedError(f"restart of {self._part}: the load ended before the restart; lengthen duration_s")
        return restarted

    def _run(self) -> Restarted | None:
        if self._over.wait(self._at_s):
            return None
        began = time.time()
        proofs = self._deployment.restart(self._part)
        return Restarted(began, time.time(), proofs)


class Changing(_Intervention):
    """Makes a load's changes one after another, and background changes that no request meets.

    Every change has its time slot in every treatment. The slot stays empty if a deployment does not support the change.
    """

    def __init__(self, deployment: Deployment, load: Load) -> None:
        super().__init__(deployment, threads=2)
        self._load = load if isinstance(load, ChangesUnderLoad) else None
        self._changes: Future[tuple[AppliedChange, ...]] | None = None
        self._churn: Future[int] | None = None

    def __enter__(self) -> Self:
        load = self._load
        if load is not None and load.changes:
            # Asked before the load begins, so that this does not delay the first change.
            self._changes = self._pool.submit(self._make, load, frozenset(self._deployment.changes()))
        if load is not None and load.churn_per_min:
            self._churn = self._pool.submit(self._disturb, load)
        return self

    def result(self) -> tuple[AppliedChange, ...]:
        """Return the changes, or raise the error of one, after the load."""
        if self._churn is not None and (load := self._load) is not None:
            made, expected = self._churn.result(), load.churn_per_min / 60 * load.duration_s
            if made < expected / 2:
                raise TestbedError(
                    f"churn_per_min = {load.churn_per_min:g}: only {made} of {expected:.0f} background changes "
                    "were made during the run; set a lower number"
                )
        return () if self._changes is None else self._changes.result()

    def _make(self, load: ChangesUnderLoad, known: Collection[str]) -> tuple[AppliedChange, ...]:
        made, began = [], time.monotonic()
        for number, step in enumerate(steps(load.changes, load.change_cycles), start=1):
            if self._over.wait(max(0.0, began + number * load.change_every_s - time.monotonic())):
                raise TestbedError(f"change {step.name}: the load ended before the change; lengthen change_every_s")
            if step.change in known:
                made.append(AppliedChange(step, self._deployment.change(step.change, step.on)))
        return tuple(made)

    def _disturb(self, load: ChangesUnderLoad) -> int:
        """Make background changes on a fixed schedule, catching up after slow ones; return their number."""
        began, number = time.monotonic(), 0
        while not self._over.wait(max(0.0, began + number * 60 / load.churn_per_min - time.monotonic())):
            self._deployment.churn(number)
            number += 1
        return number
