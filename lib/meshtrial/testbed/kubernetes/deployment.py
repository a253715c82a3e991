"""One running treatment in a namespace of its own: deploy it, load it, prove it, remove it."""

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
from meshtrial.load.propagation import ChangeTime
from meshtrial.records.builds import BUILT_AS
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.testbed.base import Facts
from meshtrial.testbed.kubernetes import (
    apps,
    loadgen,
    meshversions,
    probing,
    proofs,
    wait,
    workload,
)
from meshtrial.testbed.kubernetes.apply import Applier, begin_deletion, clean_command
from meshtrial.testbed.kubernetes.client import Json, NotFoundError
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.pods import (
    PART,
    PodRef,
    autoscaling,
    container_names,
    label,
    live_pods,
    log_of,
    loss_reason,
    members,
    pod_ref,
    pods_of,
    uid,
    versions,
)
from meshtrial.testbed.kubernetes.resources import MEMORY_NOTE, Meter, parts_of
from meshtrial.testbed.kubernetes.workload import Rendered, Setup

PARTS = ("app", "load", "collector")
_LOGS_PER_COMPONENT = 5
_LOG_BYTES = 1 << 20
# Time for pods to end after scaling to zero: grace period plus the kubelet's delay.
# Pods that a mesh recreates do not end.
_EMPTIED_S = 6.0


def restartable(mesh: Mesh | None, part: str) -> tuple[str, ...]:
    """Return the components whose pods a restart of a part replaces, as :class:`proofs.ProofContext` names them."""
    if part == "app":
        return ("app",)
    if mesh is None:
        return ()
    if part == "control-plane":
        return tuple(selector.component for selector in mesh.control_plane)
    return (*(selector.component for selector in mesh.agents), *(["waypoint"] if mesh.waypoints else []))


def _has_node(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName"))


@dataclass(frozen=True)
class _Snapshot:
    pods: list[Json]  # with those of its mesh
    meter: Meter
    context: proofs.ProofContext


class KubernetesDeployment:
    """Implements :class:`meshtrial.testbed.base.Deployment`.

    If ``keep``, it stays after ``close`` until the testbed removes it (``app_reinstall``). ``installed_from`` has the
    versions of the charts or tools that installed its mesh, which no pod reports.
    """

    def __init__(self, applier: Applier, rendered: Rendered, probe: PodRef, keep: bool = False) -> None:
        self.cluster, self.applier, self.keep = applier.cluster, applier, keep
        self.rendered = rendered
        self.installed_from: dict[str, str] = {}
        self.collected = Facts()
        self._probe = probe
        self._latest: _Snapshot | None = None
        self._replaced: set[str] = set()
        self._clock: loadgen.ClockOffset | None = None
        self._away: set[str] = set()  # changes that were not reverted

    @property
    def setup(self) -> Setup:
        """The treatment, load and application of the deployment."""
        return self.rendered.setup

    @property
    def target(self) -> Target:
        """The addresses that the generators call."""
        return self.rendered.target

    @property
    def _snapshot(self) -> _Snapshot:
        if self._latest is None:
            raise TestbedError(f"deployment {self.setup.namespace} is not running")
        return self._latest

    @property
    def _namespaces(self) -> tuple[str, ...]:
        return (self.setup.namespace, *(self.setup.mesh.namespaces if self.setup.mesh is not None else ()))

    def deploy(self) -> None:
        """Apply everything and wait until a request succeeds; on failure remove it."""
        try:
            with wait.with_evidence(self.cluster, self._namespaces):
                self._deploy()
        except BaseException:
            with contextlib.suppress(TestbedError):
                self.remove()
            raise

    def _deploy(self) -> None:
        rendered, name = self.rendered, self.setup.namespace
        self.applier.namespace(name, rendered.namespace_labels, rendered.namespace_annotations)
        # Before timing starts: how fast an API server accepts thousands of objects is no property of a treatment.
        self.applier.apply(apps.unused_services(self.setup.load.unused_services, name, self._probe.ip), home=name)
        began, pushed = time.monotonic(), self._pushed()
        # A Gateway has pods of its own, which wait for the generators to have nodes, as the application does.
        late = [item for item in rendered.objects if item["kind"] == "Gateway"]
        deployments = [item for item in rendered.objects if item["kind"] == "Deployment"]
        late += [item for item in deployments if label(item["spec"]["template"], PART) == "app"]
        self.applier.apply([item for item in rendered.objects if item not in late], home=name)
        patience_s = self.setup.options.deploy_timeout_s
        wait.pods_ready(self.cluster, name, f"{PART}=load", rendered.load_pods, patience_s, (), "placed", _has_node)
        self.applier.apply(late, home=name)
        applied_s = time.monotonic() - began
        served = self._serve(began)
        self.collected.ready_s = served["ready_s"]
        self.collected.notes["deploy"] = {"applied_s": round(applied_s, 3), **served}
        self._note_pushes(pushed)

    def _serve(self, began: float) -> dict[str, float]:
        """Wait until all pods, and one per feature that waits for one, are ready and a request succeeds."""
        rendered, setup = self.rendered, self.setup
        settle = setup.mesh.settle if setup.mesh is not None else ()
        # The application's own pods are counted separately: a waypoint or a collector must not count as one.
        counts = [(f"{PART}=app", rendered.app_pods), ("", rendered.app_pods + rendered.load_pods)]
        counts += [(feature.waits, 1) for feature in setup.features if feature.waits]
        for selector, count in counts:
            wait.pods_ready(self.cluster, setup.namespace, selector, count, setup.options.deploy_timeout_s, settle)
        ready_s = time.monotonic() - began
        self.refresh()
        self._wait_path()
        return {"ready_s": round(ready_s, 3), "first_answer_s": round(time.monotonic() - began, 3)}

    def _note_pushes(self, before: probing.Histogram) -> None:
        caused = probing.describe_pushes(self._pushed().since(before))
        self.collected.notes.pop("pushes", None)
        self.collected.notes |= {"pushes": caused} if caused else {}
        self.collected.responses = {probing.PUSH_RESPONSE: caused["mean_s"]} if caused else {}

    def _pushed(self) -> probing.Histogram:
        """Return the pushes of the control plane so far; none where they cannot be read."""
        mesh = self.setup.mesh
        if mesh is None or mesh.pushes is None:
            return probing.Histogram()
        part = next(part for part in mesh.control_plane if part.component == mesh.pushes.component)
        with contextlib.suppress(TestbedError):
            return probing.read_pushes(self.cluster, self._probe, members(self.cluster, part), mesh.pushes)
        return probing.Histogram()

    def grow(self, rendered: Rendered) -> None:
        """Add replicas until there are as many as another load needs, and wait until all of them serve."""
        began, name = time.monotonic(), rendered.setup.namespace
        pushed = self._pushed()
        self.rendered = rendered
        with wait.with_evidence(self.cluster, (name,)):
            self.applier.apply([item for item in rendered.objects if item["kind"] == "Deployment"], home=name)
            self.collected.notes["grown"] = self._serve(began)
        self._note_pushes(pushed)

    def refresh(self) -> None:
        """Read which pods exist, where they run, and what they run."""
        name, mesh = self.setup.namespace, self.setup.mesh
        live = live_pods(self.cluster, name)
        by_part = {part: [pod for pod in live if label(pod, PART) == part] for part in PARTS}
        waypoints = live_pods(self.cluster, name, mesh.waypoints) if mesh and mesh.waypoints else []
        agents = {part.component: members(self.cluster, part) for part in (mesh.agents if mesh else ())}
        control = {part.component: members(self.cluster, part) for part in (mesh.control_plane if mesh else ())}
        if not by_part["app"] or not by_part["load"]:
            raise TestbedError(f"namespace {name}: its pods are missing")
        pods = list(chain(*by_part.values()))
        containers = parts_of(mesh, pods, waypoints, agents, control)
        meter = Meter(self.cluster, containers, self.setup.options.sample_patience_s)
        pods_by_name = {**by_part, "waypoint": waypoints, **agents, **control}
        load = pod_ref(by_part["load"][0], "fortio")
        context = proofs.ProofContext(self.cluster, self.rendered, pods_by_name, load, self._probe)
        mesh_pods = chain(waypoints, *agents.values(), *control.values())
        self._latest = _Snapshot([*pods, *mesh_pods], meter, context)
        if self.setup.app.tiers:
            self.collected.hold_s = 2 * self.setup.options.hold_ms / 1e3
            self.collected.endpoints, self.collected.proxies = len(pods), sum(map(context.proxied, pods))
        hosts = {"generators": list(self.setup.nodes.load), "application": list(self.setup.nodes.app)}
        if all(hosts.values()):
            self.collected.notes["nodes"] = hosts
        self.collected.notes["placement"] = {
            pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in (*waypoints, *pods[:100])
        }
        self.collected.notes["control_plane"] = {
            part.component: autoscaling(self.cluster, part) for part in (mesh.control_plane if mesh else ())
        }

    @property
    def versions(self) -> Mapping[str, str]:
        """Images by container, the mesh, the versions that its parts report, and what it was installed from."""
        latest, mesh = self._snapshot, self.setup.mesh
        mesh_version = {f"mesh {mesh.name}": mesh.called} if mesh is not None else {}
        reports = {
            f"{name}{BUILT_AS if version_probe.of_build else ' tells'}": ", ".join(texts)
            for name, (version_probe, texts) in latest.context.reported.items()
        }
        return {**versions(latest.pods), **mesh_version, **reports, **self.installed_from}

    def prove(self, phase: str, requests: int) -> tuple[Proof, ...]:
        """Return every proof of the treatment."""
        context = self._snapshot.context
        if self.setup.mesh is not None and not context.reported:
            context.reported = meshversions.reported_versions(self.cluster, self._probe, self.setup.mesh, context.pods)
        results = (*proofs.prove(context, phase, requests), self._placement(phase))
        count = self.setup.load.unused_services
        return (*results, *apps.prove_unused(self.cluster, self.setup.namespace, count, phase)) if count else results

    def snapshot(self) -> Mapping[str, ComponentUsage]:
        """Return every component's counters at the kubelets' next readings; none after pods were replaced."""
        if self._replaced:
            return {}
        # A container that is gone has no next reading.
        if why := self._invalid_reason():
            raise TestbedError(why)
        return self._snapshot.meter.snapshot()

    def sample(self) -> Mapping[str, tuple[float, int | None]]:
        """Return nothing: a kubelet reads its containers every 10 to 15 seconds."""
        return {}

    def generate(self, calls: Sequence[GeneratorCall], folder: Path, timeout_s: float) -> tuple[GeneratorOutput, ...]:
        """Make the calls from the load pods."""
        return loadgen.generate(
            self.cluster, self.load_pods, calls, self.target, folder, timeout_s, healthy=self.invalid_reason
        )

    def keep_warm(self, call: GeneratorCall | None) -> None:
        """Keep calling from the first load pod, until another call, or None, is given."""
        argv = () if call is None else ("fortio", "load", *call.arguments, *self.target.arguments(call))
        try:
            loadgen.keep_warm(self.cluster, self.load_pods[0], argv)
        except TestbedError as error:
            raise TestbedError(self._invalid_reason() or str(error), error.evidence) from None

    def restart(self, part: str) -> tuple[Proof, ...]:
        """Restart the pods of a part, and meter and check the new ones from then on.

        The use of the old pods is lost, so such a run has no CPU and memory.
        """
        mesh, before = self.setup.mesh, self._snapshot
        components = restartable(mesh, part)
        pods = [pod for name in components for pod in before.context.pods.get(name, ())]
        if not pods:
            raise TestbedError(f"treatment {self.setup.treatment.name}: no pod of {part} to restart")
        self._replaced = {uid(pod) for pod in pods}
        wait.restart_pods(self.cluster, pods, self.setup.options.deploy_timeout_s)
        self.refresh()
        context = self._snapshot.context
        counters = (*(mesh.counters if mesh else ()), *(c for f in self.setup.features for c in f.counters))
        restarted = {counter.name for counter in counters if counter.pods in components}
        context.before = {name: value for name, value in before.context.before.items() if name not in restarted}
        note = f"{part} was restarted: CPU and memory of the replaced pods are unknown"
        self._snapshot.meter.notes += [*before.meter.notes, note]
        self._snapshot.meter.needed = False
        new = {uid(pod) for name in components for pod in context.pods.get(name, ())}
        seen = f"{len(new - self._replaced)} new, {len(new & self._replaced)} old"
        return (Proof(f"pods of {part} replaced", "during", not new & self._replaced, f"{len(pods)} new", seen),)

    def changes(self) -> tuple[str, ...]:
        """Return what can change under load; called before the first change, whose time excludes these checks."""
        changes = workload.changes_of(self.setup)
        if "authorization" in changes:
            self.applier.apply(workload.denial_of(self.setup), home=self.setup.namespace, dry_run=True)
        if changes and self._clock is None:
            self._clock = loadgen.measure_offset(self.cluster, self.load_pods[0])
            self.collected.notes["generators_clock"] = asdict(self._clock)
        return changes

    def change(self, change: str, on: bool) -> ChangeTime:
        """Patch the entry Service, or apply or delete the denial: one object of the API server, which answers then.

        The change happened between the request and the answer; both times are on the generators' clock.
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
        """Remove the bystander's endpoint, or add it the next time."""
        self._select(self.setup.app.bystander, {"version": "away"} if number % 2 == 0 else {})

    def _select(self, service: str, changed: Mapping[str, str]) -> None:
        """Set what a Service selects: its rendered selector, merged with this."""
        rendered = next(
            item for item in self.rendered.objects if (item["kind"], item["metadata"]["name"]) == ("Service", service)
        )
        selector: Json = {**rendered["spec"]["selector"], **changed}
        removed = dict.fromkeys({"version"} - selector.keys())
        path = f"/api/v1/namespaces/{self.setup.namespace}/services/{service}"
        self.cluster.merge(path, {"spec": {"selector": selector | removed}})

    def facts(self) -> Facts:
        """Return deployment times, placement, and the windows and gaps of the metering."""
        meter = self._snapshot.meter
        if self.setup.mesh is not None:
            self.collected.notes["proofs_not_asked"] = list(proofs.applicable_proofs(self.setup)[1])
        resources = {"windows": meter.windows, "missing": list(meter.notes), "memory": MEMORY_NOTE}
        self.collected.notes["resources"] = resources
        return self.collected

    def collect_logs(self, folder: Path) -> None:
        """Write the logs of containers, for a few pods per component; if a pod was lost, write all evidence too."""
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(TestbedError):
            if self.invalid_reason():
                for name, text in wait.gather_evidence(self.cluster, self._namespaces).items():
                    (folder / name).write_text(text)
        seen: dict[str, int] = {}
        for pod in {uid(pod): pod for pod in chain(*self._snapshot.context.pods.values())}.values():
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
        """Remove everything, unless the testbed keeps it; an empty namespace may still be in its deletion."""
        if not self.keep:
            self.remove(at_once=True)
            return
        for change in sorted(self._away):
            self.change(change, on=False)

    def remove(self, *, at_once: bool = False) -> None:
        """Delete the namespace and the objects outside of it, and wait until they are gone.

        Without objects outside, ``at_once`` waits only for the pods: the next deployment has another namespace, and is
        measured after this one is gone (:meth:`Applier.wait_for_deletions`).
        """
        name, patience_s = self.setup.namespace, self.setup.options.deploy_timeout_s
        try:
            wait.force_lost_pods(self.cluster, name)
            uid = begin_deletion(self.cluster, name, self.applier.owner.id)
            if at_once and uid and name not in self.applier.homes and self._emptied():
                self.applier.note_deletion(name, uid, patience_s)
                return
            if uid:
                wait.gone(self.cluster, f"/api/v1/namespaces/{name}", uid, patience_s)
            # After the pods: a control plane may refuse to delete what they still use (Kuma's Mesh).
            self.applier.delete_outside([name])
        except KeyboardInterrupt:
            study = self.applier.owner.study
            print(
                f"interrupted: namespace {name} may remain; '{clean_command(self.cluster.context, study)}' removes it",
                file=sys.stderr,
            )
            raise

    def _emptied(self) -> bool:
        """Return whether its pods end within seconds when scaled to zero: a namespace's deletion reaches them later."""
        name = self.setup.namespace
        for item in self.rendered.objects:
            if item["kind"] == "Deployment":
                path = f"/apis/apps/v1/namespaces/{name}/deployments/{item['metadata']['name']}"
                with contextlib.suppress(TestbedError):
                    self.cluster.merge(path, {"spec": {"replicas": 0}})
        return not waiting.until(lambda: pods_of(self.cluster, name), _EMPTIED_S, 0.1, lambda pods: not pods)

    def invalid_reason(self) -> str:
        """Return why the run is invalid, or an empty text; asked once, without patience."""
        # Pods that were replaced on purpose are not lost.
        before = [pod for pod in self._snapshot.pods if uid(pod) not in self._replaced]
        now: dict[str, Json] = {}
        for namespace in dict.fromkeys(pod["metadata"]["namespace"] for pod in before):
            try:
                now |= {uid(pod): pod for pod in pods_of(self.cluster, namespace, once_s=3.0)}
            except NotFoundError:
                return f"namespace {namespace} is gone"
        return next((why for why in (loss_reason(pod, now.get(uid(pod))) for pod in before) if why), "")

    def _invalid_reason(self) -> str:
        """Return why the run is invalid; nothing where the API server does not answer."""
        with contextlib.suppress(TestbedError):
            return self.invalid_reason()
        return ""

    def _placement(self, phase: str) -> Proof:
        pods = self._snapshot.context.pods
        apps = {str(pod["spec"].get("nodeName")) for pod in (*pods["app"], *pods["waypoint"])}
        loads = {str(pod["spec"].get("nodeName")) for pod in pods["load"]}
        apart = self.setup.options.load_separation == "required"
        seen = f"generators on {', '.join(sorted(loads)[:5])}; app on {', '.join(sorted(apps)[:5])}"
        expected = "generators on nodes of their own" if apart else "any"
        return Proof("planned placement", phase, not (apart and apps & loads), expected, seen)

    def _wait_path(self) -> None:
        # Proxies receive each other's addresses after they are ready, so the deployment ends with the first answer.
        url, name = self.rendered.inside + self.setup.app.path, self.setup.treatment.name

        def missing() -> str:
            for pod in self.load_pods[:3]:
                answer = probing.request(self.cluster, pod, url, self.target.headers)
                if answer.status != 200:
                    return f"{name}: {url} does not answer 200 from {pod.name}: {answer.detail}"
            return ""

        wait.until(missing, min(self.setup.options.deploy_timeout_s, 60.0), every_s=0.5)

    @property
    def load_pods(self) -> list[PodRef]:
        """The generators' containers."""
        return [pod_ref(pod, "fortio") for pod in self._snapshot.context.pods["load"]]
