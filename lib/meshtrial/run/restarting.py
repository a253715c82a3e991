"""A part of a deployment restarted at a known moment of its load."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from meshtrial.errors import TestbedError
from meshtrial.records.schema import Proof
from meshtrial.testbed.base import Deployment


@dataclass(frozen=True)
class Restarted:
    """A restart that happened, by this machine's clock."""

    began_unix_s: float  # asked for
    ended_unix_s: float  # serving again
    proofs: tuple[Proof, ...]


class Restarting:
    """Restarts a part ``at_s`` seconds after it is entered; nothing where ``part`` is empty.

    Left early (the load ended, or was interrupted), a restart that has not begun does not begin, and one that has is
    waited for: what it started is then known to the deployment, which stops it.
    """

    def __init__(self, deployment: Deployment, part: str, at_s: float) -> None:
        self._deployment = deployment
        self._part = part
        self._at_s = at_s
        self._left = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="restart")
        self._future: Future[Restarted | None] | None = None

    def __enter__(self) -> Restarting:
        if self._part:
            self._future = self._pool.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._pool.shutdown()

    def result(self) -> Restarted | None:
        """What happened, once it was left, or what it failed with; None where nothing was to be restarted."""
        if self._future is None:
            return None
        restarted = self._future.result()
        if restarted is None:
            raise TestbedError(f"restart of {self._part}: the load ended before it began; lengthen duration_s")
        return restarted

    def _run(self) -> Restarted | None:
        if self._left.wait(self._at_s):
            return None
        began = time.time()
        proofs = self._deployment.restart(self._part)
        return Restarted(began, time.time(), proofs)
