"""One deployment of the three tiers: applications, control plane, sidecars, and the load generator's fan-out."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from meshtrial import native
from meshtrial.design.study import Load, Treatment
from meshtrial.errors import UsageError
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.testbed.base import Facts
from meshtrial.testbed.local import proc
from meshtrial.testbed.local.apps import fortio_server
from meshtrial.testbed.local.deployment import LocalDeployment
from meshtrial.testbed.local.scaleout.app import APP, client_command, fan_out
from meshtrial.testbed.local.scaleout.controlplane import ControlPlane
from meshtrial.testbed.local.scaleout.fleet import Fleet
from meshtrial.testbed.local.scaleout.proofs import Identities, prove_direct, prove_hops, prove_known, prove_traffic
from meshtrial.testbed.local.scaleout.topology import APPLICATION, OUTBOUND, TIERS, Layout, free_layout, topology
from meshtrial.testbed.local.sockets import wait_listening

HOLD_MS, SPREAD = 100.0, 2
_PUSHES = 3
_START_S = 60.0
_CONFIGURE_S = 240.0


def has_sidecars(treatment: Treatment) -> bool:
    """Whether a treatment puts a sidecar beside every endpoint; UsageError for one that this application has not."""
    if treatment.dataplane == "none" and not treatment.features:
        return False
    if treatment.dataplane == "sidecar" and treatment.features in (("mtls",), ("mtls", "scoped")):
        return True
    raise UsageError(
        f"treatment {treatment.name!r}: the app {APP} has none, sidecar+mtls (every proxy knows every endpoint) "
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
        self._sidecars: list[proc.Watched] = []  # a component a tier
        self._control: ControlPlane | None = None
        self._reads = 0

    def build(self) -> None:
        """Start everything, in the order in which it is needed."""
        sidecars = has_sidecars(self.treatment)
        self.layout = free_layout(self.load.replicas, sidecars)
        endpoints = len(TIERS) * self.layout.replicas
        notes = {"spread": self.spread if sidecars else 0}
        self.told = Facts(
            hold_s=2 * self.hold_s, endpoints=endpoints, proxies=endpoints if sidecars else 0, notes=notes
        )
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
        self.spawn("server-app", "app", fortio_server(*server), [server])
        onward = self.layout.all("client", OUTBOUND) if sidecars else [server] * replicas
        listeners = self.layout.all("client", APPLICATION)
        argv = client_command(client, listeners, onward, self.hold_s * 1e3)
        child = self.spawn("client-app", "app", argv, [client])
        # fortio goes on when it cannot listen at one of many addresses, so each of them is looked at.
        wait_listening(child, listeners, _START_S)

    def _start_mesh(self) -> None:
        identities = Identities(self.folder / "keys")
        spec = self.folder / "topology.json"
        scoped = self.treatment.has("scoped")
        unused = self.load.unused_services
        made = topology(self.layout, identities.tiers, scoped=scoped, spread=self.spread, unused=unused)
        spec.write_text(json.dumps(made))
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
        n = self.layout.replicas
        for first, tier in enumerate(TIERS):
            pids = fleet.pids[first * n : (first + 1) * n]
            self._sidecars.append(proc.Watched(f"{tier} sidecars", "data plane", pids))
        plane.wait_configured(fleet.require_alive, _CONFIGURE_S)
        wait_listening(fleet.launcher, self.layout.proxy_listeners(), _START_S, itself=False)
        self._note_start(plane.stats(), control.pid, fleet, spawned_s, time.monotonic() - began)
        self.provers.append(lambda phase, _: prove_hops(identities, self.layout, phase))
        if unused:
            self.provers.append(lambda phase, _: prove_known(self.layout, 0 if scoped else unused, phase))

    def _note_start(
        self, stats: Mapping[str, Any], control_pid: int, fleet: Fleet, spawned_s: float, configured_s: float
    ) -> None:
        plane = proc.counters(proc.Watched("control-plane", "control plane", (control_pid,)))
        proxies = proc.counters(proc.Watched("sidecars", "data plane", fleet.pids))
        self.told.notes["start"] = {
            "forked": fleet.forked,
            "spawned_s": spawned_s,
            "configured_s": configured_s,
            "proxies_cpu_s": proxies.cpu_s,
            "control_plane_cpu_s": plane.cpu_s,
            "bytes_by_type": stats["by_type"],
            "pushes": stats["pushes"],
        }
        self.told.responses = {
            "config_time_s": configured_s,
            "config_cpu_s": plane.cpu_s,
            "config_bytes": float(stats["bytes_pushed"]),
        }

    def prove(self, phase: str, requests: int) -> tuple[Proof, ...]:
        """Proofs of the treatment; afterwards that every endpoint was reached."""
        proofs = super().prove(phase, requests)
        if self.fleet is not None and phase == "after":
            proofs += tuple(prove_traffic(self.layout, requests))
        return proofs

    def snapshot(self) -> Mapping[str, ComponentUsage]:
        """Counters of every component; the sidecars by tier, their memory from the second reading on."""
        used = dict(super().snapshot())
        self._reads += 1
        # All CPU before any memory, which takes longer and would stretch the later ones' windows.
        used |= {tier.component: proc.counters(tier) for tier in self._sidecars}
        if self._reads > 1:
            used |= {t.component: proc.with_memory(used[t.component], t.pids) for t in self._sidecars}
        return used

    def sample(self) -> Mapping[str, tuple[float, int | None]]:
        """Of the sidecars too, tier by tier."""
        return {**super().sample(), **{tier.component: proc.sample(tier.pids) for tier in self._sidecars}}

    def facts(self) -> Facts:
        """What was measured besides; the pushes are made now, when the load is over."""
        if self._control is not None:
            pushes = [self._control.push(self.layout.added(number)) for number in range(1, _PUSHES + 1)]
            self.told.notes["pushes"] = [asdict(push) for push in pushes]
            self.told.responses["push_time_s"] = statistics.median(push.last_s for push in pushes)
            self.told.responses["push_bytes"] = float(statistics.median(push.bytes for push in pushes))
        return self.told


def deploy(treatment: Treatment, load: Load, app: str, options: Mapping[str, Any]) -> TiersDeployment:
    """Make a fresh deployment; on failure nothing of it is left."""
    if app != APP or treatment.app not in ("", APP):
        raise UsageError(f"replicas = {load.replicas} with app = {app!r}: only the app {APP} has several")
    deployment = TiersDeployment(treatment, load, app, options)
    deployment.stand_up(TiersDeployment.build)
    return deployment
