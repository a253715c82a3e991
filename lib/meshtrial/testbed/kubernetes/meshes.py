"""Meshes installed and uninstalled from their data, owned by namespace, and never one that somebody else runs.

CRDs that came with an installation are labelled as ours the moment they appear; those that were there before
are somebody else's and stay.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import yaml

from meshtrial.errors import TestbedError, UsageError
from meshtrial.testbed.kubernetes import helm, wait
from meshtrial.testbed.kubernetes.apply import MESH, OWNER, STUDY, Applier, delete_namespace, label, verdict
from meshtrial.testbed.kubernetes.cleanup import remove_crds
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.issuer import issuer_chain
from meshtrial.testbed.kubernetes.meshdata import Command, Mesh, Release, Selector
from meshtrial.testbed.kubernetes.options import KubernetesOptions

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class MeshInstaller:
    """Installs meshes as one owner.

    Attributes
    ----------
    installed : dict
        Mesh name to the moment (``time.time``) it became ready.
    """

    def __init__(self, cluster: Cluster, options: KubernetesOptions, applier: Applier) -> None:
        self.cluster = cluster
        self.options = options
        self.applier = applier
        self.installed: dict[str, float] = {}
        self.install_s: dict[str, float] = {}
        self._meshes: dict[str, Mesh] = {}

    def install(self, mesh: Mesh) -> None:
        """Install a mesh and wait until it is ready; on failure nothing of it stays."""
        if mesh.reference or self.options.mesh_install == "existing":
            self._check_existing(mesh)
            return
        began = time.monotonic()
        self._meshes[mesh.name] = mesh
        before = self._crds(mesh)
        try:
            for name in mesh.namespaces:
                self.applier.namespace(name, {}, {MESH: mesh.name})
            if mesh.method == "command":
                self._run(mesh, mesh.install)
            else:
                values = _Values(self.options, mesh)
                for release in mesh.releases:
                    helm.install_release(self.cluster, self.options, mesh, release, values.of(release))
                    self._own_crds(mesh, before)
            self._own_crds(mesh, before)
            self._wait(mesh)
        except BaseException:
            with contextlib.suppress(TestbedError):
                self._own_crds(mesh, before)  # those of a release that was cut short
                self.uninstall(mesh.name)
            raise
        self.installed[mesh.name] = time.time()
        self.install_s[mesh.name] = time.monotonic() - began

    def uninstall(self, name: str) -> None:
        """Uninstall a mesh of ours: releases, namespaces, CRDs."""
        mesh = self._meshes.pop(name, None)
        self.installed.pop(name, None)
        if mesh is None:
            return
        owner = self.applier.owner
        # Custom resources first: a control plane that is gone cannot clear their finalizers.
        if mesh.method == "command":
            self._run(mesh, mesh.uninstall)
        else:
            for release in reversed(mesh.releases):
                helm.uninstall_release(self.cluster, self.options, release)
        for namespace in mesh.namespaces:
            delete_namespace(self.cluster, namespace, owner.id.__eq__, self.options.mesh_timeout_s)
        lines = remove_crds(self.cluster, owner.study, owner.id)
        if lines:
            raise TestbedError("; ".join(lines))

    def _run(self, mesh: Mesh, steps: tuple[Command, ...]) -> None:
        env = {"KUBECONFIG": self.cluster.kubeconfig} if self.cluster.kubeconfig else {}
        for step in steps:
            argv = [part.format(folder=mesh.folder, context=self.cluster.context) for part in step.command]
            out = helm.run(argv, self.options.mesh_timeout_s, env)
            if step.apply:
                self.applier.apply([item for item in yaml.safe_load_all(out) if item])

    def _check_existing(self, mesh: Mesh) -> None:
        for part in mesh.control_plane:
            if not wait.live_pods(self.cluster, part.namespace, part.selector):
                raise TestbedError(
                    f"mesh {mesh.name}: no {part.component} ({part.selector} in {part.namespace}); "
                    "install it, or let meshtrial do it with mesh_install=managed"
                )

    def _wait(self, mesh: Mesh) -> None:
        for part in (*mesh.control_plane, *mesh.agents):
            count = _wanted(self.cluster, part)
            wait.pods_ready(
                self.cluster, part.namespace, part.selector, count, self.options.mesh_timeout_s, mesh.settle
            )

    def _crds(self, mesh: Mesh) -> dict[str, Json]:
        if not mesh.crd_groups:
            return {}
        found = self.cluster.items(_CRDS)
        ours = [c for c in found if c["spec"]["group"].endswith(tuple(mesh.crd_groups))]
        return {item["metadata"]["name"]: item for item in ours}

    def _own_crds(self, mesh: Mesh, before: Mapping[str, Json]) -> None:
        owner = self.applier.owner
        for name, item in self._crds(mesh).items():
            labels = item["metadata"].get("labels") or {}
            if name not in before and labels.get(OWNER) != owner.id:
                body = {"metadata": {"labels": {OWNER: owner.id, STUDY: label(owner.study)}}}
                self.cluster.merge(f"{_CRDS}/{name}", body)

    def problems(self, mesh: Mesh) -> list[str]:
        """What stands in the way of an installation, one line each."""
        found: list[str] = []
        if mesh.reference:
            return found
        if self.options.mesh_install == "existing":
            try:
                self._check_existing(mesh)
            except TestbedError as error:
                found.append(str(error))
            return found
        if mesh.method == "helm":
            try:
                helm.program(self.options)
            except Exception as error:  # noqa: BLE001 - any failure here is the line that the user needs
                found.append(f"mesh {mesh.name}: {error}")
        for name in mesh.namespaces:
            refusal = verdict(self.applier.find_namespace(name), self.applier.owner, self.cluster.context)
            if refusal:
                found.append(f"mesh {mesh.name}: {refusal}; or use what stands with mesh_install=existing")
        for kind in mesh.requires:
            try:
                self.cluster.get(f"{_CRDS}/{kind}")
            except NotFoundError:
                found.append(f"mesh {mesh.name}: needs the CRD {kind}, which this cluster does not have; install it")
        return found


def _wanted(cluster: Cluster, part: Selector) -> int:
    """How many pods a DaemonSet wants; 1 for anything else."""
    path = f"/apis/apps/v1/namespaces/{part.namespace}/daemonsets"
    for item in cluster.items(path):
        chosen = item["spec"]["selector"].get("matchLabels") or {}
        wanted = dict(pair.split("=", 1) for pair in part.selector.split(",") if "=" in pair)
        if all(chosen.get(k, item["spec"]["template"]["metadata"]["labels"].get(k)) == v for k, v in wanted.items()):
            return max(1, int(item.get("status", {}).get("desiredNumberScheduled") or 1))
    return 1


class _Values:
    """Values of one installation: fairness and choices by the mesh's own paths, generated keys, the user's own."""

    def __init__(self, options: KubernetesOptions, mesh: Mesh) -> None:
        self._mesh = mesh
        self._said: dict[str, Any] = {
            "proxy_cpu": options.proxy_cpu,
            "proxy_memory": options.proxy_memory,
            **mesh.chosen,
        }
        self._generated = issuer_chain() if mesh.generated else {}

    def of(self, release: Release) -> Json:
        """The values that come after the release's own files."""
        values: Json = {}
        for name, value in self._said.items():
            if value in ("", None):
                continue
            for path in self._mesh.parameters.get(name, {}).get(release.name, ()):
                put(values, path, value)
        for name, path in self._mesh.generated.get(release.name, {}).items():
            put(values, path, self._generated[name])
        return merged(values, _user_values(self._mesh, release))


def _user_values(mesh: Mesh, release: Release) -> Json:
    given = mesh.values.get(release.name, {})
    if isinstance(given, str):
        try:
            with open(given, encoding="utf-8") as file:  # noqa: PTH123 - a path as the user wrote it
                given = yaml.safe_load(file)
        except OSError as error:
            raise UsageError(f"meshes.{mesh.name}.values.{release.name}: {given!r}: {error.strerror}") from None
    if not isinstance(given, dict):
        raise UsageError(f"meshes.{mesh.name}.values.{release.name}: allowed is a mapping or a YAML file of one")
    return given


def put(values: Json, path: str, value: Any) -> None:
    """Set ``global.proxy.resources.limits.cpu`` in nested mappings."""
    *way, last = path.split(".")
    at = values
    for key in way:
        at = at.setdefault(key, {})
    at[last] = value


def merged(first: Json, second: Json) -> Json:
    """Helm's own rule: mappings merge, all else is replaced by the second."""
    found = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], value) if both else value
    return found
