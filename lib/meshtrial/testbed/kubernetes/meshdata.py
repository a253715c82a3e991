"""A mesh as data: a folder with ``mesh.yaml``, values and feature manifests. A new folder adds a mesh.

``meshread`` reads and checks these parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import manifests

SCHEMA = "meshtrial.mesh/1"
# What each proof needs of the application besides a path: an echo of the request's headers, or three tiers.
PROOFS = {
    "proxied": "",
    "plaintext-refused": "",
    "plaintext-accepted": "",
    "peer-identity": "headers",
    "no-peer-identity": "headers",
    "jwt": "",
    "opa": "",
    "denied": "",
    "allowed": "",
    "scoped": "tiers",
    "unscoped": "tiers",
    "one-sided": "",
}
EVERYTHING = "*"  # in `shared`, every kind
PROTOCOLS = ("http1", "h2", "grpc", "mixed")  # of requests; for bytes see `Bytes`
# Kubernetes' names for what a port carries, unless a mesh has its own.
APP_PROTOCOLS = {"http1": "http", "h2": "http2", "grpc": "grpc", "tcp": "tcp"}


@dataclass(frozen=True)
class Release:
    """A Helm release."""

    name: str
    chart: str = ""
    repository: str = ""
    version: str = ""
    namespace: str = ""
    values: tuple[str, ...] = ()  # files beside mesh.yaml
    path: str = ""  # a local chart, instead of repository and version


@dataclass(frozen=True)
class Command:
    """A step of the mesh's own command line; with ``apply``, the manifests that it prints are applied."""

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
    """How a namespace and its pods become part of the mesh; ``{proxy_cpu}`` and similar names are replaced."""

    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    service_account_token: bool = False  # mount the pods' account, with which a sidecar authenticates
    # Both keep a pod of an enrolled namespace out of the mesh.
    outside_labels: Mapping[str, str] = field(default_factory=dict)
    outside_annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """A place in a feature's manifests that gets a run-time value (``jwks``, ``service`` and others)."""

    kind: str
    path: str
    value: str
    name: str = ""  # name of the object in the file; empty: every object of that kind


@dataclass(frozen=True)
class Counter:
    """A number that must grow with the requests."""

    name: str
    pods: str  # app, load, collector, waypoint, or the component of an agent or of the control plane
    url: str  # port/path on each of the pods; read from outside the mesh
    pattern: str  # regular expression with one group; all matches of all pods are summed
    # "requests": by at least the number of requests sent (of bytes with tcp); "some": at all; "none": not at all
    growth: str = "requests"
    # Instead of `growth`: by about this percentage of the growth of the counter that `of` names.
    percent: float = 0.0
    of: str = ""


@dataclass(frozen=True)
class Lines:
    """Log lines that must exist, one per request up to the number of lines that are read."""

    name: str
    pods: str
    container: str
    pattern: str


@dataclass(frozen=True)
class Bytes:
    """What differs where the generators send bytes (``protocol=tcp``), in which no proxy finds a request."""

    counters: tuple[Counter, ...] = ()  # replace its own; empty: a mesh keeps its counters, a feature has none
    absent_counters: tuple[Counter, ...] = ()  # of a feature: for treatments without it
    pod_annotations: Mapping[str, str] = field(default_factory=dict)  # of a mesh: override those of its enrolment


@dataclass(frozen=True)
class Pushes:
    """The control plane's histogram of the time from a change to its proxies, in seconds."""

    component: str  # of the control plane
    url: str  # port/path on each of its pods; read from outside the mesh
    histogram: str  # its name without _bucket


@dataclass(frozen=True)
class VersionProbe:
    """Where a part of the mesh reports its version, or how it was built."""

    name: str  # name of the part in records
    pods: str  # as in `Counter`
    # As in `Counter`; also `127.0.0.1:port/path`, read inside the generators' pod, `log CONTAINER`, the beginning of
    # that container's log, or `containers`, a line per container as Kubernetes admitted it.
    url: str
    pattern: str  # regular expression with one group, the version
    of_build: bool = False  # the group is how it was built (RELEASE, debug), not a version
    of_mesh: bool = True  # it is the mesh's version; otherwise it is recorded and not compared


@dataclass(frozen=True)
class MeshOverride:
    """What a user sets for a mesh, or for one version of it."""

    where: str  # name of the setting
    parameters: Mapping[str, Any] = field(default_factory=dict)  # by name
    values: Mapping[str, Any] = field(default_factory=dict)  # by release, a mapping or a file of one


@dataclass(frozen=True)
class ExpectedVersion:
    """What a version of a mesh is declared to be; what runs is compared with it."""

    version: str  # as treatments name it: 1.30 of istio@1.30
    names: tuple[str, ...]  # its images' tags, and the versions that its parts report, must match one
    # By container, or by the name of a `VersionProbe`, what its image or report must match instead.
    runs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Feature:
    """A feature that a treatment can switch on."""

    name: str
    title: str = ""
    # Files that are applied with the feature, and files that keep it off in treatments without it. Their objects
    # replace those of the mesh's base with the same kind, namespace and name.
    manifests: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()  # names of PROOFS
    absent_proofs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()  # further CRDs that the cluster must have
    apps: tuple[str, ...] = ()  # the applications that it supports; empty: any
    token: bool = False
    policy: bool = False  # a policy server (manifests/policy/) joins every application pod
    settings: tuple[Setting, ...] = ()
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    # What a proof expects: "header" (regular expression in the echoed request), "missing" and "bad" (status codes with
    # JWT or OPA), "path" and "denied" (a path and its status codes).
    expect: Mapping[str, Any] = field(default_factory=dict)
    counters: tuple[Counter, ...] = ()  # further evidence for treatments with it, like logs
    logs: tuple[Lines, ...] = ()
    waits: str = ""  # label selector: the deployment is ready when such a pod of the study's namespace is
    # While these are applied, every request to the application is denied (study propagation).
    denial: tuple[str, ...] = ()
    # Only one concurrent deployment may use this feature, or another `once` feature that shares a manifest file.
    once: bool = False
    bare: str = ""  # "app" or "load": these pods stay outside of the mesh; only the other side has sidecars
    tcp: Bytes | None = None  # set if it works without requests; otherwise `protocol=tcp` is refused


@dataclass(frozen=True)
class Mesh:
    """Everything that the backend knows about a mesh."""

    name: str  # istio, or istio@1.30: two versions are two meshes in the same namespaces
    title: str
    version: str
    folder: Path
    build: str = ""  # who built it, if not its project ("own build"): shown beside the version
    architecture: str = "sidecar"
    tested: bool = False
    reference: bool = False
    namespaces: tuple[str, ...] = ()
    releases: tuple[Release, ...] = ()
    install: tuple[Command, ...] = ()
    uninstall: tuple[Command, ...] = ()
    method: str = "helm"
    requires: tuple[str, ...] = ()  # CRDs that the cluster must have; NAME/VERSION needs that version served
    crd_groups: tuple[str, ...] = ()
    settle: tuple[str, ...] = ()
    enrol: Enrolment = Enrolment()
    proxy_containers: tuple[str, ...] = ()
    policy_containers: tuple[str, ...] = ("opa",)
    control_plane: tuple[Selector, ...] = ()
    agents: tuple[Selector, ...] = ()
    pushes: Pushes | None = None  # where it reports how long its pushes take
    version_probes: tuple[VersionProbe, ...] = ()  # where its parts report their versions
    waypoints: str = ""
    base: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()  # values that are set in the manifests of `base`
    denial: tuple[str, ...] = ()  # as in a feature, for every treatment of the mesh
    proofs: tuple[str, ...] = ("proxied",)
    counters: tuple[Counter, ...] = ()
    expect: Mapping[str, Any] = field(default_factory=dict)
    features: Mapping[str, Feature] = field(default_factory=dict)
    # Ways to install it that are treatments (`istio@nftables`), as `meshes.<mesh>.versions` of a cluster file.
    versions: Mapping[str, Any] = field(default_factory=dict)
    not_toggles: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    generated: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    protocols: tuple[str, ...] = PROTOCOLS  # that it carries; a study of another one is refused
    tcp: Bytes | None = None  # set if it also carries plain bytes
    # `appProtocol` of the application's ports by what they carry; an empty text omits it.
    app_protocols: Mapping[str, str] = field(default_factory=lambda: dict(APP_PROTOCOLS))
    # By release, values that its chart accepts without listing them.
    open_values: Mapping[str, Any] = field(default_factory=dict)
    # Kinds of its objects that all deployments of the cluster share: two with different ones cannot be concurrent.
    # "*" if only one deployment at a time is possible.
    shared: tuple[str, ...] = ()
    one_service: bool = False  # a pod always belongs to one Service, so endpoints cannot move to another
    storage: bool = False  # it claims a volume, for which the cluster needs a default StorageClass
    remarks: tuple[str, ...] = ()  # what a user should know before choosing it (licence, channel)
    documents: tuple[str, ...] = ()  # pages of its project that document the settings
    choices: tuple[MeshOverride, ...] = ()  # the user's; later ones override earlier ones
    declared: ExpectedVersion | None = None  # set for one of several versions

    @property
    def chosen(self) -> dict[str, Any]:
        """The user's parameters."""
        return {name: value for choice in self.choices for name, value in choice.parameters.items()}

    @property
    def called(self) -> str:
        """Its version as records and reports name it; with the builder, unless that is its project."""
        # A version that declares only its images' tag is named by that, whatever its charts are.
        names = self.declared.names if self.declared is not None else (self.version,)
        version = self.version if self.version in names else names[0]
        return f"{version} ({self.build})" if self.build else version

    def objects(self, names: tuple[str, ...]) -> list[manifests.Json]:
        """Return the documents of these files of the mesh's folder."""
        return [item for name in names for item in manifests.read(self.folder / name)]

    def carrying(self, protocol: str, treatment: Treatment) -> Mesh:
        """Return the mesh under a load of this protocol; UsageError where it or a feature does not support it."""
        if protocol in self.protocols:
            return self
        if protocol != "tcp" or self.tcp is None:
            protocols = ", ".join((*self.protocols, *(["tcp"] if self.tcp is not None else [])))
            raise UsageError(f"treatment {treatment.name}: {self.name} carries {protocols} here, not {protocol}")
        for feature in self.check(treatment):
            if feature.tcp is None:
                raise UsageError(
                    f"treatment {treatment.name}: {feature.name} needs requests, and protocol = 'tcp' sends bytes; "
                    "leave it out"
                )
        features, counters = {}, [*(self.tcp.counters or self.counters)]
        for name, feature in self.features.items():
            if feature.tcp is not None:
                features[name] = replace(feature, counters=feature.tcp.counters, logs=())
                counters += feature.tcp.absent_counters if name not in treatment.features else ()
        enrol = replace(self.enrol, pod_annotations={**self.enrol.pod_annotations, **self.tcp.pod_annotations})
        return replace(self, counters=tuple(counters), features=features, enrol=enrol)

    def check(self, treatment: Treatment) -> tuple[Feature, ...]:
        """Return the treatment's features; UsageError for one that is unknown, no toggle, or lacks what it needs."""
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
                    raise UsageError(f"treatment {treatment.name}: {name} and {other} exclude each other; take one")
        return tuple(self.features[name] for name in treatment.features)
