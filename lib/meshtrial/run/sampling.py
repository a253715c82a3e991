"""A look at every component once a second while the generators run."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

import polars as pl

from meshtrial.errors import MeshtrialError
from meshtrial.records import series
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

    def __enter__(self) -> Sampler:
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
