"""A mesh as data: a folder with ``mesh.yaml``, values and feature manifests. Adding a mesh is adding a folder.

Here are the parts; ``meshread`` reads and checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshtrial.errors import UsageError
from meshtrial.study import Treatment
from meshtrial.testbed.kubernetes import manifests

SCHEMA = "meshtrial.mesh/1"
PROOFS = (
    "proxied",
    "plaintext-refused",
    "plaintext-accepted",
    "peer-identity",
    "no-peer-identity",
    "jwt",
    "opa",
    "observability",
    "hbone",
    "waypoint",
    "scoped",
    "unscoped",
)


@dataclass(frozen=True)
class Release:
    """A Helm release.

    Attributes
    ----------
    values : tuple of str
        Files beside ``mesh.yaml``.
    path : str
        A local chart, instead of repository and version.
    """

    name: str
    chart: str = ""
    repository: str = ""
    version: str = ""
    namespace: str = ""
    values: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True)
class Command:
    """A step of the mesh's own command line; ``apply`` applies the manifests that it prints."""

    command: tuple[str, ...]
    apply: bool = False


@dataclass(frozen=True)
class Selector:
    """Pods of one component, by namespace and labels."""

    component: str
    namespace: str
    selector: str


@dataclass(frozen=True)
class Enrolment:
    """What makes a namespace and its pods part of the mesh; ``{proxy_cpu}`` and the like are filled in."""

    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """A place in a feature's manifests that gets a run-time value (``jwks``, ``rego``...)."""

    kind: str
    path: str
    value: str


@dataclass(frozen=True)
class Counter:
    """A number that must grow with the requests.

    Attributes
    ----------
    pods : str
        ``app``, ``load``, ``collector``, ``waypoint``, or the component of an agent.
    url : str
        ``port/path`` on each of the pods; read from outside the mesh.
    pattern : str
        Regular expression with one group; all matches of all pods are summed.
    growth : str
        ``requests``: at least as much as requests were sent; ``some``: at all; ``none``: not at all.
    """

    name: str
    pods: str
    url: str
    pattern: str
    growth: str = "requests"


@dataclass(frozen=True)
class Lines:
    """Log lines that must be there, one for every request up to the number that is looked at."""

    name: str
    pods: str
    container: str
    pattern: str


@dataclass(frozen=True)
class Feature:
    """One thing that a treatment can switch on.

    Attributes
    ----------
    manifests, absent : tuple of str
        Applied with, and without the feature: an arm without it must really be without it.
    proofs, absent_proofs : tuple of str
        Names of :data:`PROOFS`.
    expect : mapping
        What a proof looks for: ``header`` (regular expression in the echoed request), ``missing`` and ``bad``
        (status codes of a JWT arm, or of OPA's).
    counters, logs : tuple
        Evidence besides, of the arms with the feature.
    requires : tuple of str
        CRDs that the cluster must have besides.
    apps : tuple of str
        The applications that it is for; empty is any.
    policy : bool
        A policy server (``manifests/policy/``) joins every application pod.
    """

    name: str
    title: str = ""
    manifests: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()
    absent_proofs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    token: bool = False
    policy: bool = False
    settings: tuple[Setting, ...] = ()
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)
    counters: tuple[Counter, ...] = ()
    logs: tuple[Lines, ...] = ()


@dataclass(frozen=True)
class Mesh:
    """Everything the backend knows of a mesh."""

    name: str
    title: str
    version: str
    folder: Path
    architecture: str = "sidecar"
    tested: bool = False
    reference: bool = False
    namespaces: tuple[str, ...] = ()
    releases: tuple[Release, ...] = ()
    install: tuple[Command, ...] = ()
    uninstall: tuple[Command, ...] = ()
    method: str = "helm"
    requires: tuple[str, ...] = ()
    crd_groups: tuple[str, ...] = ()
    settle: tuple[str, ...] = ()
    enrol: Enrolment = Enrolment()
    proxy_containers: tuple[str, ...] = ()
    policy_containers: tuple[str, ...] = ("opa",)
    control_plane: tuple[Selector, ...] = ()
    agents: tuple[Selector, ...] = ()
    waypoints: str = ""
    base: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ("proxied",)
    counters: tuple[Counter, ...] = ()
    expect: Mapping[str, Any] = field(default_factory=dict)
    features: Mapping[str, Feature] = field(default_factory=dict)
    not_toggles: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    generated: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def objects(self, names: tuple[str, ...]) -> list[manifests.Json]:
        """The documents of these files of the mesh's folder."""
        return [item for name in names for item in manifests.read(self.folder / name)]

    def check(self, treatment: Treatment) -> tuple[Feature, ...]:
        """The treatment's features.

        Raises
        ------
        UsageError
            For a feature that the mesh does not have, cannot toggle, or has only beside another.
        """
        for name in treatment.features:
            if name in self.not_toggles:
                raise UsageError(
                    f"treatment {treatment.name}: {name} is not a toggle of {self.name}: {self.not_toggles[name]}"
                )
            if name not in self.features:
                allowed = ", ".join(self.features) or "none"
                raise UsageError(f"treatment {treatment.name}: {self.name} has no feature {name!r}; it has {allowed}")
            for other in self.features[name].needs:
                if other not in treatment.features:
                    raise UsageError(
                        f"treatment {treatment.name}: {name} needs {other}; write {self.name}+{other}+{name}"
                    )
            for other in self.features[name].excludes:
                if other in treatment.features:
                    raise UsageError(
                        f"treatment {treatment.name}: {name} and {other} are two ways of one thing; take one"
                    )
        return tuple(self.features[name] for name in treatment.features)
