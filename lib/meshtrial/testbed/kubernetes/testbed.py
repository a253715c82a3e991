"""The Kubernetes backend's front: one session, one owner, its meshes and its deployments.

How fresh a run is, is the user's choice and recorded: mesh and application are reinstalled every run, every block
or once. At most one mesh is installed at a time, unless the user says that their cluster bears several.
"""

import atexit
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from meshtrial import waiting
from meshtrial.design.load import Load
from meshtrial.design.study import APP_NAME, Study, Treatment
from meshtrial.envoy.tokens import Tokens, make_tokens
from meshtrial.errors import MeshtrialError, TestbedError, UsageError
from meshtrial.testbed.base import Block, MachineUse
from meshtrial.testbed.kubernetes import helm, manifests, placement, preflight, unused, wait, workload
from meshtrial.testbed.kubernetes.apply import (
    OWNER,
    Applier,
    Owner,
    clean_command,
    delete_namespace,
    is_borrowed,
    label,
)
from meshtrial.testbed.kubernetes.apps import read_app
from meshtrial.testbed.kubernetes.charts import Charts
from meshtrial.testbed.kubernetes.cleanup import clean_cluster, mesh_of, owned_namespaces
from meshtrial.testbed.kubernetes.client import Cluster
from meshtrial.testbed.kubernetes.deployment import KubernetesDeployment, restartable
from meshtrial.testbed.kubernetes.execs import PodRef
from meshtrial.testbed.kubernetes.lease import DURATION_S, SessionLease, running
from meshtrial.testbed.kubernetes.manifests import cpu_millis
from meshtrial.testbed.kubernetes.meshdata import EVERYTHING, Mesh
from meshtrial.testbed.kubernetes.meshes import MeshInstaller
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.placement import FreeResources, NodeAssignment
from meshtrial.testbed.kubernetes.pods import is_ready, pod_ref, pods_of, uid
from meshtrial.testbed.kubernetes.resources import NodeWatch, describe

# A Lease that was renewed just before its session died, and clocks that are read a moment apart.
_AFTER_LEASE_S = 20.0
# What a mesh that is about to come is thought to take of the node where it lands, at the most.
_NO_ROOM, _MESH_ROOM = FreeResources(), FreeResources(1.0, 2 * 2**30, 5)


def policy_record(
    options: KubernetesOptions, installer: MeshInstaller, reinstalled: bool, because: str = ""
) -> dict[str, Any]:
    """The reinstall policy and what it came to, for ``run.json``.

    ``because`` is what had befallen the mesh that stood, where it was reinstalled out of turn.
    """
    now = time.time()
    record: dict[str, Any] = {
        "mesh_install": options.mesh_install,
        "mesh_reinstall": options.mesh_reinstall,
        "app_reinstall": options.app_reinstall,
        "mesh_installed_for_this_run": reinstalled,
        "installed_meshes": {name: round(now - at, 1) for name, at in installer.installed.items()},
        "install_s": {name: round(s, 2) for name, s in installer.install_s.items()},
    }
    if because:
        record["reinstalled_because"] = because
    if installer.appeared:
        record["appeared_and_left_alone"] = list(installer.appeared)
    return record


@dataclass
class PendingGroup:
    """What stands next: the deployments that were made ready at once, and their meshes on the way."""

    treatments: list[Treatment] = field(default_factory=list)  # not deployed yet
    alone: bool = True
    place: NodeAssignment = field(default_factory=NodeAssignment)
    namespaces: set[str] = field(default_factory=set)  # of those that are deployed
    cleared: Future[None] | None = None  # of what may not stand beside their meshes; None where nothing had to go
    installs: Mapping[str, Future[tuple[bool, str]]] = field(default_factory=dict)  # by mesh

    def wait_cleared(self) -> None:
        """Wait until what had to go is gone."""
        if self.cleared is not None:
            self.cleared.result()


class KubernetesTestbed:
    """Implements :class:`meshtrial.testbed.base.Testbed` on a cluster, from a study's options.

    ``owner_id`` is that under which an earlier session began the study that goes on now; empty for a new one.
    """

    __test__ = False
    name = "kubernetes"

    def __init__(self, options: Mapping[str, Any] | None = None, owner_id: str = "") -> None:
        self.options = KubernetesOptions.read(options or {})
        self.meshes = find_meshes(self.options)
        self.cluster = Cluster(self.options.kubeconfig, self.options.context, self.options.api_patience_s)
        self.charts = Charts(self.options)
        self._lease: SessionLease | None = None
        self._goes_on = bool(owner_id)
        self._use(Owner("study", owner_id) if owner_id else Owner("study"))
        self.probe: PodRef | None = None
        self._block = ""  # whose runs were last made ready, and where it stands
        self._placed: tuple[str, NodeAssignment | None] = ("", None)
        self._kept: dict[str, KubernetesDeployment] = {}
        self._last: KubernetesDeployment | None = None
        self._nodes = NodeWatch(self.cluster)
        self._touched = self._closed = self._growing = False
        self._lock = threading.RLock()
        self._installing = ThreadPoolExecutor(1, thread_name_prefix="meshes")
        self.next = PendingGroup()
        atexit.register(self.close)

    def _use(self, owner: Owner) -> None:
        self.applier = Applier(self.cluster, owner, self.options.pull_secrets)
        self.installer = MeshInstaller(self.cluster, self.options, self.applier, self.charts)
        self.namespace = self.options.namespace or f"meshtrial-{label(owner.study)}"

    @property
    def _probe_namespace(self) -> str:
        return f"{self.namespace}-probe"

    def recover(self, study: Study, tell: Callable[[str], None]) -> None:
        """Remove what an earlier session of this study left, once its Lease is over: a crash leaves namespaces behind.

        A session that still lives, and what remains, is a TestbedError.
        """
        if not self._goes_on:
            return
        self._use_for(study)
        owner = self.applier.owner.id
        patience_s = DURATION_S + _AFTER_LEASE_S
        alive = waiting.until(lambda: running(self.cluster).get(owner), patience_s, 2.0, lambda words: not words)
        if alive:
            raise TestbedError(f"{alive}: wait for it, or end it, and start again")
        done = clean_cluster(self.cluster, self.options, owner_id=owner)
        if done.remaining:
            raise TestbedError("; ".join(done.lines))
        if done.removed:
            tell(f"left by an earlier session and removed: {', '.join(done.removed)}")

    def _use_for(self, study: Study) -> None:
        if study.name != self.applier.owner.study and self.probe is None:
            # The id stays: it is the study's as much as the session's, so that going on after a crash finds its own.
            self._use(replace(self.applier.owner, study=study.name))

    def preflight(self, study: Study) -> tuple[str, ...]:
        """Say what is missing for this study: rights, nodes, room, names, programs, CRDs, metrics."""
        self._growing = study.order == "growing"
        self._use_for(study)
        for treatment in study.treatments:
            self._can_restart(treatment, self.mesh_for(treatment))
        try:
            self.cluster.get("/version")
            return tuple(self._problems(study))
        except TestbedError as error:
            return (str(error),)

    def _problems(self, study: Study) -> list[str]:
        planes = {t.versioned for t in study.treatments}
        installs = any(name in planes and not mesh.reference for name, mesh in self.meshes.items())
        borrowed = [
            name for name in (self.namespace, self._probe_namespace) if is_borrowed(self.applier.find_namespace(name))
        ]
        further = [*unused.RIGHTS] if any(load.unused_services for load in study.loads) else []
        further += [("patch", "secrets", "")] if self.options.pull_secrets else []
        problems = preflight.right_problems(self.cluster, self.options, installs, borrowed, further)
        if problems:
            return problems
        nodes = placement.nodes(self.cluster)
        unplaced = preflight.placement_problems(self.options, nodes)
        problems += unplaced
        problems += preflight.pull_secret_problems(self.cluster, self.options)
        problems += preflight.namespace_problems(self.applier, (self.namespace, self._probe_namespace))
        problems += preflight.mesh_problems(self.cluster, self.installer, study, self.meshes)
        largest = max(study.loads, key=lambda item: (item.replicas, item.asked_rps))
        together = self.together(study.treatments) if study.take_turns(largest) else [[t] for t in study.treatments]
        problems += preflight.borrowed_problems(borrowed, max(map(len, together)))
        if preflight.pods_have_ipv6(self.cluster):
            apps, tokens = [t.app or study.app for t in study.treatments], make_tokens()
            pairs = zip(study.treatments, apps, strict=True)
            problems += preflight.ipv4_problems(
                [self._render(one, largest, app, self.namespace, tokens, NodeAssignment()) for one, app in pairs]
            )
        for group in together if not unplaced else ():
            anywhere = Block("", np.random.default_rng(0))
            _, lines = self._settle(group, largest, study.app, anywhere)
            problems += lines
        if nodes and not self._nodes.read([nodes[0].name]):
            problems.append(
                f"node {nodes[0].name}: its kubelet's metrics cannot be read; no CPU or memory without them"
            )
        return list(dict.fromkeys(problems))

    def environment(self) -> dict[str, Any]:
        """Cluster, nodes, versions and every option."""
        told: dict[str, Any] = {
            "backend": self.name,
            "context": self.cluster.context,
            "cluster": self._cluster_id(),
            "kubernetes": self.cluster.get("/version").get("gitVersion"),
            "nodes": [describe(item) for item in self.cluster.items("/api/v1/nodes")],
            "meshes": {name: mesh.version for name, mesh in self.meshes.items()},
            "charts": self.charts.record(),
            "options": json.loads(json.dumps(self.options.echo())),
            "owner": self.applier.owner.id,
        }
        with contextlib.suppress(MeshtrialError):
            told["helm"] = helm.version(self.options)
        return told

    def _cluster_id(self) -> str | None:
        """The uid of its oldest namespace, by which a cluster is told from others whatever its context is called."""
        with contextlib.suppress(TestbedError):
            return str(self.cluster.get("/api/v1/namespaces/kube-system")["metadata"]["uid"])
        return None

    def before_run(self) -> dict[str, float]:
        """Idle share of the nodes over the kubelets' last interval."""
        idle = self._nodes.idle()
        return {} if idle is None else {"idle_before": idle}

    def used_between(self) -> MachineUse | None:
        """Use of the nodes since the last call; None where no new reading came meanwhile."""
        return self._nodes.used_between()

    def watch(self, begun: Path | None = None) -> None:
        """Nothing: a node's total holds its own daemons too."""

    def generator_cpus(self) -> float:
        """Cores that the generators of the last deployment may use: their limits, else their nodes."""
        if self._last is None:
            return 1.0
        count = self._last.rendered.load_pods
        if self.options.load_cpu:
            return count * cpu_millis(self.options.load_cpu) / 1000
        nodes = {pod.node for pod in self._last.load_pods}
        return sum(n.room.cpu for n in placement.nodes(self.cluster) if n.name in nodes) or 1.0

    def together(self, treatments: Sequence[Treatment]) -> list[list[Treatment]]:
        """Groups whose meshes may stand at once, and do not want what their deployments share otherwise."""
        groups: list[list[Treatment]] = []
        for treatment in treatments:
            fitting = (group for group in groups if all(self._may_stand_beside(treatment, one) for one in group))
            group = next(fitting, None)
            if group is None:
                groups.append([treatment])
            else:
                group.append(treatment)
        return groups

    def _may_stand_beside(self, one: Treatment, other: Treatment) -> bool:
        own, its = self.mesh_for(one), self.mesh_for(other)
        if own is None or its is None or own.reference or its.reference:
            return True
        if own.name != its.name:
            return self.options.mesh_install == "existing" or self._may_share(own.name, its)
        features, others = own.check(one), own.check(other)
        once = ({name for f in side if f.once for name in f.manifests} for side in (features, others))
        if EVERYTHING in own.shared or set.intersection(*once):
            return False
        shared, wanted = workload.shared_of(own, features), workload.shared_of(own, others)
        return all(wanted.get(key, item) == item for key, item in shared.items())

    def make_ready(self, treatments: Sequence[Treatment], load: Load, app: str, block: Block) -> None:
        """Draw where they stand, reckon whether there is room, and begin with their meshes.

        Meshes are made anew as the policy says, one after the other, in a thread of their own: what has none is stood
        up meanwhile, and :meth:`deploy` waits for its own.
        """
        self._touched = True
        self.hold()
        self._forget_lost_probe()
        self.probe_pod()
        new_block = not block.name or block.name != self._block
        self._block = block.name
        # A deployment that grows stays where it is, on the mesh that it has.
        self.next = replace(self.next, treatments=list(treatments), namespaces=set())
        if any(self._smaller(treatment, load) for treatment in treatments):
            return
        self._remove_standing(new_block, [self._key(t, load, t.app or app) for t in treatments])
        self.next.alone = len(treatments) == 1
        meshes = {m.name: m for m in map(self.mesh_for, treatments) if m is not None}
        anew = self.options.mesh_reinstall == "run" or (self.options.mesh_reinstall == "block" and new_block)
        coming = [n for n, mesh in meshes.items() if not mesh.reference and (anew or n not in self.installer.installed)]
        spare = sum((_MESH_ROOM for _ in coming), FreeResources())
        self.next.place, problems = self._settle(treatments, load, app, block, spare)
        tight = block.drawn is not None and bool(problems)
        if tight:
            self._require_placement(treatments, load, app, block)
        self.next.cleared = self._installing.submit(self.remove_meshes, tuple(meshes.values()), new_block)
        self.next.installs = {name: self._installing.submit(self._install, mesh) for name, mesh in meshes.items()}
        if tight and coming:
            # Where its pods stand is known once it stands; what they leave may not be enough.
            for install in self.next.installs.values():
                install.exception()  # which is that of its own deployments
            self._require_placement(treatments, load, app, block)

    def _require_placement(self, treatments: Sequence[Treatment], load: Load, app: str, block: Block) -> None:
        self.next.place, problems = self._settle(treatments, load, app, block)
        if problems:
            raise TestbedError("; ".join(problems))

    def _install(self, mesh: Mesh) -> tuple[bool, str]:
        """Make a mesh stand as it should: whether it was installed now, and what had befallen the one that stood."""
        self.next.wait_cleared()
        because = self.remove_broken(mesh)
        if not mesh.reference and mesh.name in self.installer.installed:
            return False, because
        self.installer.install(mesh)
        return mesh.name in self.installer.installed, because

    def _settle(
        self,
        treatments: Sequence[Treatment],
        load: Load,
        app: str,
        block: Block,
        spare: FreeResources = _NO_ROOM,
    ) -> tuple[NodeAssignment, list[str]]:
        """Where deployments stand that stand at once, and why they do not fit; so much is to be left on each node."""
        anew = [t for t in treatments if self._key(t, load, t.app or app) not in self._kept]
        if not anew:
            return self.next.place, []
        nodes, tokens = placement.nodes(self.cluster), make_tokens()
        rendered = [self._render(t, load, t.app or app, self.namespace, tokens, NodeAssignment()) for t in anew]
        left = [replace(node, room=node.room - spare) for node in placement.free(self.cluster, nodes)]
        problems = preflight.capacity_problems(rendered, left)
        if any(one.setup.app.tiers for one in rendered) or block.drawn is None:
            hosts = placement.load_hosts(self.options, nodes, max(one.load_pods for one in rendered), block.drawn)
            return NodeAssignment(load=hosts), problems
        needs = placement.both_sides(rendered)
        # What follows in the block, or is repeated, stands where the first of it stood, while there is room.
        earlier, place = self._placed
        if earlier != block.name or not placement.bears(place, left, *needs):
            place = placement.drawn(self.options, left, *needs, block.drawn)
        self._placed = (block.name, place)
        if place is None and not problems:
            problems = [
                f"{rendered[0].setup.app.name} at {load.label}, {len(rendered)} deployments at once: no nodes have "
                "room for all of their generators and, apart from these, of their applications; "
                "take deployment_mode=sequential, or add nodes"
            ]
        return place or NodeAssignment(), problems

    def deploy(self, treatment: Treatment, load: Load, app: str) -> KubernetesDeployment:
        """Make a fresh deployment, as fresh as the reinstall policy says; of those that were made ready, or alone."""
        with self._lock:
            if treatment not in self.next.treatments:
                self.make_ready([treatment], load, app, Block("", None))
            self.next.treatments.remove(treatment)
        mesh = self.mesh_for(treatment)
        app = treatment.app or app
        grown = self._grown(treatment, load, app)
        reinstalled, because = False, ""
        if mesh is not None and not grown:
            reinstalled, because = self.next.installs[mesh.name].result()
        made = grown or self._anew(treatment, load, app, mesh)
        self._wait_for_previous_removal(made)
        # Which meshes stand is known once those that had to go are gone.
        policy = policy_record(self.options, self.installer, reinstalled, because)
        if grown:
            policy["app_reinstall"] = "grown"
        if mesh is not None and mesh.name in self.installer.installed:
            made.installed_from = self.installer.sources(mesh)
        made.told.notes["policy"] = policy
        made.told.fresh = policy.get("app_reinstall", "run") == "run"
        self._last = made
        return made

    def _wait_for_previous_removal(self, made: KubernetesDeployment) -> None:
        """Wait until the last deployments' namespaces are gone, and their meshes: no removal may be measured."""
        try:
            self.next.wait_cleared()
            self.applier.wait_for_deletions()
        except BaseException:
            with contextlib.suppress(TestbedError):
                made.close()
            raise

    def _anew(self, treatment: Treatment, load: Load, app: str, mesh: Mesh | None) -> KubernetesDeployment:
        """A deployment that is as fresh as the policy says."""
        key = self._key(treatment, load, app)
        kept = self._growing or self.options.app_reinstall != "run"
        if kept and key in self._kept:
            made = self._kept[key]
            made.look()
        else:
            made = self._fresh(treatment, load, app, mesh, key, kept)
            if kept:
                self._kept[key] = made
        return made

    @staticmethod
    def _key(treatment: Treatment, load: Load, app: str) -> str:
        return f"{treatment.name} {load.label} {app}"

    def _smaller(self, treatment: Treatment, load: Load) -> bool:
        """Whether a deployment stands that will grow to what is asked for, on a mesh that is whole."""
        mesh = self.mesh_for(treatment)
        smaller = any(
            made.setup.treatment == treatment and made.setup.load.replicas < load.replicas
            for made in self._kept.values()
        )
        return self._growing and smaller and (mesh is None or not self.installer.broken(mesh.name))

    def _grown(self, treatment: Treatment, load: Load, app: str) -> KubernetesDeployment | None:
        """The treatment's deployment with more copies; None where there is no smaller one, for those go before."""
        for made in tuple(self._kept.values()) if self._growing else ():
            before = made.setup
            if before.treatment == treatment and before.load.replicas < load.replicas:
                assert before.tokens is not None
                made.grow(self._render(treatment, load, app, before.namespace, before.tokens, self.next.place))
                return made
        return None

    def _fresh(
        self, treatment: Treatment, load: Load, app: str, mesh: Mesh | None, key: str, kept: bool
    ) -> KubernetesDeployment:
        suffix = f"-{hashlib.sha256(key.encode()).hexdigest()[:6]}" if kept or not self.next.alone else ""
        with self._lock:
            namespace = self.free_name(self.namespace + suffix)
            self.next.namespaces.add(namespace)
        if mesh is not None and EVERYTHING in mesh.shared:
            self.applier.wait_for_deletions()  # what goes has names that this one takes
        rendered = self._render(treatment, load, app, namespace, make_tokens(), self.next.place)
        made = KubernetesDeployment(self.applier, rendered, self.probe_pod(), kept)
        try:
            made.stand_up()
        except TestbedError as error:
            raise self.with_mesh(error, mesh) from None
        return made

    def with_mesh(self, error: TestbedError, mesh: Mesh | None) -> TestbedError:
        """The error, with what has befallen the mesh where that may be why."""
        with contextlib.suppress(TestbedError):
            why = self.installer.broken(mesh.name) if mesh is not None and mesh.name in self.installer.installed else ""
            if why:
                return TestbedError(f"{why}; {error}", error.evidence)
        return error

    def free_name(self, namespace: str) -> str:
        """The name, or the next one where a namespace of ours remains: nothing in it would be fresh.

        It may hang in its deletion, for its node may be gone, or nobody could be asked to delete it.
        """
        for name in (namespace, *(f"{namespace}-{n}" for n in range(2, 10))):
            there = self.applier.find_namespace(name)
            owner = (there["metadata"].get("labels") or {}).get(OWNER) if there is not None else None
            remains = owner == self.applier.owner.id and not is_borrowed(there)
            if there is None or not (remains or there.get("status", {}).get("phase") == "Terminating"):
                return name
        raise TestbedError(f"namespace {namespace} and eight more remain; look at 'kubectl get ns'")

    def close(self) -> None:
        """Remove deployments, the probe and the meshes of this session; says what remains."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if self.options.keep or not self._touched:
            self._release()
            return
        self._installing.shutdown(cancel_futures=True)
        left_over, self.next = self.next.namespaces | self._own_namespaces(), PendingGroup()
        failures: list[str] = []
        steps = [self.applier.wait_for_deletions, *(made.remove for made in self._kept.values())]
        self._kept.clear()
        steps += [lambda n=name: self._remove_namespace(n) for name in left_over]  # type: ignore[misc]
        steps += [lambda n=name: self.uninstall(n) for name in self.installer.standing]  # type: ignore[misc]
        # A renewal in the middle of it would make the Lease anew, in a namespace that may be a lent one.
        if self._lease is not None:
            steps.append(self._lease.stop)
        steps.append(self._remove_probe)
        try:
            for step in steps:
                try:
                    step()
                except TestbedError as error:
                    failures.append(str(error))
            left = owned_namespaces(self.cluster, owner_id=self.applier.owner.id)
            failures += [f"namespace {item['metadata']['name']} remains" for item in left]
        except TestbedError as error:
            failures.append(str(error))
        finally:
            self._release()
        if failures:
            hint = clean_command(self.cluster.context, self.applier.owner.study)
            raise TestbedError(
                f"not everything could be removed: {'; '.join(failures)}; try '{hint}', with the study's own "
                "--cluster-file where it had one"
            )

    def _release(self) -> None:
        if self._lease is not None:
            self._lease.release()
        self.charts.close()

    def mesh_for(self, treatment: Treatment) -> Mesh | None:
        """The mesh that a treatment asks for, None for none; a UsageError where there is no such mesh or feature."""
        if treatment.dataplane != "none" and treatment.dataplane not in self.meshes:
            known = ", ".join(name for name, mesh in self.meshes.items() if mesh.declared is None)
            raise UsageError(f"treatment {treatment.name}: known on Kubernetes are none, {known}")
        if treatment.version and treatment.versioned not in self.meshes:
            raise UsageError(self._no_version(treatment))
        mesh = self.meshes[treatment.versioned] if treatment.dataplane != "none" else None
        workload.features_of(treatment, mesh)
        return mesh

    def _no_version(self, treatment: Treatment) -> str:
        """What a treatment with a version that is not there was understood as, and what would be."""
        name, version = treatment.dataplane, treatment.version
        understood = f"treatment {treatment.name}: understood as version {version} of {name}"
        if name == "none" or self.meshes[name].reference:
            yours = f"; an app of yours is written {name}@@{version}" if APP_NAME.fullmatch(version) else ""
            return f"{understood}, which has none on a cluster{yours}"
        declared = [other.removeprefix(f"{name}@") for other in self.meshes if other.startswith(f"{name}@")]
        known = f"declared are {', '.join(declared)}" if declared else "none is declared"
        where = f"meshes.{name}.versions in the cluster_file"
        return f"{understood}; {known} ({where}); an app of yours is written {name}@@NAME"

    def _can_restart(self, treatment: Treatment, mesh: Mesh | None) -> None:
        """Refuse a restart of what is not there, or not ours."""
        part = treatment.restart
        if part and not restartable(mesh, part):
            sidecars = mesh is not None and part == "proxies"
            hint = (
                "its proxies are in the app's pods: take restart-app" if sidecars else "only its app can be restarted"
            )
            raise UsageError(f"treatment {treatment.name}: there is no {part} of its own; {hint}")
        if part not in ("", "app") and self.options.mesh_install == "existing":
            raise UsageError(f"treatment {treatment.name}: what stood before the study is not restarted")

    def _render(
        self, treatment: Treatment, load: Load, app: str, namespace: str, tokens: Tokens, place: NodeAssignment
    ) -> workload.Rendered:
        read, mesh = read_app(self.options, app, load.protocols), self.mesh_for(treatment)
        named = self.charts.named(mesh) if mesh is not None else None
        options = self.options
        setup = workload.Setup(options, namespace, treatment, load, read, named, tokens, place.load, place.app)
        return workload.render(setup)

    def remove_meshes(self, wanted: Sequence[Mesh], new_block: bool) -> None:
        """Uninstall what may not stand beside the wanted meshes, or no longer by the policy."""
        policy = self.options.mesh_reinstall
        for name in tuple(self.installer.standing):
            # One that did not become ready, or did not go, would disturb whatever runs beside it.
            half = name not in self.installer.installed
            stale = half or policy == "run" or (policy == "block" and new_block)
            crowded = any(name != one.name and not self._may_share(name, one) for one in wanted)
            if stale or crowded:
                self.uninstall(name)

    def _may_share(self, standing: str, wanted: Mesh) -> bool:
        """Whether one may stay while the other is installed: never in the same namespace, as Istio's two modes are."""
        apart = set(self.meshes[standing].namespaces).isdisjoint(wanted.namespaces)
        return self.options.meshes_side_by_side and apart

    def remove_broken(self, mesh: Mesh) -> str:
        """Uninstall the mesh where it stands and is not as it was installed; why."""
        because = self.installer.broken(mesh.name) if mesh.name in self.installer.installed else ""
        if because:
            self.uninstall(mesh.name)
        return because

    def uninstall(self, name: str) -> None:
        """Uninstall a mesh, after everything of the study that leans on it: its control plane clears finalizers."""
        self.applier.wait_for_deletions()
        for key, made in list(self._kept.items()):
            if made.setup.mesh is not None and made.setup.mesh.name == name:
                self._kept.pop(key).remove()
        # Asked before what is kept: what is stood up meanwhile has its name there before it is made.
        there, homes = owned_namespaces(self.cluster, owner_id=self.applier.owner.id), {*self.applier.homes}
        kept = {self._probe_namespace, *self.next.namespaces, *(made.setup.namespace for made in self._kept.values())}
        for item in there:
            left = item["metadata"]["name"]
            # One of a treatment that could not be removed; where it hangs in its deletion, waiting again mends nothing.
            if left not in kept and not mesh_of(item) and item["status"].get("phase") != "Terminating":
                delete_namespace(self.cluster, left, self.applier.owner.id, self.options.deploy_timeout_s)
        self.applier.delete_outside(homes - kept)
        self.installer.uninstall(name)

    def hold(self) -> None:
        """Show that this session lives, from its first deployment on: nobody then cleans up under it."""
        if self._lease is None:
            self.applier.namespace(self._probe_namespace)
            lease = SessionLease(self.cluster, self.applier.owner, self._probe_namespace)
            lease.hold()
            self._lease = lease

    def _remove_standing(self, new_block: bool, wanted: Sequence[str]) -> None:
        """Remove what does not outlive its block, and within one what is wanted again because its run failed."""
        for key in list(self._kept):
            if self._growing or (self.options.app_reinstall == "block" and (new_block or key in wanted)):
                self._kept.pop(key).remove()

    def _forget_lost_probe(self) -> None:
        """See that the pod outside is still the one that was made, so that a lost one costs the runs of one block."""
        if self.probe is None:
            return
        pods = pods_of(self.cluster, self.probe.namespace)
        if any(uid(pod) == self.probe.uid and is_ready(pod) for pod in pods):
            return
        for pod in pods:
            path = f"/api/v1/namespaces/{self.probe.namespace}/pods/{pod['metadata']['name']}"
            self.cluster.delete(path, grace_s=0, uid=uid(pod))
        self.probe = None

    def probe_pod(self) -> PodRef:
        """Return the pod outside of every mesh, made when it is first asked for."""
        if self.probe is not None:
            return self.probe
        name = self._probe_namespace
        self.applier.namespace(name)
        objects = manifests.patched(
            manifests.read(self.options.folder / "loadgen" / "probe.yaml"),
            manifests.in_namespace(name),
            manifests.images(self.options.images, self.options.image_pull_policy),
            manifests.pulled_with([name for _, name in self.options.pull_secrets]),
            manifests.placed(self.options.app_node_selector, self.options.app_tolerations),
        )
        try:
            self.applier.apply(objects)
            pods = wait.pods_ready(self.cluster, name, "", 1, self.options.deploy_timeout_s)
        except BaseException:
            with contextlib.suppress(TestbedError):
                self._remove_probe()
            raise
        self.probe = pod_ref(pods[0], "fortio")
        return self.probe

    def _own_namespaces(self) -> set[str]:
        """Namespaces of deployments of this session, also those that could not be removed in their time."""
        with contextlib.suppress(TestbedError):
            owned = owned_namespaces(self.cluster, owner_id=self.applier.owner.id)
            return {item["metadata"]["name"] for item in owned if not mesh_of(item)} - {self._probe_namespace}
        return set()

    def _remove_namespace(self, name: str) -> None:
        delete_namespace(self.cluster, name, self.applier.owner.id, self.options.deploy_timeout_s)
        self.applier.delete_outside([name])

    def _remove_probe(self) -> None:
        self.probe = None
        owner = self.applier.owner.id
        delete_namespace(self.cluster, self._probe_namespace, owner, self.options.deploy_timeout_s)
