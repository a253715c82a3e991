"""Install and uninstall meshes from their data, owned by namespace, and never one that somebody else runs.

What comes with an installation and is not removed by Helm (CRDs, objects of a hook or the control plane) is labelled as
ours when it appears; what existed before is somebody else's and stays. Before an installed mesh is used again, it is
compared with its state after the installation.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from meshtrial.design.study import Treatment
from meshtrial.errors import MissingToolError, TestbedError, UsageError
from meshtrial.testbed.kubernetes import cleanup, helm, meshversions, wait, workload
from meshtrial.testbed.kubernetes.apply import CRDS, MESH, Applier, namespace_refusal
from meshtrial.testbed.kubernetes.cleanup import remove_crds
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.helm import Charts, Values, unknown_values
from meshtrial.testbed.kubernetes.meshdata import EVERYTHING, Command, Feature, Mesh, Selector
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.pods import is_ready, loss_reason, members, uid


@dataclass
class Installation:
    """A mesh of ours, and the cluster before and after its installation."""

    mesh: Mesh
    before: Mapping[str, Json]  # objects of no namespace before the installation, by path
    pods: tuple[Json, ...] = ()  # control plane and agents after the installation
    webhooks: tuple[str, ...] = ()  # its webhook configurations after the installation
    values: Mapping[str, str] = field(default_factory=dict)  # by release, the digest of its values
    ready_at: float | None = None  # time.time; None before it is ready and during its removal


class MeshInstaller:
    """Installs meshes as one owner, and decides when they are reinstalled and which may be installed together."""

    def __init__(self, cluster: Cluster, options: KubernetesOptions, applier: Applier) -> None:
        self.cluster = cluster
        self.options = options
        self.applier = applier
        self.charts = Charts(options)
        self.install_s: dict[str, float] = {}
        # Objects of no namespace that appeared while a mesh was installed and do not belong to it: they stay.
        self.appeared: list[str] = []
        # By mesh; also meshes that did not become ready or could not be removed.
        self.installations: dict[str, Installation] = {}

    @property
    def installed(self) -> dict[str, float]:
        """When each installed mesh became ready (time.time)."""
        found = {name: installation.ready_at for name, installation in self.installations.items()}
        return {name: at for name, at in found.items() if at is not None}

    def reinstalls(self, new_block: bool) -> bool:
        """Return whether every mesh is installed again now."""
        return self.options.mesh_reinstall == "run" or (self.options.mesh_reinstall == "block" and new_block)

    def coexist(self, mesh: Mesh, other: Mesh) -> bool:
        """Return whether both meshes may be installed at the same time.

        They may if `meshes_side_by_side` is set and they share no namespace (Istio's two modes do).
        """
        return self.options.meshes_side_by_side and set(mesh.namespaces).isdisjoint(other.namespaces)

    def concurrent(self, mesh: Mesh | None, one: Treatment, other_mesh: Mesh | None, other: Treatment) -> bool:
        """Return whether deployments of two treatments, each with its mesh, may run at the same time."""
        if mesh is None or other_mesh is None or mesh.reference or other_mesh.reference:
            return True
        if mesh.name != other_mesh.name:
            return self.options.mesh_install == "existing" or self.coexist(mesh, other_mesh)
        sides = mesh.check(one), mesh.check(other)
        once = ({name for feature in side if feature.once for name in feature.manifests} for side in sides)
        if EVERYTHING in mesh.shared or set.intersection(*once):
            return False
        shared, other_shared = (workload.shared_of(mesh, side) for side in sides)
        return all(other_shared.get(key, item) == item for key, item in shared.items())

    def unwanted(self, needed: Iterable[Mesh], new_block: bool) -> list[str]:
        """Return the meshes to uninstall before the needed ones are used.

        They are incomplete and would disturb other runs, or are due to be installed again, or cannot coexist.
        """
        return [
            name
            for name, installation in self.installations.items()
            if installation.ready_at is None
            or self.reinstalls(new_block)
            or any(name != other.name and not self.coexist(installation.mesh, other) for other in needed)
        ]

    def install(self, mesh: Mesh) -> None:
        """Install a mesh and wait until it is ready; on failure remove it."""
        if mesh.reference or self.options.mesh_install == "existing":
            self._check_existing(mesh)
            return
        began = time.monotonic()
        earlier = self.installations.get(mesh.name)
        # After an incomplete removal, the state before the earlier installation counts.
        before = earlier.before if earlier else cleanup.cluster_objects(self.cluster)
        installation = self.installations[mesh.name] = Installation(mesh, before)
        try:
            with wait.with_evidence(self.cluster, mesh.namespaces):
                installation.values = self._install(mesh)
        except BaseException:
            with contextlib.suppress(TestbedError):
                self._label_owned(mesh)  # objects of an interrupted release
                self.uninstall(mesh.name)
            raise
        installation.pods = self._pods(mesh)
        installation.webhooks = cleanup.mesh_webhooks(self.cluster, mesh)
        installation.ready_at = time.time()
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
                chart, own_values = self.charts.of(mesh, release).path, values.of(release)
                digests[f"values {release.name}"] = f"sha256:{values.digest(release)}"
                with self._explained(mesh) as watch:
                    helm.install_release(self.cluster, self.options, mesh, release, chart, own_values, watch)
                self._label_owned(mesh)
        self._label_owned(mesh)
        for part in (*mesh.control_plane, *mesh.agents):
            count, timeout_s = _expected_pods(self.cluster, part), self.options.mesh_timeout_s
            wait.pods_ready(self.cluster, part.namespace, part.selector, count, timeout_s, mesh.settle)
        self._label_owned(mesh)  # what the control plane created meanwhile
        return digests

    def broken(self, name: str) -> str:
        """Return how an installed mesh differs from its state after the installation, or an empty text.

        The text is empty for a mesh that is not installed, or is somebody else's.
        """
        installation = self.installations.get(name)
        if installation is None or installation.ready_at is None:
            return ""
        now = {uid(pod): pod for pod in self._pods(installation.mesh)}
        for pod in installation.pods:
            why = loss_reason(pod, now.get(uid(pod)), "since its installation")
            if why:
                return why
        gone = sorted(set(installation.webhooks) - set(cleanup.mesh_webhooks(self.cluster, installation.mesh)))
        return f"{cleanup.kubectl_name(gone[0])} is gone since its installation" if gone else ""

    def _pods(self, mesh: Mesh) -> tuple[Json, ...]:
        return tuple(pod for part in (*mesh.control_plane, *mesh.agents) for pod in members(self.cluster, part))

    def sources(self, mesh: Mesh) -> dict[str, str]:
        """Return the versions of the charts and values from which a mesh of ours was installed."""
        if mesh.name not in self.installed:
            return {}
        return {**self.charts.versions(mesh), **self.installations[mesh.name].values}

    def policy_record(self, reinstalled: bool, because: str = "") -> dict[str, Any]:
        """Return the reinstall policy and its result for ``run.json``.

        ``because`` is why an installed mesh was installed again out of turn.
        """
        now = time.time()
        record: dict[str, Any] = {
            "mesh_install": self.options.mesh_install,
            "mesh_reinstall": self.options.mesh_reinstall,
            "app_reinstall": self.options.app_reinstall,
            "mesh_installed_for_this_run": reinstalled,
            "installed_meshes": {name: round(now - at, 1) for name, at in self.installed.items()},
            "install_s": {name: round(s, 2) for name, s in self.install_s.items()},
        }
        if because:
            record["reinstalled_because"] = because
        if self.appeared:
            record["appeared_and_left_alone"] = list(self.appeared)
        return record

    def uninstall(self, name: str) -> None:
        """Uninstall a mesh of ours: releases, what they left in the cluster, namespaces, CRDs.

        The namespaces of the study must be gone before: without its control plane, no finalizer is cleared.
        """
        installation = self.installations.get(name)
        if installation is None:
            return
        installation.ready_at = None
        mesh, owner = installation.mesh, self.applier.owner
        if any(
            namespace_refusal(self.applier.find_namespace(name), owner, self.cluster.context)
            for name in mesh.namespaces
        ):
            # Somebody else owns the namespace, so the installation was refused before it changed anything, and a
            # release of that name is theirs too.
            for namespace in mesh.namespaces:
                self.applier.delete_namespace(namespace, self.options.mesh_timeout_s)
            del self.installations[name]
            return
        with wait.with_evidence(self.cluster, mesh.namespaces):
            if mesh.method == "command":
                self._run(mesh, mesh.uninstall)
            for release in reversed(mesh.releases if mesh.method != "command" else ()):
                with self._explained(mesh) as watch:
                    helm.uninstall_release(self.cluster, self.options, release, watch)
        # Before the namespaces: a webhook without its service refuses other requests of the cluster.
        cleanup.remove_mesh_objects(self.cluster, mesh, installation.before)
        for namespace in mesh.namespaces:
            self.applier.delete_namespace(namespace, self.options.mesh_timeout_s)
        lines = remove_crds(self.cluster, owner.study, owner.id, groups=mesh.crd_groups)
        # Remove them again after the namespaces, because a control plane may create some while it ends.
        self.appeared = cleanup.remove_mesh_objects(self.cluster, mesh, installation.before)
        if lines:
            raise TestbedError("; ".join(lines))
        del self.installations[name]

    @contextlib.contextmanager
    def _explained(self, mesh: Mesh) -> Iterator[helm.HookWatch]:
        """Add the reason of the pods that Helm waited for to its error."""
        watch = helm.HookWatch(self.cluster, mesh.namespaces, mesh.settle)
        try:
            yield watch
        except MissingToolError:
            raise
        except TestbedError as error:
            why = watch.problem or wait.failure_reason(self.cluster, mesh.namespaces)
            text = str(error) if not why or why in str(error) else f"{error}; {why}"
            raise TestbedError(f"mesh {mesh.name}: {text}", watch.evidence) from None

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
                why = wait.failure_reason(self.cluster, [part.namespace])
                raise TestbedError(
                    f"mesh {mesh.name}: no {part.component} is ready in {part.namespace}; {why}".rstrip("; ")
                )
            contradiction = meshversions.contradiction(mesh, part.component, pods)
            if contradiction:
                raise TestbedError(
                    f"mesh {mesh.name}: {contradiction}; mesh_install=existing measures the installed mesh: declare "
                    "its version, or let meshtrial install this one with mesh_install=managed"
                )

    def _label_owned(self, mesh: Mesh) -> None:
        cleanup.label_owned(self.cluster, mesh, self.applier.owner, self.installations[mesh.name].before)

    def problems(self, mesh: Mesh, features: Iterable[Feature] = ()) -> list[str]:
        """Return what prevents an installation, and the CRDs that these features lack, one line each."""
        problems: list[str] = []
        crds = [kind for feature in features for kind in feature.requires]
        if self.options.mesh_install == "existing" and not mesh.reference:
            try:
                self._check_existing(mesh)
            except TestbedError as error:
                problems.append(str(error))
        elif not mesh.reference:
            if mesh.method == "helm":
                problems += self._chart_problems(mesh)
            for name in mesh.namespaces:
                found = self.applier.find_namespace(name)
                if refusal := namespace_refusal(found, self.applier.owner, self.cluster.context):
                    use = "or use the installed mesh with mesh_install=existing"
                    problems.append(f"mesh {mesh.name}: {refusal}; {use}")
            crds += mesh.requires
        return problems + [problem for needed in dict.fromkeys(crds) if (problem := self._crd_problem(mesh, needed))]

    def _crd_problem(self, mesh: Mesh, needed: str) -> str:
        kind, _, version = needed.partition("/")
        try:
            versions = self.cluster.get(f"{CRDS}/{kind}")["spec"]["versions"]
        except NotFoundError:
            versions = []
        except TestbedError as error:
            return str(error)
        served = [entry["name"] for entry in versions if entry["served"]]
        if served and version in ("", *served):
            return ""
        wanted = f"mesh {mesh.name}: needs the CRD {kind}" + (f" served as {version}" if version else "")
        if served:
            known = ", ".join(served)
            return f"{wanted}; this cluster serves {known}: set served: true for that version of it"
        channel = " (Gateway API: standard channel)" if kind.endswith(".gateway.networking.k8s.io") else ""
        return f"{wanted}, which this cluster does not have; install it{channel}"

    def _chart_problems(self, mesh: Mesh) -> list[str]:
        """Return lines for charts that cannot be fetched and values that they do not have."""
        try:
            helm.program(self.options)
            values = Values(self.options, mesh)
            layers = [(release, values.layers(release)) for release in mesh.releases]
        except (MissingToolError, UsageError) as error:
            return [f"mesh {mesh.name}: {error}"]
        problems = []
        for release, given in layers:
            try:
                chart = self.charts.of(mesh, release)
            except TestbedError as error:
                problems.append(str(error))
                continue
            open_values = mesh.open_values.get(release.name, ())
            problems += [
                f"mesh {mesh.name}, release {release.name}: {where}: {line}; "
                f"chart {chart.name} {chart.version} would silently ignore it"
                for where, layer in given
                for line in unknown_values(layer, chart.values, open_values)
            ]
        return list(dict.fromkeys(problems))


def _expected_pods(cluster: Cluster, part: Selector) -> int:
    """Return how many pods a DaemonSet schedules; 1 for any other workload."""
    path = f"/apis/apps/v1/namespaces/{part.namespace}/daemonsets"
    for item in cluster.items(path):
        labels = item["spec"]["selector"].get("matchLabels") or {}
        expected = dict(pair.split("=", 1) for pair in part.selector.split(",") if "=" in pair)
        if all(labels.get(k, item["spec"]["template"]["metadata"]["labels"].get(k)) == v for k, v in expected.items()):
            return max(1, int(item.get("status", {}).get("desiredNumberScheduled") or 1))
    return 1
