"""One deployment of the three tiers: applications, control plane, sidecars, and the load generator's fan-out."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from meshtrial import native
from meshtrial.design.study import Load, Treatment
from meshtrial.errors import UsageError
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.testbed.local import proc
from meshtrial.testbed.local.deployment import LocalDeployment
from meshtrial.testbed.local.scaleout import app as tiers
from meshtrial.testbed.local.scaleout.controlplane import ControlPlane
from meshtrial.testbed.local.scaleout.fanout import fan_out
from meshtrial.testbed.local.scaleout.fleet import Fleet
from meshtrial.testbed.local.scaleout.proofs import Identities, prove_direct, prove_hops, prove_traffic
from meshtrial.testbed.local.scaleout.sockets import wait_all_listening
from meshtrial.testbed.local.scaleout.topology import APPLICATION, OUTBOUND, TIERS, Layout, free_layout, topology
from meshtrial.testbed.local.scaleout.usage import fleet_memory, fleet_usage

HOLD_MS, SPREAD = 100.0, 2
_PUSHES = 3
_START_S = 60.0
_CONFIGURE_S = 240.0


def has_sidecars(treatment: Treatment) -> bool:
    """Whether a treatment puts a sidecar beside every endpoint; checks that it is one of this application's.

    Raises
    ------
    UsageError
        For any other data plane or feature.
    """
    if treatment.dataplane == "none" and not treatment.features:
        return False
    if treatment.dataplane == "sidecar" and treatment.features in (("mtls",), ("mtls", "scoped")):
        return True
    raise UsageError(
        f"treatment {treatment.name!r}: the app {tiers.APP} has none, sidecar+mtls (every proxy knows every endpoint) "
        "and sidecar+mtls+scoped (a proxy knows what it calls)"
    )


class TiersDeployment(LocalDeployment):
    """What one run of the scale-out study stands on; see the package for the path of a request."""

    def __init__(self, treatment: Treatment, load: Load, app: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(treatment, load, app, options)
        self.hold_s = float(self.options.get("hold_ms", HOLD_MS)) / 1e3
        self.spread = int(self.options.get("spread", SPREAD))
        self.layout = Layout(load.replicas, "127.0")
        self.fleet: Fleet | None = None
        self._control: ControlPlane | None = None
        self._reads = 0

    def build(self) -> None:
        """Start everything, in the order in which it is needed."""
        sidecars = has_sidecars(self.treatment)
        self.layout = free_layout(self.load.replicas, sidecars)
        self.measured |= {
            "hold_s": 2 * self.hold_s,
            "endpoints": len(TIERS) * self.layout.replicas,
            "proxies": len(TIERS) * self.layout.replicas if sidecars else 0,
            "spread": self.spread if sidecars else 0,
        }
        self._start_apps(sidecars)
        listeners = self.layout.all("client", APPLICATION)
        if sidecars:
            self._start_mesh()
            entries = self.layout.all("load-generator", OUTBOUND)
        else:
            entries = listeners
            pid = self.child("client-app").pid
            self.provers.append(lambda phase, _: prove_direct(pid, listeners, phase))
        entry = self.new_endpoint()
        self.spawn_proxy(fan_out(self.new_endpoint(), entry, entries), role="load generator")
        self.set_target([entry])

    def _start_apps(self, sidecars: bool) -> None:
        self.versions.update(self.app.versions())
        replicas = self.layout.replicas
        server, client = self.layout.own("server"), self.layout.own("client")
        self.spawn("server-app", "app", tiers.server_command(server), [server])
        onward = self.layout.all("client", OUTBOUND) if sidecars else [server] * replicas
        listeners = self.layout.all("client", APPLICATION)
        argv = tiers.client_command(client, listeners, onward, self.hold_s * 1e3)
        child = self.spawn("client-app", "app", argv, [client])
        # fortio goes on when it cannot listen at one of many addresses, so each of them is looked at.
        wait_all_listening("clients", listeners, lambda: None, _START_S, child.pid)

    def _start_mesh(self) -> None:
        identities = Identities(self.folder / "keys")
        spec = self.folder / "topology.json"
        scoped = self.treatment.has("scoped")
        spec.write_text(json.dumps(topology(self.layout, identities.tiers, scoped=scoped, spread=self.spread)))
        self.note_version("xds-server")
        self.note_version("envoy")
        discovery, admin, bootstraps = self.new_endpoint(), self.new_endpoint(), self.folder / "bootstraps"
        argv = (
            *(str(native.find("xds-server")), "-topology", str(spec), "-bootstraps", str(bootstraps)),
            *("-grpc", "{}:{}".format(*discovery), "-admin", "{}:{}".format(*admin)),
        )
        control = self.spawn("control-plane", "control plane", argv, [discovery, admin])
        plane = self._control = ControlPlane(admin)
        plane.stats()  # it listens early and answers late: when all bootstraps are written
        began = time.monotonic()
        names = [node["id"] for node in self.layout.nodes()]
        fleet = self.fleet = Fleet(names, bootstraps, self.folder)
        self.children.append(fleet.launcher)
        self.closers.append(fleet.stop)
        fleet.wait_started(_CONFIGURE_S)
        spawned_s = time.monotonic() - began
        plane.wait_configured(fleet.require_alive, _CONFIGURE_S)
        wait_all_listening("sidecars", self.layout.proxy_listeners(), fleet.require_alive, _START_S)
        self._note_start(plane.stats(), control.pid, fleet, spawned_s, time.monotonic() - began)
        self.provers.append(lambda phase, _: prove_hops(identities, self.layout, phase))

    def _note_start(
        self, stats: Mapping[str, Any], control_pid: int, fleet: Fleet, spawned_s: float, configured_s: float
    ) -> None:
        plane = proc.usage(proc.Watched("control-plane", "control plane", (control_pid,)))
        self.measured["start"] = {
            "forked": fleet.forked,
            "spawned_s": spawned_s,
            "configured_s": configured_s,
            "proxies_cpu_s": fleet_usage("sidecars", "data plane", fleet.pids).cpu_s,
            "control_plane_cpu_s": plane.cpu_s,
            "bytes_by_type": stats["by_type"],
            "pushes": stats["pushes"],
        }
        self.measured["responses"] = {
            "config_time_s": configured_s,
            "config_cpu_s": plane.cpu_s,
            "config_bytes": float(stats["bytes_pushed"]),
        }

    def prove(self, phase: str, requests: int) -> tuple[Proof, ...]:
        """Proofs of the treatment; afterwards that every endpoint was reached."""
        found = super().prove(phase, requests)
        if self.fleet is not None and phase == "after":
            found += tuple(prove_traffic(self.layout, requests))
        return found

    def snapshot(self) -> Mapping[str, ComponentUsage]:
        """Counters of every component; the sidecars by tier, their memory from the second reading on."""
        found = dict(super().snapshot())
        self._reads += 1
        if self.fleet is not None:
            n, pids = self.layout.replicas, self.fleet.pids
            tiers_pids = {f"{tier} sidecars": pids[i * n : (i + 1) * n] for i, tier in enumerate(TIERS)}
            # All CPU before any memory, which takes longer and would stretch the later ones' windows.
            found |= {name: fleet_usage(name, "data plane", of) for name, of in tiers_pids.items()}
            if self._reads > 1:
                for name, of in tiers_pids.items():
                    together, largest = fleet_memory(of)
                    found[name] = replace(found[name], pss_bytes=together, largest_bytes=largest)
        return found

    def sample(self) -> Mapping[str, tuple[float, int | None]]:
        """Of the sidecars too, tier by tier."""
        found = dict(super().sample())
        if self.fleet is not None:
            n, pids = self.layout.replicas, self.fleet.pids
            found |= {f"{tier} sidecars": proc.sample(pids[i * n : (i + 1) * n]) for i, tier in enumerate(TIERS)}
        return found

    def extra(self) -> Mapping[str, Any]:
        """What was measured besides; the pushes are made now, when the load is over."""
        if self._control is not None:
            pushes = [self._control.push(self.layout.added(number)) for number in range(1, _PUSHES + 1)]
            self.measured["pushes"] = [asdict(push) for push in pushes]
            responses = self.measured["responses"]
            responses["push_time_s"] = statistics.median(push.last_s for push in pushes)
            responses["push_bytes"] = float(statistics.median(push.bytes for push in pushes))
        return self.measured


def deploy(treatment: Treatment, load: Load, app: str, options: Mapping[str, Any]) -> TiersDeployment:
    """Make a fresh deployment; on failure nothing of it is left."""
    if app != tiers.APP or treatment.app not in ("", tiers.APP):
        raise UsageError(f"replicas = {load.replicas} with app = {app!r}: only the app {tiers.APP} has several")
    deployment = TiersDeployment(treatment, load, app, options)
    deployment.stand_up(TiersDeployment.build)
    return deployment
