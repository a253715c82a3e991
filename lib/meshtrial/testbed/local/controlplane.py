"""The control plane of our own (``xds-server``): started, told of changes, asked when all are configured.

It configures the sidecars of the three tiers and of ``xds`` over gRPC, so the cost of configuration is measured too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshtrial import native
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.envoy.pki import Identity
from meshtrial.errors import TestbedError
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.fleet import Fleet, host_port
from meshtrial.testbed.local.sockets import Endpoint

UNUSED_ENDPOINTS = 2  # of each service that nobody calls
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

    def __init__(self, admin: Endpoint) -> None:
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


def start(fleet: Fleet, topology: Json, *more: str) -> tuple[ControlPlane, Path]:
    """Start it with its file and more arguments; its interface, and the folder with the bootstraps of its sidecars.

    The form of the file is said in ``lib/native/xds-server/topology.go``.
    """
    file, bootstraps = fleet.folder / "topology.json", fleet.folder / "bootstraps"
    file.write_text(json.dumps(topology))
    for tool in ("xds-server", "envoy"):
        fleet.note_version(tool)
    discovery, admin = fleet.new_endpoint(), fleet.new_endpoint()
    argv = [str(native.find("xds-server")), "-topology", str(file), "-bootstraps", str(bootstraps), *more]
    argv += ["-grpc", host_port(discovery), "-admin", host_port(admin)]
    fleet.start("control-plane", "control plane", argv, [discovery, admin])
    plane = ControlPlane(admin)
    plane.stats()  # it listens early and answers late: when all bootstraps are written
    return plane, bootstraps


def role(identity: Identity, calls: str, **more: bool) -> Json:
    """A role of its file: who a proxy of it is, and what that calls."""
    return {
        "spiffe": identity.spiffe,
        "certificate": str(identity.certificate),
        "key": str(identity.key),
        "authority": str(identity.authority),
        "calls": calls,
        **more,
    }


def prove_known(known: Mapping[str, tuple[Endpoint, int]], phase: str) -> list[Proof]:
    """Sidecars know the services that they should, by the number of their clusters; each by its admin interface."""
    proofs = []
    for name, (admin, clusters) in known.items():
        seen = sum(Proxy(name, admin).stats(r"^cluster_manager\.active_clusters$").values())
        proofs.append(Proof(f"services known to {name}", phase, seen == clusters, f"{clusters} clusters", str(seen)))
    return proofs
