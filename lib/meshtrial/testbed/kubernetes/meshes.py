"""Meshes installed and uninstalled from their data, owned by namespace, and never one that somebody else runs.

What came with an installation and Helm does not remove (CRDs, objects that a hook or the control plane made) is
labelled as ours the moment it appears; what was there before is somebody else's and stays. A mesh that stands is
compared with what stood after its installation before it is used again.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from meshtrial.errors import MissingToolError, TestbedError, UsageError
from meshtrial.testbed.kubernetes import clusterwide, evidence, helm, meshversions, wait
from meshtrial.testbed.kubernetes.apply import CRDS, MESH, Applier, delete_namespace, verdict
from meshtrial.testbed.kubernetes.charts import Charts
from meshtrial.testbed.kubernetes.cleanup import remove_crds
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.meshdata import Command, Mesh, Selector
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.pods import is_ready, lost, members, uid
from meshtrial.testbed.kubernetes.values import Values, unknown_values


@dataclass(frozen=True)
class Installation:
    """A mesh of ours, and the cluster before and after it came."""

    mesh: Mesh
    before: Mapping[str, Json]  # what belongs to no namespace and was there before, by path
    pods: tuple[Json, ...] = ()  # control plane and agents after the installation
    webhooks: tuple[str, ...] = ()  # its webhook configurations after the installation
    values: Mapping[str, str] = field(default_factory=dict)  # by release, the digest of what its chart got


class MeshInstaller:
    """Installs meshes as one owner, from charts that the session may have fetched already."""

    def __init__(
        self, cluster: Cluster, options: KubernetesOptions, applier: Applier, charts: Charts | None = None
    ) -> None:
        self.cluster = cluster
        self.options = options
        self.applier = applier
        self.charts = charts or Charts(options)
        self.installed: dict[str, float] = {}  # the moment (time.time) at which each became ready
        self.install_s: dict[str, float] = {}
        # Objects of no namespace that came while a mesh stood, and that nothing ties to it: they were left alone.
        self.appeared: list[str] = []
        self.standing: dict[str, Installation] = {}  # there by us, also those that did not become ready or did not go

    def install(self, mesh: Mesh) -> None:
        """Install a mesh and wait until it is ready; on failure nothing of it stays."""
        if mesh.reference or self.options.mesh_install == "existing":
            self._check_existing(mesh)
            return
        began = time.monotonic()
        earlier = self.standing.get(mesh.name)
        # Of one that did not go whole, what was there before it counts.
        before = earlier.before if earlier else clusterwide.look(self.cluster)
        self.standing[mesh.name] = Installation(mesh, before)
        try:
            with evidence.kept(self.cluster, mesh.namespaces):
                values = self._install(mesh)
        except BaseException:
            with contextlib.suppress(TestbedError):
                self._own(mesh)  # of a release that was cut short
                self.uninstall(mesh.name)
            raise
        pods = tuple(pod for part in (*mesh.control_plane, *mesh.agents) for pod in members(self.cluster, part))
        self.standing[mesh.name] = Installation(mesh, before, pods, clusterwide.webhooks(self.cluster, mesh), values)
        self.installed[mesh.name] = time.time()
        self.install_s[mesh.name] = time.monotonic() - began

    def _install(self, mesh: Mesh) -> dict[str, str]:
        digests = {}
        for name in mesh.namespaces:
            self.applier.namespace(name, {}, {MESH: mesh.name})
        if mesh.method == "command":
            self._run(mesh, mesh.install)
        else:
            values = Values(self.options, mesh)
            for release in mesh.releases:
                chart, own = self.charts.of(mesh, release).path, values.of(release)
                digests[f"values {release.name}"] = f"sha256:{values.digest(release)}"
                with self._explained(mesh) as watch:
                    helm.install_release(self.cluster, self.options, mesh, release, chart, own, watch)
                self._own(mesh)
        self._own(mesh)
        self._wait(mesh)
        self._own(mesh)  # what the control plane made meanwhile
        return digests

    def broken(self, name: str) -> str:
        """Why a mesh that stands is not as it was installed, empty when it is: it is not used for another run then.

        Empty too for one that somebody else installed.
        """
        stood = self.standing.get(name)
        if stood is None:
            return ""
        now = {
            uid(pod): pod
            for part in (*stood.mesh.control_plane, *stood.mesh.agents)
            for pod in members(self.cluster, part)
        }
        for pod in stood.pods:
            why = lost(pod, now.get(uid(pod)), "since its installation")
            if why:
                return why
        gone = sorted(set(stood.webhooks) - set(clusterwide.webhooks(self.cluster, stood.mesh)))
        return f"{clusterwide.shown(gone[0])} is gone since its installation" if gone else ""

    def sources(self, mesh: Mesh) -> dict[str, str]:
        """Versions of what a mesh that stands was installed from: charts, and the values that they got."""
        return {**self.charts.versions(mesh), **self.standing[mesh.name].values}

    def uninstall(self, name: str) -> None:
        """Uninstall a mesh of ours: releases, what they left in the cluster, namespaces, CRDs.

        The namespaces of the study are to be gone before: a control plane that is gone clears no finalizers.
        """
        self.installed.pop(name, None)
        stood = self.standing.get(name)
        if stood is None:
            return
        mesh, owner = stood.mesh, self.applier.owner
        if any(verdict(self.applier.find_namespace(name), owner, self.cluster.context) for name in mesh.namespaces):
            # Somebody else's, and refused before anything of ours was in it: a release of that name is theirs too.
            for namespace in mesh.namespaces:
                delete_namespace(self.cluster, namespace, owner.id, self.options.mesh_timeout_s)
            del self.standing[name]
            return
        with evidence.kept(self.cluster, mesh.namespaces):
            if mesh.method == "command":
                self._run(mesh, mesh.uninstall)
            for release in reversed(mesh.releases if mesh.method != "command" else ()):
                with self._explained(mesh) as watch:
                    helm.uninstall_release(self.cluster, self.options, release, watch)
        # Before the namespaces: a webhook whose service is gone refuses what the cluster does meanwhile.
        clusterwide.remove(self.cluster, mesh, stood.before)
        for namespace in mesh.namespaces:
            delete_namespace(self.cluster, namespace, owner.id, self.options.mesh_timeout_s)
        lines = remove_crds(self.cluster, owner.study, owner.id, groups=mesh.crd_groups)
        # And after them: a control plane that is going may have made some again.
        self.appeared = clusterwide.remove(self.cluster, mesh, stood.before)
        if lines:
            raise TestbedError("; ".join(lines))
        del self.standing[name]

    @contextlib.contextmanager
    def _explained(self, mesh: Mesh) -> Iterator[helm.HookWatch]:
        """Where Helm fails inside, the pods that it waited for say why."""
        watch = helm.HookWatch(self.cluster, mesh.namespaces, mesh.settle)
        try:
            yield watch
        except MissingToolError:
            raise
        except TestbedError as error:
            why = watch.said or evidence.reason(self.cluster, mesh.namespaces)
            told = str(error) if not why or why in str(error) else f"{error}; {why}"
            raise TestbedError(f"mesh {mesh.name}: {told}", watch.evidence) from None

    def _run(self, mesh: Mesh, steps: tuple[Command, ...]) -> None:
        env = {"KUBECONFIG": self.cluster.kubeconfig} if self.cluster.kubeconfig else {}
        for step in steps:
            argv = [part.format(folder=mesh.folder, context=self.cluster.context) for part in step.command]
            out = helm.run(argv, self.options.mesh_timeout_s, env)
            if step.apply:
                self.applier.apply([item for item in yaml.safe_load_all(out) if item])

    def _check_existing(self, mesh: Mesh) -> None:
        for part in mesh.control_plane:
            pods = members(self.cluster, part)
            if not pods:
                raise TestbedError(
                    f"mesh {mesh.name}: no {part.component} ({part.selector} in {part.namespace}); "
                    "install it, or let meshtrial do it with mesh_install=managed"
                )
            if not any(is_ready(pod) for pod in pods):
                why = evidence.reason(self.cluster, [part.namespace])
                raise TestbedError(
                    f"mesh {mesh.name}: no {part.component} is ready in {part.namespace}; {why}".rstrip("; ")
                )
            other = meshversions.contradiction(mesh, part.component, pods)
            if other:
                raise TestbedError(
                    f"mesh {mesh.name}: {other}; mesh_install=existing measures what stands: declare that version, or "
                    "let meshtrial install this one with mesh_install=managed"
                )

    def _wait(self, mesh: Mesh) -> None:
        for part in (*mesh.control_plane, *mesh.agents):
            count = _wanted(self.cluster, part)
            wait.pods_ready(
                self.cluster, part.namespace, part.selector, count, self.options.mesh_timeout_s, mesh.settle
            )

    def _own(self, mesh: Mesh) -> None:
        clusterwide.own(self.cluster, mesh, self.applier.owner, self.standing[mesh.name].before)

    def problems(self, mesh: Mesh) -> list[str]:
        """What stands in the way of an installation, one line each."""
        problems: list[str] = []
        if mesh.reference:
            return problems
        if self.options.mesh_install == "existing":
            try:
                self._check_existing(mesh)
            except TestbedError as error:
                problems.append(str(error))
            return problems
        if mesh.method == "helm":
            problems += self._chart_problems(mesh)
        for name in mesh.namespaces:
            refusal = verdict(self.applier.find_namespace(name), self.applier.owner, self.cluster.context)
            if refusal:
                problems.append(f"mesh {mesh.name}: {refusal}; or use what stands with mesh_install=existing")
        return problems + [problem for wanted in mesh.requires if (problem := self._crd_problem(mesh, wanted))]

    def _crd_problem(self, mesh: Mesh, wanted: str) -> str:
        kind, _, version = wanted.partition("/")
        try:
            crd = self.cluster.get(f"{CRDS}/{kind}")
        except NotFoundError:
            crd = {"spec": {"versions": []}}
        served = [one["name"] for one in crd["spec"]["versions"] if one["served"]]
        if not served:
            served_as = f" served as {version}" if version else ""
            return f"mesh {mesh.name}: needs the CRD {kind}{served_as}, which this cluster does not have; install it"
        if version and version not in served:
            return (
                f"mesh {mesh.name}: needs the CRD {kind} served as {version}; this cluster serves {', '.join(served)}: "
                f"set served: true for that version of it"
            )
        return ""

    def _chart_problems(self, mesh: Mesh) -> list[str]:
        """Charts that cannot be had, and values that they do not have."""
        try:
            helm.program(self.options)
            values = Values(self.options, mesh)
            layers = {release.name: values.layers(release) for release in mesh.releases}
        except (MissingToolError, UsageError) as error:
            return [f"mesh {mesh.name}: {error}"]
        problems = []
        for release in mesh.releases:
            try:
                chart = self.charts.of(mesh, release)
            except TestbedError as error:
                problems.append(str(error))
                continue
            for where, given in layers[release.name]:
                problems += [
                    f"mesh {mesh.name}, release {release.name}: {where}: {line}; "
                    f"chart {chart.name} {chart.version} would silently ignore it"
                    for line in unknown_values(given, chart.values, mesh.open_values.get(release.name, ()))
                ]
        return list(dict.fromkeys(problems))


def _wanted(cluster: Cluster, part: Selector) -> int:
    """How many pods a DaemonSet wants; 1 for anything else."""
    path = f"/apis/apps/v1/namespaces/{part.namespace}/daemonsets"
    for item in cluster.items(path):
        chosen = item["spec"]["selector"].get("matchLabels") or {}
        wanted = dict(pair.split("=", 1) for pair in part.selector.split(",") if "=" in pair)
        if all(chosen.get(k, item["spec"]["template"]["metadata"]["labels"].get(k)) == v for k, v in wanted.items()):
            return max(1, int(item.get("status", {}).get("desiredNumberScheduled") or 1))
    return 1
