"""Talking to the control plane: when all are configured, what it pushed, how long one more endpoint takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from meshtrial.errors import TestbedError
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.wire import Json

_PATIENCE_S = 2.0
_PUSH_S = 60.0


@dataclass(frozen=True)
class Push:
    """One endpoint added."""

    proxies: int  # how many it concerned
    first_s: float  # until the first of them had acknowledged it, half of them, all
    median_s: float
    last_s: float
    bytes: int  # pushed for it, to all of them together


class ControlPlane:
    """The admin interface of ``xds-server``."""

    def __init__(self, admin: tuple[str, int]) -> None:
        self._admin = admin

    def ask(self, path: str, method: str = "GET", body: Json | list[Json] | None = None) -> Json:
        """One request; TestbedError with what it said when it refused."""
        return wire.ask_json("control plane", self._admin, path, method, body, _PUSH_S + 10)

    def stats(self) -> Json:
        """Its counters."""
        return self.ask("/stats")

    def wait_configured(self, check: Callable[[], None], timeout_s: float) -> Json:
        """Wait until every proxy has acknowledged its first configuration; ``check`` raises when that is no use."""
        deadline = time.monotonic() + timeout_s
        while True:
            report = self.ask(f"/converged?version=1&wait={_PATIENCE_S:g}s")
            check()
            if report["converged"]:
                return report
            refused = self.stats()["last_nack"]
            if refused:
                raise TestbedError(f"sidecar {refused['node']} refused its configuration: {refused['message']}")
            if time.monotonic() > deadline:
                raise TestbedError(
                    f"{report['acked']} of {report['awaited']} sidecars were configured within {timeout_s:g} s: "
                    "the machine is too small or too busy for this size"
                )

    def change(self, path: str, body: Json | list[Json] | None = None) -> float:
        """Change something; when it was taken, in seconds since 1970 by the clock of this machine."""
        return float(self.ask(path, "PUT", body)["taken_unix_s"])

    def push(self, node: Json) -> Push:
        """Add an endpoint and wait until it has reached everybody."""
        before = int(self.stats()["bytes_pushed"])
        version = self.ask("/endpoints", "POST", node)["version"]
        report = self.ask(f"/converged?version={version}&wait={_PUSH_S:g}s")
        if not report["converged"]:
            raise TestbedError(
                f"an added endpoint reached {report['acked']} of {report['awaited']} sidecars within {_PUSH_S:g} s"
            )
        pushed = int(self.stats()["bytes_pushed"]) - before
        first, median, last = (float(report[name] or 0.0) for name in ("first_s", "median_s", "converged_s"))
        return Push(int(report["acked"]), first, median, last, pushed)
