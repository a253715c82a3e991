"""The Kubernetes backend: one session with one owner, its meshes and its deployments.

The user chooses how fresh a run is, which is recorded: mesh and application are reinstalled for every run, every block
or once. At most one mesh is installed at a time, unless the user allows several.
"""

import atexit
import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from meshtrial import waiting
from meshtrial.design.generated import systems_of
from meshtrial.design.load import Load
from meshtrial.design.study import APP_NAME, Study, Treatment
from meshtrial.envoy.keys import Tokens, make_tokens
from meshtrial.errors import MeshtrialError, TestbedError, UsageError
from meshtrial.testbed.base import Block, MachineUse
from meshtrial.testbed.kubernetes import apps, helm, placement, preflight, workload
from meshtrial.testbed.kubernetes.apply import (
    OWNER,
    Applier,
    Owner,
    clean_command,
    is_borrowed,
    label,
)
from meshtrial.testbed.kubernetes.apps import read_app
from meshtrial.testbed.kubernetes.cleanup import clean_cluster, mesh_of, owned_namespaces
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.deployment import KubernetesDeployment, restartable
from meshtrial.testbed.kubernetes.manifests import cpu_millis
from meshtrial.testbed.kubernetes.meshdata import EVERYTHING, Mesh, find_meshes
from meshtrial.testbed.kubernetes.meshes import MeshInstaller
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.placement import BlockNodes, FreeResources
from meshtrial.testbed.kubernetes.resources import NodeWatch, describe
from meshtrial.testbed.kubernetes.session import DURATION_S, Session, running_sessions
from meshtrial.testbed.kubernetes.workload import NodeAssignment, Setup

# For a Lease that was renewed just before its session died, and for clocks that are read a moment apart.
_AFTER_LEASE_S = 20.0
# The most that a mesh which is about to be installed uses on a node.
_MESH_ROOM = FreeResources(1.0, 2 * 2**30, 5)


@dataclass
class PendingGroup:
    """The concurrent deployments that are made next, and the installation of their meshes."""

    treatments: list[Treatment] = field(default_factory=list)  # not deployed yet
    alone: bool = True
    nodes: NodeAssignment = field(default_factory=NodeAssignment)
    namespaces: set[str] = field(default_factory=set)  # of the deployments that were made
    cleared: Future[None] | None = None  # the removal of meshes that must not be installed meanwhile
    installs: Mapping[str, Future[tuple[bool, str]]] = field(default_factory=dict)  # by mesh

    def wait_cleared(self) -> None:
        """Wait until meshes that had to be removed are gone."""
        if self.cleared is not None:
            self.cleared.result()


class KubernetesTestbed:
    """Implements :class:`meshtrial.testbed.base.Testbed` on a cluster, from a study's options.

    ``owner_id`` is the owner of the earlier session of a study that is resumed, which so finds its own objects; empty
    for a new study.
    """

    __test__ = False
    name = "kubernetes"

    def __init__(self, options: Mapping[str, Any] | None = None, owner_id: str = "", study: str = "study") -> None:
        self.options = KubernetesOptions.read(options or {})
        self._systems = systems_of(options or {})
        self.meshes = find_meshes(self.options)
        self.cluster = Cluster(self.options.kubeconfig, self.options.context, self.options.api_patience_s)
        self._resuming = bool(owner_id)
        owner = Owner(study, owner_id) if owner_id else Owner(study)
        self.applier = Applier(self.cluster, owner, self.options.pull_secrets)
        self.installer = MeshInstaller(self.cluster, self.options, self.applier)
        self.namespace = self.options.namespace or f"meshtrial-{label(study)}"
        self.session = Session(self.applier, self.options, f"{self.namespace}-probe")
        self._block_nodes = BlockNodes(self.cluster, self.options)
        self._kept: dict[str, KubernetesDeployment] = {}
        self._last: KubernetesDeployment | None = None
        self._nodes = NodeWatch(self.cluster)
        self._touched = self._closed = self._growing = False
        self._lock = threading.RLock()
        self._installing = ThreadPoolExecutor(1, thread_name_prefix="meshes")
        self.next = PendingGroup()
        atexit.register(self.close)

    def recover(self, study: Study, tell: Callable[[str], None]) -> None:
        """Remove what an earlier session of this study left, once its Lease has expired.

        A living session, or an object that remains, is a TestbedError.
        """
        if not self._resuming:
            return
        owner = self.applier.owner.id
        patience_s = DURATION_S + _AFTER_LEASE_S
        alive = waiting.until(lambda: running_sessions(self.cluster).get(owner), patience_s, 2.0, lambda line: not line)
        if alive:
            raise TestbedError(f"{alive}: wait for it, or end it, and start again")
        cleaned = clean_cluster(self.cluster, self.options, owner_id=owner)
        if cleaned.remaining:
            raise TestbedError("; ".join(cleaned.lines))
        if cleaned.removed:
            tell(f"removed what an earlier session left: {', '.join(cleaned.removed)}")

    def preflight(self, study: Study) -> tuple[str, ...]:
        """Return what is missing for this study: rights, nodes, room, names, programs, CRDs, metrics."""
        self._growing = study.order == "growing"
        for treatment in study.treatments:
            self._require_restartable(treatment, self.mesh_for(treatment))
        try:
            self.cluster.get("/version")
            return tuple(self._problems(study))
        except TestbedError as error:
            return (str(error),)

    def _problems(self, study: Study) -> list[str]:
        planes = {t.versioned for t in study.treatments}
        installs = any(name in planes and not mesh.reference for name, mesh in self.meshes.items())
        borrowed = [
            name for name in (self.namespace, self.session.namespace) if is_borrowed(self.applier.find_namespace(name))
        ]
        further = [*apps.UNUSED_RIGHTS] if any(load.unused_services for load in study.loads) else []
        further += [("patch", "secrets", "")] if self.options.pull_secrets else []
        problems = preflight.right_problems(self.cluster, self.options, installs, borrowed, further)
        if problems:
            return problems
        nodes = placement.nodes(self.cluster)
        unplaced = preflight.placement_problems(self.options, nodes)
        problems += unplaced
        problems += preflight.pull_secret_problems(self.cluster, self.options)
        problems += preflight.namespace_problems(self.applier, (self.namespace, self.session.namespace))
        problems += preflight.mesh_problems(self.cluster, self.installer, study, self.meshes)
        largest = max(study.loads, key=lambda item: (item.replicas, item.asked_rps))
        together = self.together(study.treatments) if study.take_turns(largest) else [[t] for t in study.treatments]
        problems += preflight.borrowed_problems(borrowed, max(map(len, together)))
        if preflight.pods_have_ipv6(self.cluster):
            problems += preflight.ipv4_problems(self._planned(study.treatments, largest, study.app))
        for group in together if not unplaced else ():
            anywhere = Block("", np.random.default_rng(0))
            problems += self._block_nodes.assign(self._planned(group, largest, study.app), anywhere, FreeResources())[1]
        if nodes and not self._nodes.read([nodes[0].name]):
            problems.append(
                f"node {nodes[0].name}: its kubelet's metrics cannot be read; no CPU or memory without them"
            )
        return list(dict.fromkeys(problems))

    def environment(self) -> dict[str, Any]:
        """Return cluster, nodes, versions and every option."""
        cluster_id = None  # the uid of its oldest namespace, which identifies a cluster whatever its context is called
        with contextlib.suppress(TestbedError):
            cluster_id = str(self.cluster.get("/api/v1/namespaces/kube-system")["metadata"]["uid"])
        record: dict[str, Any] = {
            "backend": self.name,
            "context": self.cluster.context,
            "cluster": cluster_id,
            "kubernetes": self.cluster.get("/version").get("gitVersion"),
            "nodes": [describe(item) for item in self.cluster.items("/api/v1/nodes")],
            "meshes": {name: mesh.version for name, mesh in self.meshes.items()},
            "charts": self.installer.charts.record(),
            "options": json.loads(json.dumps(self.options.echo())),
            "owner": self.applier.owner.id,
        }
        with contextlib.suppress(MeshtrialError):
            record["helm"] = helm.version(self.options)
        return record

    def before_run(self) -> dict[str, float]:
        """Return the idle share of the nodes over the last interval of the kubelets."""
        idle = self._nodes.idle()
        return {} if idle is None else {"idle_before": idle}

    def used_between(self) -> MachineUse | None:
        """Return the use of the nodes since the last call; None without a new reading."""
        return self._nodes.used_between()

    def settle(self) -> tuple[str, ...]:
        """Do nothing: the nodes belong to the cluster, and each block draws its own."""
        return ()

    def watch(self, begun: Path | None = None) -> None:
        """Return nothing: a node's total includes its own daemons."""

    def generator_cpus(self) -> float:
        """Return the cores that the generators of the last deployment may use: their limits, else their nodes."""
        if self._last is None:
            return 1.0
        count = self._last.rendered.load_pods
        if self.options.load_cpu:
            return count * cpu_millis(self.options.load_cpu) / 1000
        nodes = {pod.node for pod in self._last.load_pods}
        return sum(n.room.cpu for n in placement.nodes(self.cluster) if n.name in nodes) or 1.0

    def together(self, treatments: Sequence[Treatment]) -> list[list[Treatment]]:
        """Return groups of treatments whose deployments may be concurrent."""

        def concurrent(one: Treatment, other: Treatment) -> bool:
            return self.installer.concurrent(self.mesh_for(one), one, self.mesh_for(other), other)

        groups: list[list[Treatment]] = []
        for treatment in treatments:
            fitting = (group for group in groups if all(concurrent(treatment, other) for other in group))
            group = next(fitting, None)
            if group is None:
                groups.append([treatment])
            else:
                group.append(treatment)
        return groups

    def make_ready(self, treatments: Sequence[Treatment], load: Load, app: str, block: Block) -> None:
        """Choose the nodes, check that there is room, and start the installation of the meshes.

        Meshes are installed one after the other in a thread, as the policy requires. Deployments without a mesh start
        meanwhile, and :meth:`deploy` waits for its own mesh.
        """
        self._touched = True
        self.session.hold()
        self.session.forget_lost_probe()
        self.session.probe_pod()
        new_block = self._block_nodes.begin(block)
        # A deployment that grows keeps its nodes and its mesh.
        self.next = replace(self.next, treatments=list(treatments), namespaces=set())
        if any(
            self._smaller(treatment, load) and not self._why_broken(self.mesh_for(treatment))
            for treatment in treatments
        ):
            return
        self._remove_kept(new_block, [self._key(t, load, t.app or app) for t in treatments])
        self.next.alone = len(treatments) == 1
        meshes = {m.name: m for m in map(self.mesh_for, treatments) if m is not None}
        reinstalls, installed = self.installer.reinstalls(new_block), self.installer.installed
        coming = [n for n, mesh in meshes.items() if not mesh.reference and (reinstalls or n not in installed)]
        new = [t for t in treatments if self._key(t, load, t.app or app) not in self._kept]
        planned = self._planned(new, load, app) if new else []

        def place(spare: FreeResources) -> list[str]:
            """Assign the nodes, and return why the deployments do not fit if this is left on each node."""
            problems: list[str] = []
            if planned:
                self.next.nodes, problems = self._block_nodes.assign(planned, block, spare)
            return problems

        def require_placement() -> None:
            if problems := place(FreeResources()):
                raise TestbedError("; ".join(problems))

        tight = bool(place(sum((_MESH_ROOM for _ in coming), FreeResources()))) and block.drawn is not None
        if tight:
            require_placement()
        cleared = self._installing.submit(self.remove_meshes, tuple(meshes.values()), new_block)
        self.next.cleared = cleared
        self.next.installs = {n: self._installing.submit(self._install, mesh, cleared) for n, mesh in meshes.items()}
        if tight and coming:
            # Only an installed mesh shows which nodes its pods use; the rest may be too small.
            for install in self.next.installs.values():
                install.exception()  # its own deployments raise it
            require_placement()

    def _install(self, mesh: Mesh, cleared: Future[None]) -> tuple[bool, str]:
        """Return whether a mesh was installed now, and why an installed one had to be replaced.

        ``cleared`` is the removal of its own group: that of the next group waits for this installation.
        """
        cleared.result()
        because = self.remove_broken(mesh)
        if not mesh.reference and mesh.name in self.installer.installed:
            return False, because
        self.installer.install(mesh)
        return mesh.name in self.installer.installed, because

    def deploy(self, treatment: Treatment, load: Load, app: str) -> KubernetesDeployment:
        """Deploy a treatment as fresh as the policy requires, from the group that was made ready, or alone."""
        with self._lock:
            if treatment not in self.next.treatments:
                self.make_ready([treatment], load, app, Block("", None))
            self.next.treatments.remove(treatment)
        mesh, app = self.mesh_for(treatment), treatment.app or app
        reinstalled, because = False, ""
        grown = self._smaller(treatment, load)
        if grown is not None:
            before = grown.setup
            grown.grow(self._render(treatment, load, app, before.namespace, before.tokens, self.next.nodes))
        elif mesh is not None:
            reinstalled, because = self.next.installs[mesh.name].result()
        deployment = grown or self._get_or_create(treatment, load, app, mesh)
        try:
            # No removal of the last deployments' namespaces and meshes may be measured.
            self.next.wait_cleared()
            self.applier.wait_for_deletions()
        except BaseException:
            with contextlib.suppress(TestbedError):
                deployment.close()
            raise
        # Which meshes are installed is known once the others are removed.
        policy = self.installer.policy_record(reinstalled, because) | ({"app_reinstall": "grown"} if grown else {})
        if mesh is not None:
            deployment.installed_from = self.installer.sources(mesh)
        deployment.collected.notes["policy"] = policy
        deployment.collected.fresh = policy["app_reinstall"] == "run"
        self._last = deployment
        return deployment

    def _get_or_create(self, treatment: Treatment, load: Load, app: str, mesh: Mesh | None) -> KubernetesDeployment:
        key, kept = self._key(treatment, load, app), self._growing or self.options.app_reinstall != "run"
        if key in self._kept:
            self._kept[key].refresh()
            return self._kept[key]
        suffix = f"-{hashlib.sha256(key.encode()).hexdigest()[:6]}" if kept or not self.next.alone else ""
        with self._lock:
            namespace = self.free_name(self.namespace + suffix)
            self.next.namespaces.add(namespace)
        if mesh is not None and EVERYTHING in mesh.shared:
            self.applier.wait_for_deletions()  # a deployment in its removal has the same names
        rendered = self._render(treatment, load, app, namespace, make_tokens(), self.next.nodes)
        deployment = KubernetesDeployment(self.applier, rendered, self.session.probe_pod(), kept)
        try:
            deployment.deploy()
        except TestbedError as error:
            raise self.with_mesh(error, mesh) from None
        if kept:
            self._kept[key] = deployment
        return deployment

    @staticmethod
    def _key(treatment: Treatment, load: Load, app: str) -> str:
        return f"{treatment.name} {load.label} {app}"

    def _smaller(self, treatment: Treatment, load: Load) -> KubernetesDeployment | None:
        """Return the treatment's deployment that grows to the replicas of this load, if there is one."""
        for deployment in tuple(self._kept.values()) if self._growing else ():
            setup = deployment.setup
            if setup.treatment == treatment and setup.load.replicas < load.replicas:
                return deployment
        return None

    def _why_broken(self, mesh: Mesh | None) -> str:
        return self.installer.broken(mesh.name) if mesh is not None else ""

    def with_mesh(self, error: TestbedError, mesh: Mesh | None) -> TestbedError:
        """Return the error, with how the mesh has changed where that may be the cause."""
        with contextlib.suppress(TestbedError):
            if why := self._why_broken(mesh):
                return TestbedError(f"{why}; {error}", error.evidence)
        return error

    def free_name(self, namespace: str) -> str:
        """Return the name, or the next unused one if a namespace of ours remains, in which nothing would be fresh.

        Its deletion may not end, for example if its node is gone.
        """
        for name in (namespace, *(f"{namespace}-{n}" for n in range(2, 10))):
            existing = self.applier.find_namespace(name)
            owner = (existing["metadata"].get("labels") or {}).get(OWNER) if existing is not None else None
            remains = owner == self.applier.owner.id and not is_borrowed(existing)
            if existing is None or not (remains or existing.get("status", {}).get("phase") == "Terminating"):
                return name
        raise TestbedError(f"namespace {namespace} and eight more remain; see 'kubectl get ns'")

    def close(self) -> None:
        """Remove deployments, the probe and the meshes of this session; TestbedError names what remains."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        failures: list[str] = []
        try:
            if self._touched and not self.options.keep:
                self._remove_everything(failures)
        finally:
            self.session.release()
            self.installer.charts.close()
        if failures:
            hint = clean_command(self.cluster.context, self.applier.owner.study)
            raise TestbedError(
                f"not everything could be removed: {'; '.join(failures)}; try '{hint}', with the study's own "
                "--cluster-file where it had one"
            )

    def _remove_everything(self, failures: list[str]) -> None:
        def attempt(step: Callable[..., object], *arguments: object) -> None:
            try:
                step(*arguments)
            except TestbedError as error:
                failures.append(str(error))

        def check() -> None:
            failures.extend(f"namespace {item['metadata']['name']} remains" for item in self._owned())

        self._installing.shutdown(cancel_futures=True)
        namespaces, self.next = self.next.namespaces, PendingGroup()
        with contextlib.suppress(TestbedError):  # including namespaces that could not be removed in time
            namespaces |= {item["metadata"]["name"] for item in self._owned() if not mesh_of(item)}
        kept, self._kept = self._kept, {}
        attempt(self.applier.wait_for_deletions)
        for deployment in kept.values():
            attempt(deployment.remove)
        for name in namespaces - {self.session.namespace}:
            attempt(self.applier.delete_namespace, name, self.options.deploy_timeout_s)
        for name in tuple(self.installer.installations):
            attempt(self.uninstall, name)
        # A renewal during the removal would create the Lease again, perhaps in a borrowed namespace.
        attempt(self.session.stop)
        attempt(self.session.remove)
        attempt(check)

    def _owned(self) -> list[Json]:
        return owned_namespaces(self.cluster, owner_id=self.applier.owner.id)

    def mesh_for(self, treatment: Treatment) -> Mesh | None:
        """Return the mesh of a treatment, or None; UsageError for an unknown mesh or feature."""
        if treatment.dataplane != "none" and treatment.dataplane not in self.meshes:
            known = ", ".join(name for name, mesh in self.meshes.items() if mesh.declared is None)
            raise UsageError(f"treatment {treatment.name}: must be none, {known} on Kubernetes")
        if treatment.version and treatment.versioned not in self.meshes:
            raise UsageError(self._no_version(treatment))
        mesh = self.meshes[treatment.versioned] if treatment.dataplane != "none" else None
        workload.features_of(treatment, mesh)
        return mesh

    def _no_version(self, treatment: Treatment) -> str:
        """Return how a treatment with an unknown version was understood, and what is possible."""
        name, version = treatment.dataplane, treatment.version
        understood = f"treatment {treatment.name}: understood as version {version} of {name}"
        if name == "none" or self.meshes[name].reference:
            hint = f"; an app of yours is written {name}@@{version}" if APP_NAME.fullmatch(version) else ""
            return f"{understood}, which has no versions on a cluster{hint}"
        declared = [other.removeprefix(f"{name}@") for other in self.meshes if other.startswith(f"{name}@")]
        known = f"known are {', '.join(declared)}" if declared else "none is known"
        where = f"meshes.{name}.versions in the cluster_file"
        return f"{understood}; {known}; declare it by {where}; an app of yours is written {name}@@NAME"

    def _require_restartable(self, treatment: Treatment, mesh: Mesh | None) -> None:
        part = treatment.restart
        if part and not restartable(mesh, part):
            sidecars = mesh is not None and part == "proxies"
            hint = (
                "its proxies are in the app's pods: take restart-app" if sidecars else "only its app can be restarted"
            )
            raise UsageError(f"treatment {treatment.name}: it has no {part} of its own; {hint}")
        if part not in ("", "app") and self.options.mesh_install == "existing":
            raise UsageError(f"treatment {treatment.name}: an existing mesh is not restarted")

    def _planned(self, treatments: Sequence[Treatment], load: Load, app: str) -> list[workload.Rendered]:
        """Return what deployments of these treatments would be, to count and check it."""
        tokens, anywhere = make_tokens(), NodeAssignment()
        return [self._render(t, load, t.app or app, self.namespace, tokens, anywhere) for t in treatments]

    def _render(
        self, treatment: Treatment, load: Load, app: str, namespace: str, tokens: Tokens, nodes: NodeAssignment
    ) -> workload.Rendered:
        described, mesh = read_app(self.options, app, load.protocols, self._systems), self.mesh_for(treatment)
        named = self.installer.charts.named(mesh) if mesh is not None else None
        return workload.render(Setup(self.options, namespace, treatment, load, described, named, tokens, nodes))

    def remove_meshes(self, needed: Sequence[Mesh], new_block: bool) -> None:
        """Uninstall meshes that the policy reinstalls, or that cannot be installed together with the needed ones."""
        for name in self.installer.unwanted(needed, new_block):
            self.uninstall(name)

    def remove_broken(self, mesh: Mesh) -> str:
        """Uninstall the mesh if it differs from its state after the installation, and return why."""
        because = self._why_broken(mesh)
        if because:
            self.uninstall(mesh.name)
        return because

    def uninstall(self, name: str) -> None:
        """Uninstall a mesh after everything of the study that uses it: its control plane clears finalizers."""
        self.applier.wait_for_deletions()
        for key, deployment in list(self._kept.items()):
            if deployment.setup.mesh is not None and deployment.setup.mesh.name == name:
                self._kept.pop(key).remove()
        # Listed before `kept` is computed: a deployment that starts meanwhile is in `next` before it is created.
        ours, homes = self._owned(), self.applier.homes
        kept = {
            self.session.namespace,
            *self.next.namespaces,
            *(deployment.setup.namespace for deployment in self._kept.values()),
        }
        for item in ours:
            namespace = item["metadata"]["name"]
            # It could not be removed earlier; where it hangs in its deletion, waiting again does not help.
            if namespace not in kept and not mesh_of(item) and item["status"].get("phase") != "Terminating":
                self.applier.delete_namespace(namespace, self.options.deploy_timeout_s)
        self.applier.delete_outside(homes - kept)
        self.installer.uninstall(name)

    def _remove_kept(self, new_block: bool, needed: Sequence[str]) -> None:
        """Remove deployments that do not outlive their block and, within one, those whose failed run is repeated."""
        for key in list(self._kept):
            if self._growing or (self.options.app_reinstall == "block" and (new_block or key in needed)):
                self._kept.pop(key).remove()
