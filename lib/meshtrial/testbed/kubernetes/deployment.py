"""One treatment that stands in a namespace of its own, can be loaded, and goes again."""

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.load.generators import GeneratorCall, GeneratorOutput, Target
from meshtrial.load.obeyed import ChangeTime
from meshtrial.records.builds import BUILT_AS
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.testbed.base import Facts
from meshtrial.testbed.kubernetes import (
    clocks,
    evidence,
    loadgen,
    meshversions,
    probing,
    proofs,
    pushes,
    rollouts,
    unused,
    wait,
    waypoints,
    workload,
)
from meshtrial.testbed.kubernetes.apply import Applier, begin_deletion, clean_command
from meshtrial.testbed.kubernetes.client import Json, NotFoundError
from meshtrial.testbed.kubernetes.execs import PodRef
from meshtrial.testbed.kubernetes.manifests import template
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.pods import (
    PART,
    autoscaling,
    container_names,
    label,
    live_pods,
    log_of,
    lost,
    members,
    pod_ref,
    pods_of,
    uid,
    versions,
)
from meshtrial.testbed.kubernetes.resources import MEMORY_NOTE, Meter, Pods, parts_of
from meshtrial.testbed.kubernetes.workload import Rendered, Setup

PARTS = ("app", "load", "collector")
_LOGS_PER_COMPONENT = 5
_LOG_BYTES = 1 << 20
# Pods without copies end within their grace and what a kubelet takes; those of a mesh's own may be made again.
_EMPTIED_S = 6.0


def restartable(mesh: Mesh | None, part: str) -> tuple[str, ...]:
    """Components whose pods a restart of a part replaces, as :class:`proofs.ProofContext` names them."""
    if part == "app":
        return ("app",)
    if mesh is None:
        return ()
    if part == "control-plane":
        return tuple(one.component for one in mesh.control_plane)
    return (*(one.component for one in mesh.agents), *(["waypoint"] if mesh.waypoints else []))


@dataclass(frozen=True)
class _Snapshot:
    """What a deployment consisted of when it was looked at last."""

    pods: list[Json]
    mesh_pods: list[Json]  # those that it leans on
    meter: Meter
    subject: proofs.ProofContext


class KubernetesDeployment:
    """Implements :class:`meshtrial.testbed.base.Deployment`.

    One that is kept stays standing after ``close``; the testbed then removes it (``app_reinstall``).
    ``installed_from`` are versions of what its mesh was installed from, which no pod tells.
    """

    def __init__(self, applier: Applier, rendered: Rendered, probe: PodRef, keep: bool = False) -> None:
        self.cluster, self.applier, self.keep = applier.cluster, applier, keep
        self.rendered = rendered
        self.installed_from: dict[str, str] = {}
        self.told = Facts()
        self._probe = probe
        self._now: _Snapshot | None = None
        self._replaced: set[str] = set()
        self._clock: clocks.ClockOffset | None = None
        self._away: set[str] = set()  # changes that were not taken back

    @property
    def setup(self) -> Setup:
        """What it was made from."""
        return self.rendered.setup

    @property
    def target(self) -> Target:
        """What the generators call."""
        return self.rendered.target

    @property
    def _looked(self) -> _Snapshot:
        if self._now is None:
            raise TestbedError(f"deployment {self.setup.namespace} is not running")
        return self._now

    @property
    def _places(self) -> tuple[str, ...]:
        """Namespaces in which something of the treatment runs."""
        return (self.setup.namespace, *(self.setup.mesh.namespaces if self.setup.mesh is not None else ()))

    def stand_up(self) -> None:
        """Apply everything and wait until a request comes through; on failure nothing stays."""
        try:
            with evidence.kept(self.cluster, self._places):
                self._stand_up()
        except BaseException:
            with contextlib.suppress(TestbedError):
                self.remove()
            raise

    def _stand_up(self) -> None:
        rendered, name = self.rendered, self.setup.namespace
        self.applier.namespace(name, rendered.namespace_labels, rendered.namespace_annotations)
        # Before the clock: how quickly an API server takes thousands of objects is no property of a treatment.
        self.applier.apply(unused.objects(self.setup.load.unused_services, name, self._probe.ip), home=name)
        began, pushed = time.monotonic(), self._pushed()
        apps = [o for o in rendered.objects if o["kind"] == "Deployment" and label(template(o) or o, PART) == "app"]
        late = [*(o for o in rendered.objects if waypoints.is_late(o)), *apps]
        self.applier.apply([o for o in rendered.objects if o not in late], home=name)
        patience_s = self.setup.options.deploy_timeout_s
        wait.pods_placed(self.cluster, name, f"{PART}=load", rendered.load_pods, patience_s)
        self.applier.apply(late, home=name)
        applied_s = time.monotonic() - began
        waited_for = [feature.waits for feature in self.setup.features if feature.waits]
        served = self._serve(began, waited_for)
        self.told.ready_s = served["ready_s"]
        self.told.notes["deploy"] = {"applied_s": round(applied_s, 3), **served}
        self._note_pushes(pushed)

    def _serve(self, began: float, waited_for: Sequence[str] = ()) -> dict[str, float]:
        """Wait until all pods, and one of each selector, are ready and a request comes through; seconds since then."""
        rendered, setup = self.rendered, self.setup
        settle = setup.mesh.settle if setup.mesh is not None else ()
        # The application's own pods are counted: a waypoint or a collector must not stand in for one of them.
        counts = [(f"{PART}=app", rendered.app_pods), ("", rendered.app_pods + rendered.load_pods)]
        for selector, count in (*counts, *((selector, 1) for selector in waited_for)):
            wait.pods_ready(self.cluster, setup.namespace, selector, count, setup.options.deploy_timeout_s, settle)
        ready_s = time.monotonic() - began
        self.look()
        self._wait_path()
        return {"ready_s": round(ready_s, 3), "first_answer_s": round(time.monotonic() - began, 3)}

    def _note_pushes(self, before: pushes.Histogram) -> None:
        caused = pushes.described(self._pushed().since(before))
        self.told.notes.pop("pushes", None)
        if caused:
            self.told.notes["pushes"] = caused
        self.told.responses = {pushes.RESPONSE: caused["mean_s"]} if caused else {}

    def _pushed(self) -> pushes.Histogram:
        """Pushes of the control plane so far; none where it does not tell, or cannot be asked now."""
        mesh = self.setup.mesh
        if mesh is None or mesh.pushes is None:
            return pushes.Histogram()
        teller = next(part for part in mesh.control_plane if part.component == mesh.pushes.component)
        with contextlib.suppress(TestbedError):
            return pushes.read(self.cluster, self._probe, members(self.cluster, teller), mesh.pushes)
        return pushes.Histogram()

    def grow(self, rendered: Rendered) -> None:
        """Add copies until there are as many as another load asks for, and wait until all of them serve."""
        began, name = time.monotonic(), rendered.setup.namespace
        pushed = self._pushed()
        self.rendered = rendered
        with evidence.kept(self.cluster, (name,)):
            self.applier.apply([item for item in rendered.objects if item["kind"] == "Deployment"], home=name)
            self.told.notes["grown"] = self._serve(began)
        self._note_pushes(pushed)

    def look(self) -> None:
        """Learn which pods there are, where they run, and what they run."""
        name, mesh = self.setup.namespace, self.setup.mesh
        everything = live_pods(self.cluster, name)
        by_part = {part: [pod for pod in everything if label(pod, PART) == part] for part in PARTS}
        between = live_pods(self.cluster, name, mesh.waypoints) if mesh and mesh.waypoints else []
        agents = {part.component: members(self.cluster, part) for part in (mesh.agents if mesh else ())}
        control = {part.component: members(self.cluster, part) for part in (mesh.control_plane if mesh else ())}
        if not by_part["app"] or not by_part["load"]:
            raise TestbedError(f"namespace {name}: its pods are gone")
        own = list(chain(*by_part.values()))
        meter = Meter(
            self.cluster, parts_of(Pods(own, agents, control, between), mesh), self.setup.options.sample_patience_s
        )
        every = {**by_part, "waypoint": between, **agents, **control}
        load = pod_ref(by_part["load"][0], "fortio")
        subject = proofs.ProofContext(self.cluster, self.rendered, every, load, self._probe)
        self._now = _Snapshot(own, [*between, *chain(*agents.values(), *control.values())], meter, subject)
        if self.setup.app.tiers:
            self.told.hold_s = 2 * self.setup.options.hold_ms / 1e3
            self.told.endpoints, self.told.proxies = len(own), sum(map(subject.proxied, own))
        told = [*between, *own[:100]]
        hosts = {"generators": list(self.setup.load_hosts), "application": list(self.setup.app_hosts)}
        if all(hosts.values()):
            self.told.notes["nodes"] = hosts
        self.told.notes["placement"] = {p["metadata"]["name"]: p["spec"].get("nodeName") for p in told}
        parts = mesh.control_plane if mesh else ()
        self.told.notes["control_plane"] = {part.component: autoscaling(self.cluster, part) for part in parts}

    @property
    def versions(self) -> Mapping[str, str]:
        """Images by container, the mesh, what its parts tell of themselves, and what it was installed from."""
        looked, mesh = self._looked, self.setup.mesh
        images = versions([*looked.pods, *looked.mesh_pods])
        called = {f"mesh {mesh.name}": mesh.called} if mesh is not None else {}
        words = {
            f"{name}{BUILT_AS if teller.of_build else ' tells'}": ", ".join(several)
            for name, (teller, several) in looked.subject.told.items()
        }
        return {**images, **called, **words, **self.installed_from}

    def prove(self, phase: str, requests: int) -> tuple[Proof, ...]:
        """Run every proof of the treatment."""
        subject = self._looked.subject
        if self.setup.mesh is not None and not subject.told:
            subject.told = meshversions.told(self.cluster, self._probe, self.setup.mesh, subject.pods)
        found = (*proofs.prove(subject, phase, requests), self._placement(phase))
        wanted = self.setup.load.unused_services
        return (*found, *unused.prove(self.cluster, self.setup.namespace, wanted, phase)) if wanted else found

    def snapshot(self) -> Mapping[str, ComponentUsage]:
        """Counters of every component at the kubelets' next readings; none after pods were replaced."""
        if self._replaced:
            return {}
        # A container that is gone would be waited for in vain.
        if why := self._invalid_reason():
            raise TestbedError(why)
        return self._looked.meter.snapshot()

    def sample(self) -> Mapping[str, tuple[float, int | None]]:
        """Nothing: a kubelet reads its containers every 10 to 15 seconds."""
        return {}

    def generate(self, calls: Sequence[GeneratorCall], folder: Path, timeout_s: float) -> tuple[GeneratorOutput, ...]:
        """Make the calls from the load pods."""
        return loadgen.generate(
            self.cluster, self.load_pods, calls, self.target, folder, timeout_s, healthy=self.invalid_reason
        )

    def keep_warm(self, call: GeneratorCall | None) -> None:
        """Make a call from the first load pod that goes on until another one, or None, is asked for."""
        argv = () if call is None else ("fortio", "load", *call.arguments, *self.target.arguments(call))
        try:
            loadgen.keep_warm(self.cluster, self.load_pods[0], argv)
        except TestbedError as error:
            raise TestbedError(self._invalid_reason() or str(error), error.evidence) from None

    def restart(self, part: str) -> tuple[Proof, ...]:
        """Roll a part's pods over to new ones, and look at those from then on.

        What the old pods used is gone with them, so such a run has no CPU and memory.
        """
        mesh, before = self.setup.mesh, self._looked
        components = restartable(mesh, part)
        pods = [pod for name in components for pod in before.subject.pods.get(name, ())]
        if not pods:
            raise TestbedError(f"treatment {self.setup.treatment.name}: there is no pod of {part} to restart")
        self._replaced = {uid(pod) for pod in pods}
        rollouts.restart(self.cluster, pods, self.setup.options.deploy_timeout_s)
        self.look()
        fresh = self._looked.subject
        counters = (*(mesh.counters if mesh else ()), *(c for f in self.setup.features for c in f.counters))
        anew = {counter.name for counter in counters if counter.pods in components}
        fresh.before = {name: value for name, value in before.subject.before.items() if name not in anew}
        note = f"{part} was restarted: what the replaced pods used is gone with them"
        self._looked.meter.notes += [*before.meter.notes, note]
        self._looked.meter.needed = False
        now = {uid(pod) for name in components for pod in fresh.pods.get(name, ())}
        seen = f"{len(now - self._replaced)} new, {len(now & self._replaced)} old"
        return (Proof(f"pods of {part} replaced", "during", not now & self._replaced, f"{len(pods)} new", seen),)

    def changes(self) -> tuple[str, ...]:
        """What can be changed here under load; asked before the first change, so that this is no part of it."""
        found = workload.changes_of(self.setup)
        if "authorization" in found:
            self.applier.apply(workload.denial_of(self.setup), home=self.setup.namespace, dry_run=True)
        if found and self._clock is None:
            self._clock = clocks.measure_offset(self.cluster, self.load_pods[0])
            self.told.notes["generators_clock"] = asdict(self._clock)
        return found

    def change(self, change: str, on: bool) -> ChangeTime:
        """Patch the entry Service, or apply or delete the denial: one object of the API server, which answers then.

        It took that between the question and its answer; both are told by the generators' clock.
        """
        began = time.time()
        if change == "endpoints":
            self._select(self.setup.app.service, self.setup.app.second if on else {})
        elif on:
            self.applier.apply(workload.denial_of(self.setup), home=self.setup.namespace)
        else:
            self.applier.delete(workload.denial_of(self.setup))
        ended = time.time()
        self._away = self._away - {change} | ({change} if on else set())
        assert self._clock is not None
        return ChangeTime((began + ended) / 2 - self._clock.offset_s, (ended - began) / 2 + self._clock.error_s)

    def churn(self, number: int) -> None:
        """Take the bystander's endpoint away, and give it back the next time."""
        self._select(self.setup.app.bystander, {"version": "away"} if number % 2 == 0 else {})

    def _select(self, service: str, more: Mapping[str, str]) -> None:
        """Let a Service select as it was rendered, and this besides or instead."""
        planned = next(
            item for item in self.rendered.objects if (item["kind"], item["metadata"]["name"]) == ("Service", service)
        )
        selector: Json = {**planned["spec"]["selector"], **more}
        gone = dict.fromkeys({"version"} - selector.keys())
        path = f"/api/v1/namespaces/{self.setup.namespace}/services/{service}"
        self.cluster.merge(path, {"spec": {"selector": selector | gone}})

    def facts(self) -> Facts:
        """Deployment times, placement, the windows of the resource samples and what was missing."""
        meter = self._looked.meter
        if self.setup.mesh is not None:
            self.told.notes["proofs_not_asked"] = list(proofs.named(self.setup)[1])
        self.told.notes["resources"] = {"windows": meter.windows, "missing": list(meter.notes), "memory": MEMORY_NOTE}
        return self.told

    def collect_logs(self, folder: Path) -> None:
        """Write the containers' logs, of a few pods a component; where one was lost, all that can be had of it too."""
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(TestbedError):
            if self.invalid_reason():
                for name, text in evidence.gather(self.cluster, self._places).items():
                    (folder / name).write_text(text)
        seen: dict[str, int] = {}
        for pod in {uid(pod): pod for pod in chain(*self._looked.subject.pods.values())}.values():
            kind = str(label(pod, "app") or label(pod, "k8s-app") or "pod")
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] > _LOGS_PER_COMPONENT:
                continue
            for container in container_names(pod):
                with contextlib.suppress(TestbedError):
                    text = log_of(self.cluster, pod, container, limitBytes=_LOG_BYTES)
                    if text:
                        (folder / f"{pod['metadata']['name']}-{container}.log").write_text(text)

    def close(self) -> None:
        """Remove everything, or leave it to the testbed when it is kept; an empty namespace may still be going."""
        if not self.keep:
            self.remove(at_once=True)
            return
        for change in sorted(self._away):
            self.change(change, on=False)

    def remove(self, *, at_once: bool = False) -> None:
        """Delete the namespace and what was applied outside of it, and wait until they are gone.

        Where nothing lies outside, ``at_once`` waits for the pods alone: the next deployment takes another namespace
        meanwhile, and is not measured before this one is gone (:meth:`Applier.wait_for_deletions`).
        """
        name, patience_s = self.setup.namespace, self.setup.options.deploy_timeout_s
        try:
            wait.force_lost_pods(self.cluster, name)
            uid = begin_deletion(self.cluster, name, self.applier.owner.id)
            if at_once and uid and name not in self.applier.homes and self._emptied():
                self.applier.leave(name, uid, patience_s)
                return
            if uid:
                wait.gone(self.cluster, f"/api/v1/namespaces/{name}", uid, patience_s)
            # After the pods: a control plane may refuse to let go of what they still lean on (Kuma's Mesh).
            self.applier.delete_outside([name])
        except KeyboardInterrupt:
            study = self.applier.owner.study
            print(
                f"interrupted: namespace {name} may remain; '{clean_command(self.cluster.context, study)}' removes it",
                file=sys.stderr,
            )
            raise

    def _emptied(self) -> bool:
        """Whether its pods end within seconds, without copies: a namespace's own deletion would come to them late."""
        name = self.setup.namespace
        for item in self.rendered.objects:
            if item["kind"] == "Deployment":
                path = f"/apis/apps/v1/namespaces/{name}/deployments/{item['metadata']['name']}"
                with contextlib.suppress(TestbedError):
                    self.cluster.merge(path, {"spec": {"replicas": 0}})
        return not waiting.until(lambda: pods_of(self.cluster, name), _EMPTIED_S, 0.1, lambda pods: not pods)

    def invalid_reason(self) -> str:
        """Why the run cannot be used any more; asked once, without patience."""
        # Pods that are replaced on purpose are no loss.
        looked = self._looked
        before = [pod for pod in (*looked.pods, *looked.mesh_pods) if uid(pod) not in self._replaced]
        now: dict[str, Json] = {}
        for namespace in dict.fromkeys(pod["metadata"]["namespace"] for pod in before):
            try:
                now |= {uid(pod): pod for pod in pods_of(self.cluster, namespace, once_s=3.0)}
            except NotFoundError:
                return f"namespace {namespace} is gone"
        return next((why for why in (lost(pod, now.get(uid(pod))) for pod in before) if why), "")

    def _invalid_reason(self) -> str:
        """Why it cannot be used any more, as far as the API server answers."""
        with contextlib.suppress(TestbedError):
            return self.invalid_reason()
        return ""

    def _placement(self, phase: str) -> Proof:
        pods = self._looked.subject.pods
        apps = {str(pod["spec"].get("nodeName")) for pod in (*pods["app"], *pods["waypoint"])}
        loads = {str(pod["spec"].get("nodeName")) for pod in pods["load"]}
        apart = self.setup.options.load_separation == "required"
        seen = f"generators on {', '.join(sorted(loads)[:5])}; app on {', '.join(sorted(apps)[:5])}"
        expected = "generators on nodes of their own" if apart else "any"
        return Proof("planned placement", phase, not (apart and apps & loads), expected, seen)

    def _wait_path(self) -> None:
        # Proxies learn of each other after they are ready: the first answer ends the deployment, not the first pod.
        url = self.rendered.inside + self.setup.app.path

        def missing() -> str:
            for pod in self.load_pods[:3]:
                answer = probing.request(self.cluster, pod, url, self.target.headers)
                if answer.status != 200:
                    why = f"{url} does not answer as it should from {pod.name}: {answer.detail}"
                    return f"{self.setup.treatment.name}: {why}"
            return ""

        wait.until(missing, min(self.setup.options.deploy_timeout_s, 60.0), every_s=0.5)

    @property
    def load_pods(self) -> list[PodRef]:
        """The generators' containers."""
        return [pod_ref(pod, "fortio") for pod in self._looked.subject.pods["load"]]
