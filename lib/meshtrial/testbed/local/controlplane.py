"""The project's own control plane (``xds-server``): start it, change its configuration, wait until proxies have it.

It configures the sidecars of the three tiers and of ``xds`` over gRPC, so that the cost of configuration is measured.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from meshtrial import native
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.envoy.keys import Identity
from meshtrial.errors import TestbedError
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.fleet import Fleet, host_port
from meshtrial.testbed.local.sockets import Endpoint

UNUSED_ENDPOINTS = 2  # of each unused service
_PATIENCE_S = 2.0
_PUSH_S = 60.0


class ControlPlane:
    """The admin interface of ``xds-server``."""

    def __init__(self, admin: Endpoint) -> None:
        self._admin = admin

    def ask(self, path: str, method: str = "GET", body: Json | list[Json] | None = None) -> Json:
        """Send one request and return the JSON answer; TestbedError with the control plane's message if it refuses."""
        return wire.ask_json("control plane", self._admin, path, method, body, _PUSH_S + 10)

    def stats(self) -> Json:
        """Return the control plane's counters."""
        return self.ask("/stats")

    def wait_configured(self, check: Callable[[], None], timeout_s: float) -> None:
        """Wait until every proxy has acknowledged its first configuration.

        ``check`` is called in between and raises if waiting is pointless, for instance because a proxy has ended.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            report = self.ask(f"/converged?version=1&wait={_PATIENCE_S:g}s")
            check()
            if report["converged"]:
                return
            refused = self.stats()["last_nack"]
            if refused:
                raise TestbedError(f"sidecar {refused['node']} refused its configuration: {refused['message']}")
            if time.monotonic() > deadline:
                raise TestbedError(
                    f"{report['acked']} of {report['awaited']} sidecars were configured within {timeout_s:g} s: "
                    "the machine is too small or too busy for this size"
                )

    def change(self, path: str, body: Json | list[Json] | None = None) -> float:
        """Apply a change; return when the control plane took it, in seconds since 1970 by this machine's clock."""
        return float(self.ask(path, "PUT", body)["taken_unix_s"])

    def push(self, node: Json) -> dict[str, float]:
        """Add an endpoint and wait until every proxy concerned has acknowledged it; return how it reached them.

        That is the number of ``proxies``, the seconds until the first, half and all of them had acknowledged it, and
        the ``bytes`` sent to all of them together.
        """
        before = int(self.stats()["bytes_pushed"])
        version = self.ask("/endpoints", "POST", node)["version"]
        report = self.ask(f"/converged?version={version}&wait={_PUSH_S:g}s")
        if not report["converged"]:
            raise TestbedError(
                f"an added endpoint reached {report['acked']} of {report['awaited']} sidecars within {_PUSH_S:g} s"
            )
        sent = {"proxies": int(report["acked"]), "bytes": int(self.stats()["bytes_pushed"]) - before}
        times = {"first_s": "first_s", "median_s": "median_s", "last_s": "converged_s"}
        return sent | {name: float(report[reported] or 0.0) for name, reported in times.items()}


def start(fleet: Fleet, topology: Json, *more: str) -> tuple[ControlPlane, Path]:
    """Start ``xds-server``; return its admin interface and the folder that holds its proxies' bootstraps.

    ``topology`` has the form that ``lib/native/xds-server/topology.go`` describes; ``more`` are further arguments.
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
    plane.stats()  # the server listens early, but answers only when all bootstraps are written
    return plane, bootstraps


def role(identity: Identity, calls: str, **more: bool) -> Json:
    """Return a role for the topology file: the identity of its proxies, and the role that they call."""
    return {
        "spiffe": identity.spiffe,
        "certificate": str(identity.certificate),
        "key": str(identity.key),
        "authority": str(identity.authority),
        "calls": calls,
        **more,
    }


def prove_known(known: Mapping[str, tuple[Endpoint, int]], phase: str) -> list[Proof]:
    """Prove by the number of its clusters that each sidecar knows exactly the services that it should.

    ``known`` maps a sidecar's name to its admin address and the expected number of clusters.
    """
    proofs = []
    for name, (admin, clusters) in known.items():
        active = sum(Proxy(name, admin).stats(r"^cluster_manager\.active_clusters$").values())
        proofs.append(
            Proof(f"services known to {name}", phase, active == clusters, f"{clusters} clusters", str(active))
        )
    return proofs
