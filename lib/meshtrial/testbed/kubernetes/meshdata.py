"""A mesh as data: a folder with ``mesh.yaml``, values and feature manifests. Adding a mesh is adding a folder.

Here are the parts; ``meshread`` reads and checks them.
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
# What each proof needs of the application beside a path to ask: an echo of the request's headers, or three tiers.
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
EVERYTHING = "*"  # in place of a kind, of `shared`
PROTOCOLS = ("http1", "h2", "grpc", "mixed")  # of requests; what is said of bytes is a `Bytes`
# Kubernetes' names for what a port carries, where a mesh says nothing else.
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
    service_account_token: bool = False  # the pods' account is mounted in them, for a sidecar that signs on with it
    # these two keep a pod of an enrolled namespace out of the mesh
    outside_labels: Mapping[str, str] = field(default_factory=dict)
    outside_annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """A place in a feature's manifests that gets a run-time value (``jwks``, ``service``...)."""

    kind: str
    path: str
    value: str
    name: str = ""  # of the object as it lies in its file; empty is every object of that kind


@dataclass(frozen=True)
class Counter:
    """A number that must grow with the requests."""

    name: str
    pods: str  # app, load, collector, waypoint, or the component of an agent or of the control plane
    url: str  # port/path on each of the pods; read from outside the mesh
    pattern: str  # regular expression with one group; all matches of all pods are summed
    # "requests": at least as much as requests were sent, of tcp as bytes were; "some": at all; "none": not at all
    growth: str = "requests"
    # In place of that: about so many percent of the growth of another counter, by its name
    percent: float = 0.0
    of: str = ""


@dataclass(frozen=True)
class Lines:
    """Log lines that must be there, one for every request up to the number that is looked at."""

    name: str
    pods: str
    container: str
    pattern: str


@dataclass(frozen=True)
class Bytes:
    """What is otherwise where the generators send bytes (``protocol=tcp``), in which no proxy finds a request."""

    counters: tuple[Counter, ...] = ()  # in place of its own, which of a mesh stay where there are none here
    absent_counters: tuple[Counter, ...] = ()  # of a feature: of the treatments without it
    pod_annotations: Mapping[str, str] = field(default_factory=dict)  # of a mesh: over those of its enrolment


@dataclass(frozen=True)
class Pushes:
    """The control plane's own histogram of how long a change takes to its proxies, in seconds."""

    component: str  # of the control plane
    url: str  # port/path on each of its pods; read from outside the mesh
    histogram: str  # its name without _bucket


@dataclass(frozen=True)
class VersionProbe:
    """Where a part of the mesh tells which version it is, or how it was built."""

    name: str  # the part, as a record names it
    pods: str  # as of a Counter
    # As of a Counter; `127.0.0.1:port/path` is asked from inside the generators' pod, and `log CONTAINER` is that log's
    # beginning.
    url: str
    pattern: str  # regular expression with one group, the version
    of_build: bool = False  # the group is how it was built (RELEASE, debug), and no version
    of_mesh: bool = True  # it is the mesh's version; a part that counts its own is recorded and compared with nothing


@dataclass(frozen=True)
class MeshOverride:
    """What a user says of a mesh, or of one version of it."""

    where: str  # where the user says it
    parameters: Mapping[str, Any] = field(default_factory=dict)  # by name
    values: Mapping[str, Any] = field(default_factory=dict)  # by release, a mapping or a file of one


@dataclass(frozen=True)
class ExpectedVersion:
    """What a version of a mesh is said to be; what runs is held against it."""

    version: str  # as treatments name it: 1.30 of istio@1.30
    names: tuple[str, ...]  # what its images' tags, and what its parts tell of themselves, must have one of
    # By container, or by the name of a `VersionProbe`: what must be in that one's image or word instead.
    runs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Feature:
    """One thing that a treatment can switch on."""

    name: str
    title: str = ""
    # Applied with, and without the feature: a treatment without it must really be without it. An object of the mesh's
    # base that has the same kind, namespace and name is replaced.
    manifests: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()  # names of PROOFS, and so are the absent ones
    absent_proofs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()  # CRDs that the cluster must have besides
    apps: tuple[str, ...] = ()  # the applications that it is for; empty is any
    token: bool = False
    policy: bool = False  # a policy server (manifests/policy/) joins every application pod
    settings: tuple[Setting, ...] = ()
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    # What a proof looks for: "header" (regular expression in the echoed request), "missing" and "bad" (status codes
    # of a JWT treatment, or of OPA's), "path" and "denied" (a path and its status codes).
    expect: Mapping[str, Any] = field(default_factory=dict)
    counters: tuple[Counter, ...] = ()  # evidence besides, of the treatments with the feature; and so are logs
    logs: tuple[Lines, ...] = ()
    waits: str = ""  # label selector: it stands when such a pod of the study's namespace is ready
    # Applied under load, it denies every request to the application; deleted again, it allows them (study propagation).
    denial: tuple[str, ...] = ()
    # Of deployments that stand at once, one alone may have it, or another such feature that brings a file of its
    once: bool = False
    bare: str = ""  # "app" or "load": these pods stay outside of the mesh, so the other side alone has sidecars
    tcp: Bytes | None = None  # where it does not need requests; with `protocol=tcp` any other one is refused


@dataclass(frozen=True)
class Mesh:
    """Everything the backend knows of a mesh."""

    name: str  # of a version, istio@1.30: two versions are two meshes, which share their namespaces
    title: str
    version: str
    folder: Path
    build: str = ""  # who built it, where that is not its project ("own build"): reports say it beside the version
    architecture: str = "sidecar"
    tested: bool = False
    reference: bool = False
    namespaces: tuple[str, ...] = ()
    releases: tuple[Release, ...] = ()
    install: tuple[Command, ...] = ()
    uninstall: tuple[Command, ...] = ()
    method: str = "helm"
    requires: tuple[str, ...] = ()  # CRDs that the cluster must have; with a version behind a /, that version served
    crd_groups: tuple[str, ...] = ()
    settle: tuple[str, ...] = ()
    enrol: Enrolment = Enrolment()
    proxy_containers: tuple[str, ...] = ()
    policy_containers: tuple[str, ...] = ("opa",)
    control_plane: tuple[Selector, ...] = ()
    agents: tuple[Selector, ...] = ()
    pushes: Pushes | None = None  # where it tells how long its pushes take
    tells: tuple[VersionProbe, ...] = ()  # where its parts tell their versions
    waypoints: str = ""
    base: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()  # in the base's own objects
    denial: tuple[str, ...] = ()  # as of a feature, in every treatment of the mesh
    proofs: tuple[str, ...] = ("proxied",)
    counters: tuple[Counter, ...] = ()
    expect: Mapping[str, Any] = field(default_factory=dict)
    features: Mapping[str, Feature] = field(default_factory=dict)
    not_toggles: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    generated: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    protocols: tuple[str, ...] = PROTOCOLS  # which it carries as what they are; a study of another one is refused
    tcp: Bytes | None = None  # where it carries bytes too
    # `appProtocol` of the application's ports by what they carry; an empty text leaves it out.
    app_protocols: Mapping[str, str] = field(default_factory=lambda: dict(APP_PROTOCOLS))
    # by release, where its chart takes keys that its own values do not list
    open_values: Mapping[str, Any] = field(default_factory=dict)
    # Kinds of its objects that deployments in several namespaces share: two that want one of them otherwise cannot
    # stand at once. "*" where one deployment at a time is all that it bears.
    shared: tuple[str, ...] = ()
    one_service: bool = False  # a pod belongs to one Service for good, so no other can take endpoints over
    storage: bool = False  # it claims a volume, for which the cluster needs a default StorageClass
    remarks: tuple[str, ...] = ()  # what a user should know before choosing it (licence, channel)
    documents: tuple[str, ...] = ()  # pages of its project that describe what is set
    choices: tuple[MeshOverride, ...] = ()  # the user's, the mesh's own before its version's: what comes later wins
    declared: ExpectedVersion | None = None  # of a version alone

    @property
    def chosen(self) -> dict[str, Any]:
        """The user's parameters."""
        return {name: value for choice in self.choices for name, value in choice.parameters.items()}

    @property
    def called(self) -> str:
        """Its version as records and reports name it, with who built it where that is not its project."""
        # One that says its images' tag alone is called by that, whatever its charts are.
        names = self.declared.names if self.declared is not None else (self.version,)
        version = self.version if self.version in names else names[0]
        return f"{version} ({self.build})" if self.build else version

    def objects(self, names: tuple[str, ...]) -> list[manifests.Json]:
        """The documents of these files of the mesh's folder."""
        return [item for name in names for item in manifests.read(self.folder / name)]

    def carrying(self, protocol: str, treatment: Treatment) -> Mesh:
        """What it is under a load of this protocol; refused where it, or a feature asked for, is not for that."""
        if protocol in self.protocols:
            return self
        if protocol != "tcp" or self.tcp is None:
            carried = ", ".join((*self.protocols, *(["tcp"] if self.tcp is not None else [])))
            raise UsageError(f"treatment {treatment.name}: {self.name} carries {carried} here, not {protocol}")
        for feature in self.check(treatment):
            if feature.tcp is None:
                raise UsageError(
                    f"treatment {treatment.name}: {feature.name} is for requests, and protocol = 'tcp' sends bytes; "
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
        """The treatment's features; one that the mesh lacks, cannot toggle, or has only beside another is refused."""
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
