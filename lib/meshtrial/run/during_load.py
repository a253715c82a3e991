"""What happens to a deployment while its generators run: looks once a second, a restart, changes.

Each is entered with the load and left when it ends, however that is: what has not begun then does not begin, and what
has begun is waited for, so that the deployment knows what it has to stop.
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
from meshtrial.design.study import Load
from meshtrial.errors import MeshtrialError, TestbedError
from meshtrial.load.obeyed import AppliedChange
from meshtrial.records import series
from meshtrial.records.schema import Proof
from meshtrial.testbed.base import Deployment

EVERY_S = 1.0


class Sampler:
    """Samples a deployment from the moment that it is entered until it is left.

    Where a testbed has only slow readings its samples are empty, and so is the table.
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
        """Columns :data:`meshtrial.records.series.COLUMNS`."""
        return series.of_samples(self._samples, self._slice)

    def _run(self) -> None:
        turn = 1
        # By the clock and not by the last look, so that looks do not drift away from the seconds.
        while not self._done.wait(max(0.0, self._began + turn * self._every_s - self._clock())):
            self._take()
            turn += 1

    def _take(self) -> None:
        # A component that is gone fails its proof and its run; the course ends here.
        with suppress(MeshtrialError, OSError):
            at_s = self._clock() - self._began
            for component, (cpu_s, memory_bytes) in self._deployment.sample().items():
                self._samples[component].append(series.UsageSample(at_s, cpu_s, memory_bytes))


class _Intervention:
    """Something that is done to a deployment in threads of its own."""

    def __init__(self, deployment: Deployment, threads: int) -> None:
        self._deployment = deployment
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=type(self).__name__)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()


@dataclass(frozen=True)
class Restarted:
    """A restart that happened, by this machine's clock."""

    began_unix_s: float  # asked for
    ended_unix_s: float  # serving again
    proofs: tuple[Proof, ...]


class Restarting(_Intervention):
    """Restarts a part ``at_s`` seconds after it is entered; nothing where ``part`` is empty."""

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
        """What happened, once it was left, or what it failed with; None where nothing was to be restarted."""
        if self._future is None:
            return None
        restarted = self._future.result()
        if restarted is None:
            raise TestbedError(f"restart of {self._part}: the load ended before it began; lengthen duration_s")
        return restarted

    def _run(self) -> Restarted | None:
        if self._over.wait(self._at_s):
            return None
        began = time.time()
        proofs = self._deployment.restart(self._part)
        return Restarted(began, time.time(), proofs)


class Changing(_Intervention):
    """Makes a load's changes one after another, and others besides that no request meets; none where it has none.

    Every change has its turn in every treatment: what a deployment has not got leaves its turn empty.
    """

    def __init__(self, deployment: Deployment, load: Load) -> None:
        super().__init__(deployment, threads=2)
        self._load = load
        self._changes: Future[tuple[AppliedChange, ...]] | None = None
        self._churn: Future[int] | None = None

    def __enter__(self) -> Self:
        if self._load.changes:
            # Asked before the load begins: the turns are its own.
            self._changes = self._pool.submit(self._make, frozenset(self._deployment.changes()))
        if self._load.churn_per_min:
            self._churn = self._pool.submit(self._disturb)
        return self

    def result(self) -> tuple[AppliedChange, ...]:
        """What was changed, once it was left; or what failed."""
        if self._churn is not None:
            made, wanted = self._churn.result(), self._load.churn_per_min / 60 * self._load.duration_s
            if made < wanted / 2:
                raise TestbedError(
                    f"churn_per_min = {self._load.churn_per_min:g}: only {made} of {wanted:.0f} other changes were "
                    "taken in the run's time; ask for fewer"
                )
        return () if self._changes is None else self._changes.result()

    def _make(self, known: Collection[str]) -> tuple[AppliedChange, ...]:
        load, made, began = self._load, [], time.monotonic()
        for number, step in enumerate(steps(load.changes, load.change_cycles), start=1):
            if self._over.wait(max(0.0, began + number * load.change_every_s - time.monotonic())):
                raise TestbedError(f"change {step.name}: the load ended before it was made; lengthen change_every_s")
            if step.change in known:
                made.append(AppliedChange(step, self._deployment.change(step.change, step.on)))
        return tuple(made)

    def _disturb(self) -> int:
        """How many were made, by the clock, so that slow ones are made up for."""
        began, number = time.monotonic(), 0
        while not self._over.wait(max(0.0, began + number * 60 / self._load.churn_per_min - time.monotonic())):
            self._deployment.churn(number)
            number += 1
        return number
