"""One treatment that stands in a namespace of its own, can be loaded, and goes again."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from meshtrial.design.study import Load, Treatment
from meshtrial.envoy.tokens import Tokens
from meshtrial.errors import TestbedError
from meshtrial.load.generators import GeneratorCall, GeneratorOutput, Target
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.testbed.kubernetes import (
    evidence,
    loadgen,
    meshversions,
    probing,
    proofs,
    pushes,
    rollouts,
    wait,
    waypoints,
)
from meshtrial.testbed.kubernetes.apply import Applier, clean_command, delete_namespace
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.execs import PodRef
from meshtrial.testbed.kubernetes.manifests import template
from meshtrial.testbed.kubernetes.meshdata import Mesh, Selector
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.pods import PART, autoscaling, label, lost, pod_ref, uid, versions
from meshtrial.testbed.kubernetes.resources import MEMORY_NOTE, Meter, Pods, container_names, parts_of
from meshtrial.testbed.kubernetes.workload import Rendered

PARTS = ("app", "load", "collector")
_LOGS_PER_COMPONENT = 5
_LOG_BYTES = 1 << 20


def restartable(mesh: Mesh | None, part: str) -> tuple[str, ...]:
    """Components whose pods a restart of a part replaces, as :class:`proofs.Subject` names them."""
    if part == "app":
        return ("app",)
    if mesh is None:
        return ()
    if part == "control-plane":
        return tuple(one.component for one in mesh.control_plane)
    return (*(one.component for one in mesh.agents), *(["waypoint"] if mesh.waypoints else []))


class KubernetesDeployment:
    """Implements :class:`meshtrial.testbed.base.Deployment`.

    Parameters
    ----------
    keep : bool
        Stay standing after ``close``; the testbed then removes it (``app_reinstall``).

    Attributes
    ----------
    installed_from : dict
        Versions of what its mesh was installed from, which no pod tells.
    """

    def __init__(
        self,
        cluster: Cluster,
        applier: Applier,
        options: KubernetesOptions,
        treatment: Treatment,
        load: Load,
        rendered: Rendered,
        mesh: Mesh | None,
        tokens: Tokens | None,
        probe: PodRef,
        keep: bool = False,
    ) -> None:
        self.cluster, self.applier, self.options = cluster, applier, options
        self.treatment, self.load, self.rendered, self.mesh = treatment, load, rendered, mesh
        self.target: Target = rendered.target
        self.installed_from: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self.keep = keep
        self.measured: dict[str, Any] = {}
        self._tokens, self._probe = tokens, probe
        self._subject: proofs.Subject | None = None
        self._meter: Meter | None = None
        self._pods: list[Json] = []
        self._mesh_pods: list[Json] = []
        self._replaced: set[str] = set()

    def stand_up(self) -> None:
        """Apply everything and wait until a request comes through; on failure nothing stays."""
        try:
            with evidence.kept(self.cluster, self._places):
                self._stand_up()
        except BaseException:
            with contextlib.suppress(TestbedError):
                self.remove()
            raise

    @property
    def _places(self) -> tuple[str, ...]:
        """Namespaces in which something of the treatment runs."""
        return (self.rendered.namespace, *(self.mesh.namespaces if self.mesh is not None else ()))

    def _stand_up(self) -> None:
        began = time.monotonic()
        rendered, name = self.rendered, self.rendered.namespace
        pushed = self._pushed()
        self.applier.namespace(name, rendered.namespace_labels, rendered.namespace_annotations)
        apps = [o for o in rendered.objects if o["kind"] == "Deployment" and label(template(o) or o, PART) == "app"]
        late = [*(o for o in rendered.objects if waypoints.is_late(o)), *apps]
        self.applier.apply([o for o in rendered.objects if o not in late], home=name)
        wait.pods_placed(self.cluster, name, f"{PART}=load", rendered.load_pods, self.options.deploy_timeout_s)
        self.applier.apply(late, home=name)
        applied_s = time.monotonic() - began
        settle = self.mesh.settle if self.mesh is not None else ()
        timeout_s = self.options.deploy_timeout_s
        # The application's own pods are counted: a waypoint or a collector must not stand in for one of them.
        wait.pods_ready(self.cluster, name, f"{PART}=app", rendered.app_pods, timeout_s, settle)
        wait.pods_ready(self.cluster, name, "", rendered.app_pods + rendered.load_pods, timeout_s, settle)
        for feature in self.mesh.check(self.treatment) if self.mesh is not None else ():
            if feature.waits:
                wait.pods_ready(self.cluster, name, feature.waits, 1, timeout_s, settle)
        ready_s = time.monotonic() - began
        self.look()
        self._wait_path(timeout_s)
        self.measured["deploy"] = {
            "applied_s": round(applied_s, 3),
            "ready_s": round(ready_s, 3),
            "first_answer_s": round(time.monotonic() - began, 3),
        }
        self._note_pushes(pushed)

    def _note_pushes(self, before: pushes.Histogram) -> None:
        caused = pushes.described(self._pushed().since(before))
        for name in ("pushes", "responses"):
            self.measured.pop(name, None)
        if caused:
            self.measured["pushes"] = caused
            self.measured["responses"] = {pushes.RESPONSE: caused["mean_s"]}

    def _pushed(self) -> pushes.Histogram:
        """Pushes of the control plane so far; none where it does not tell, or cannot be asked now."""
        mesh = self.mesh
        if mesh is None or mesh.pushes is None:
            return pushes.Histogram()
        teller = next(part for part in mesh.control_plane if part.component == mesh.pushes.component)
        with contextlib.suppress(TestbedError):
            return pushes.read(self.cluster, self._probe, self._members(teller), mesh.pushes)
        return pushes.Histogram()

    def grow(self, load: Load, rendered: Rendered) -> None:
        """Add copies until there are as many as another load asks for, and wait until all of them serve."""
        began = time.monotonic()
        timeout_s, name = self.options.deploy_timeout_s, rendered.namespace
        settle = self.mesh.settle if self.mesh is not None else ()
        pushed = self._pushed()
        self.load, self.rendered, self.target = load, rendered, rendered.target
        with evidence.kept(self.cluster, (name,)):
            self.applier.apply([item for item in rendered.objects if item["kind"] == "Deployment"], home=name)
            wait.pods_ready(self.cluster, name, f"{PART}=app", rendered.app_pods, timeout_s, settle)
            wait.pods_ready(self.cluster, name, "", rendered.app_pods + rendered.load_pods, timeout_s, settle)
            ready_s = time.monotonic() - began
            self.look()
            self._wait_path(timeout_s)
        answer_s = time.monotonic() - began
        self.measured["grown"] = {"ready_s": round(ready_s, 3), "first_answer_s": round(answer_s, 3)}
        self._note_pushes(pushed)

    def look(self) -> None:
        """Learn which pods there are, where they run, and what they run."""
        name, mesh = self.rendered.namespace, self.mesh
        everything = wait.live_pods(self.cluster, name)
        by_part = {part: [p for p in everything if label(p, PART) == part] for part in PARTS}
        between = wait.live_pods(self.cluster, name, mesh.waypoints) if mesh and mesh.waypoints else []
        agents = {a.component: self._members(a) for a in (mesh.agents if mesh else ())}
        control = {c.component: self._members(c) for c in (mesh.control_plane if mesh else ())}
        if not by_part["app"] or not by_part["load"]:
            raise TestbedError(f"namespace {name}: its pods are gone")
        self._pods = [pod for part in PARTS for pod in by_part[part]]
        pods = Pods(self._pods, agents, control, between)
        self._meter = Meter(self.cluster, parts_of(pods, mesh), self.options.sample_patience_s)
        features = mesh.check(self.treatment) if mesh else ()
        self._subject = proofs.Subject(
            self.cluster,
            self.rendered,
            mesh,
            features,
            self._tokens,
            {**by_part, "waypoint": between, **agents, **control},
            self._load_pods()[0],
            self._probe,
        )
        self._mesh_pods = [*between, *chain(*agents.values(), *control.values())]
        if self.rendered.app.tiers:
            names = set(mesh.proxy_containers if mesh is not None else ())
            proxied = sum(bool(names & set(container_names(pod))) for pod in self._pods)
            hold_s = 2 * self.options.hold_ms / 1e3
            self.measured |= {"hold_s": hold_s, "endpoints": len(self._pods), "proxies": proxied}
        self._versions = versions([*self._pods, *self._mesh_pods])
        if mesh is not None:
            self._versions[f"mesh {mesh.name}"] = mesh.called
        told = [*between, *self._pods[:100]]
        self.measured["placement"] = {p["metadata"]["name"]: p["spec"].get("nodeName") for p in told}
        parts = {part.component: part for part in (mesh.control_plane if mesh else ())}
        self.measured["control_plane"] = {c: autoscaling(self.cluster, s) for c, s in parts.items()}

    @property
    def versions(self) -> Mapping[str, str]:
        """Images by container, the mesh, what its parts tell of themselves, and what it was installed from."""
        told = self._subject.told if self._subject is not None else {}
        words = {f"{name} tells": ", ".join(several) for name, (_, several) in told.items()}
        return {**self._versions, **words, **self.installed_from}

    def prove(self, phase: str, requests: int) -> tuple[Proof, ...]:
        """Run every proof of the treatment."""
        subject = self._standing(self._subject)
        if self.mesh is not None and not subject.told:
            subject.told = meshversions.told(self.cluster, self._probe, self.mesh, subject.pods)
        return (*proofs.prove(subject, phase, requests), self._placement(phase))

    def snapshot(self) -> Mapping[str, ComponentUsage]:
        """Counters of every component at the kubelets' next readings; none after pods were replaced."""
        if self._replaced:
            return {}
        found: Mapping[str, ComponentUsage] = self._standing(self._meter).snapshot()
        return found

    def sample(self) -> Mapping[str, tuple[float, int | None]]:
        """Nothing: a kubelet reads its containers every 10 to 15 seconds."""
        return {}

    def generate(self, calls: Sequence[GeneratorCall], folder: Path, timeout_s: float) -> tuple[GeneratorOutput, ...]:
        """Make the calls from the load pods."""
        pods, spoilt = self._load_pods(), self.why_spoilt
        return loadgen.generate(self.cluster, pods, calls, self.target, folder, timeout_s, spoilt)

    def restart(self, part: str) -> tuple[Proof, ...]:
        """Roll a part's pods over to new ones, and look at those from then on.

        What the old pods used is gone with them, so such a run has no CPU and memory.
        """
        subject, meter = self._standing(self._subject), self._standing(self._meter)
        components = restartable(self.mesh, part)
        pods = [pod for name in components for pod in subject.pods.get(name, ())]
        if not pods:
            raise TestbedError(f"treatment {self.treatment.name}: there is no pod of {part} to restart")
        self._replaced = {uid(pod) for pod in pods}
        rollouts.restart(self.cluster, pods, self.options.deploy_timeout_s)
        self.look()
        fresh = self._standing(self._subject)
        counters = (*(self.mesh.counters if self.mesh else ()), *(c for f in fresh.features for c in f.counters))
        anew = {counter.name for counter in counters if counter.pods in components}
        fresh.before = {name: value for name, value in subject.before.items() if name not in anew}
        note = f"{part} was restarted: what the replaced pods used is gone with them"
        self._standing(self._meter).notes += [*meter.notes, note]
        now = {uid(pod) for name in components for pod in fresh.pods.get(name, ())}
        seen = f"{len(now - self._replaced)} new, {len(now & self._replaced)} old"
        return (Proof(f"pods of {part} replaced", "during", not now & self._replaced, f"{len(pods)} new", seen),)

    def extra(self) -> Mapping[str, Any]:
        """Deployment times, placement, the windows of the resource samples and what was missing."""
        meter = self._standing(self._meter)
        missing = list(meter.notes)
        if self.mesh is not None:
            _, unasked = proofs.named(self.mesh, self.mesh.check(self.treatment), self.rendered.app)
            self.measured["proofs_not_asked"] = list(unasked)
        self.measured["resources"] = {"windows": meter.windows, "missing": missing, "memory": MEMORY_NOTE}
        return self.measured

    def collect_logs(self, folder: Path) -> None:
        """Write the containers' logs, of a few pods a component; where one was lost, all that can be had of it too."""
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(TestbedError):
            if self.why_spoilt():
                for name, text in evidence.gather(self.cluster, self._places).items():
                    (folder / name).write_text(text)
        seen: dict[str, int] = {}
        subject = self._subject
        members = self._pods + [p for part in (subject.pods if subject else {}).values() for p in part]
        for pod in {uid(p): p for p in members}.values():
            kind = str(label(pod, "app") or label(pod, "k8s-app") or "pod")
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] > _LOGS_PER_COMPONENT:
                continue
            metadata = pod["metadata"]
            for container in container_names(pod):
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
                with contextlib.suppress(TestbedError):
                    text = self.cluster.text(path, container=container, limitBytes=_LOG_BYTES)
                    if text:
                        (folder / f"{metadata['name']}-{container}.log").write_text(text)

    def close(self) -> None:
        """Remove everything, or leave it to the testbed when it is kept."""
        if not self.keep:
            self.remove()

    def remove(self) -> None:
        """Delete the namespace and what was applied outside of it, and wait until they are gone."""
        name = self.rendered.namespace
        try:
            wait.force_lost_pods(self.cluster, name)
            delete_namespace(self.cluster, name, self.applier.owner.id.__eq__, self.options.deploy_timeout_s)
            # After the pods: a control plane may refuse to let go of what they still lean on (Kuma's Mesh).
            self.applier.delete_outside()
        except KeyboardInterrupt:
            study = self.applier.owner.study
            print(
                f"interrupted: namespace {name} may remain; '{clean_command(self.cluster.context, study)}' removes it",
                file=sys.stderr,
            )
            raise

    def why_spoilt(self) -> str:
        """Why the run cannot be used any more; asked once, without patience."""
        # Pods that are replaced on purpose are no loss.
        everything = [pod for pod in (*self._pods, *self._mesh_pods) if uid(pod) not in self._replaced]
        now: dict[str, Json] = {}
        for namespace in dict.fromkeys(pod["metadata"]["namespace"] for pod in everything):
            path = f"/api/v1/namespaces/{namespace}/pods"

            def ask(path: str = path) -> bytes:
                return self.cluster.request("GET", path, timeout=(1.0, 3.0))

            try:
                answer = self.cluster.call(path, ask, 0.0)
            except NotFoundError:
                return f"namespace {namespace} is gone"
            now |= {uid(pod): pod for pod in json.loads(answer)["items"]}
        return next((why for why in (lost(pod, now.get(uid(pod))) for pod in everything) if why), "")

    def _placement(self, phase: str) -> Proof:
        apart = [p for p in self._pods if label(p, PART) == "app"] + list(
            self._standing(self._subject).pods["waypoint"]
        )
        apps = {p["spec"].get("nodeName") for p in apart}
        loads = {p["spec"].get("nodeName") for p in self._pods if label(p, PART) == "load"}
        shared = apps & loads
        wanted = self.options.load_separation == "required"
        seen = f"generators on {', '.join(sorted(map(str, loads))[:5])}; app on {', '.join(sorted(map(str, apps))[:5])}"
        return Proof(
            "planned placement",
            phase,
            not (wanted and shared),
            "generators on nodes of their own" if wanted else "any",
            seen,
        )

    def _wait_path(self, timeout_s: float) -> None:
        # Proxies learn of each other after they are ready: the first answer ends the deployment, not the first pod.
        url = self.rendered.inside + self.rendered.app.path
        last = probing.Answer(0, "", "nothing")

        def missing() -> str:
            nonlocal last
            for pod in self._load_pods()[:3]:
                last = probing.request(self.cluster, pod, url, self.target.headers)
                if last.status != 200:
                    return f"{self.treatment.name}: {url} does not answer with 200 from {pod.name}: {last.detail}"
            return ""

        wait.until(missing, min(timeout_s, 60.0), every_s=0.5)

    def _load_pods(self) -> list[PodRef]:
        return [pod_ref(p, "fortio") for p in self._pods if label(p, PART) == "load"]

    def _members(self, part: Selector) -> list[Json]:
        return wait.live_pods(self.cluster, part.namespace, part.selector)

    def _standing(self, thing: Any) -> Any:
        if thing is None:
            raise TestbedError(f"deployment {self.rendered.namespace} does not stand")
        return thing
