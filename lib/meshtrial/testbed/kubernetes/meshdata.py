"""A mesh as data: a folder with ``mesh.yaml``, values and feature manifests. A new folder adds a mesh.

Folders are read strictly: with a misspelt selector, a proxy would be missing from the sum, and nobody would notice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from meshtrial import typed
from meshtrial.design.study import TWIN_SUFFIX, VERSION_NAME, Treatment, is_app
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import manifests
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.typed import SHAPE_ERRORS, shortened

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
    absent_counters: tuple[Counter, ...] = ()  # of a feature: counters for treatments without it
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


# --- reading ----------------------------------------------------------------------------------------------------------

# The most problems of a mesh in one message, and the longest text of each: a mangled name has any length.
_MOST_PROBLEMS, _LONGEST = 8, 240
_CHOICES = ("version", "build", "method", "charts", "values", "parameters", "namespace_labels")
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
_NAME_LABEL = "kubernetes.io/metadata.name"
_EXCLUSIVE_LABELS = {"istio-injection", "istio.io/rev"}
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)


def find_meshes(options: KubernetesOptions) -> dict[str, Mesh]:
    """Return every mesh and each of its versions (``istio@1.30``), with the user's own settings applied."""
    root = options.folder / "meshes"
    folders = sorted(path.parent for path in root.glob("*/mesh.yaml"))
    folders += [Path(name).expanduser() for name in options.mesh_folders]
    meshes = {mesh.name: mesh for mesh in (read_mesh(folder) for folder in folders)}
    for name in options.meshes:
        if name not in meshes:
            raise UsageError(f"meshes: {name!r} is not known; known are {', '.join(meshes)}")
    chosen = {}
    for name, mesh in meshes.items():
        where, choice = f"meshes.{name}", options.meshes.get(name, {})
        chosen[name] = _chosen(mesh, choice, where, (*_CHOICES, "versions"))
        chosen |= _versions(chosen[name], choice, where)
    return chosen


def read_mesh(folder: Path) -> Mesh:
    """Read and check one folder; UsageError names the file."""
    path = folder / "mesh.yaml"
    data = typed.read_yaml(path, str(path), f"a mapping that begins with 'schema: {SCHEMA}'")
    if data.pop("schema", None) != SCHEMA:
        raise UsageError(f"{path}: must begin with 'schema: {SCHEMA}'")
    try:
        return _mesh(data, folder)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except SHAPE_ERRORS as error:
        raise UsageError(
            f"{path}: is not mesh data ({shortened(error, 120)}); see docs/reference/mesh-yaml.md"
        ) from None


def _mesh(data: dict[str, Any], folder: Path) -> Mesh:
    given = {key: value for key, value in data.items() if value is not None}  # an empty line counts as absent
    if "tells" in given and "version_probes" not in given:  # an earlier name of the key
        given["version_probes"] = given.pop("tells")
    features = {}
    for name, item in given.get("features", {}).items():
        named = {**item, "name": name} if isinstance(item, Mapping) else item
        features[name] = typed.read(Feature, named, f"features.{name}")
    protocols = APP_PROTOCOLS | given.get("app_protocols", {})
    mesh = typed.read(Mesh, {**given, "features": features, "app_protocols": protocols, "folder": folder})
    _validate(mesh)
    return mesh


def _validate(mesh: Mesh) -> None:
    problems = []
    both = set(mesh.features) & set(mesh.not_toggles)
    if both:
        problems.append(f"{', '.join(sorted(both))}: is in both features and not_toggles")
    proofs = [*mesh.proofs, *(p for f in mesh.features.values() for p in (*f.proofs, *f.absent_proofs))]
    problems += [f"proof {name!r} is not known; known are {', '.join(PROOFS)}" for name in proofs if name not in PROOFS]
    problems += [
        f"feature {f.name}: has no proof" for f in mesh.features.values() if not (f.proofs or f.counters or f.logs)
    ]
    problems += [f"protocol {p!r}: must be one of {', '.join(PROTOCOLS)}" for p in mesh.protocols if p not in PROTOCOLS]
    unknown = sorted(set(mesh.app_protocols) - set(APP_PROTOCOLS))
    problems += [f"app_protocols: {name!r} is not among {', '.join(APP_PROTOCOLS)}" for name in unknown]
    files = [*mesh.base, *mesh.denial]
    files += [n for f in mesh.features.values() for n in (*f.manifests, *f.absent, *f.denial)]
    files += [name for release in mesh.releases for name in release.values]
    problems += [f"file {name} is not in the folder" for name in files if not _is_file(mesh.folder / name)]
    known = {release.name for release in mesh.releases}
    named = {r for targets in mesh.parameters.values() for r in targets} | {*mesh.generated, *mesh.open_values}
    problems += [f"release {name!r} is not among the releases" for name in sorted(named - known)]
    related = {n for f in mesh.features.values() for n in (*f.needs, *f.excludes)}
    problems += [
        f"feature {name!r} is needed or excluded but does not exist" for name in sorted(related - set(mesh.features))
    ]
    if not mesh.reference and not mesh.releases and not mesh.install:
        problems.append("has neither releases (Helm) nor install (commands)")
    places = {"app", "load", "waypoint", "collector", *(p.component for p in (*mesh.agents, *mesh.control_plane))}
    evidence: list[Counter | Lines | VersionProbe] = [*mesh.counters, *mesh.version_probes]
    for feature in mesh.features.values():
        evidence += [*feature.counters, *feature.logs]
    for tcp in filter(None, (mesh.tcp, *(feature.tcp for feature in mesh.features.values()))):
        evidence += [*tcp.counters, *tcp.absent_counters]
    problems += [
        f"{e.name}: pods {e.pods!r} is not among {', '.join(sorted(places))}" for e in evidence if e.pods not in places
    ]
    counters = {"", *(counter.name for counter in evidence if isinstance(counter, Counter) and not counter.of)}
    problems += [
        f"{e.name}: `percent` must lie between 0 and 100 (exclusive), and `of` must name another counter that has no "
        f"`of` itself; got percent {e.percent:g}, of {e.of!r}"
        for e in evidence
        if isinstance(e, Counter) and (e.of not in counters or not (0 < e.percent < 100 if e.of else e.percent == 0))
    ]
    bare = {f.name: f.bare for f in mesh.features.values() if f.bare}
    problems += [f"feature {n}: bare {b!r}: must be app or load" for n, b in bare.items() if b not in ("app", "load")]
    if bare and not (mesh.enrol.outside_labels or mesh.enrol.outside_annotations):
        problems.append(f"feature {', '.join(bare)}: enrol has no outside_labels or outside_annotations")
    if mesh.pushes is not None and mesh.pushes.component not in {part.component for part in mesh.control_plane}:
        problems.append(f"pushes: component {mesh.pushes.component!r} is not part of the control plane")
    if mesh.architecture not in ("sidecar", "node-proxy"):
        problems.append(f"architecture {mesh.architecture!r}: must be sidecar or node-proxy")
    if mesh.architecture == "sidecar" and not mesh.proxy_containers:
        problems.append("a sidecar mesh must name its proxy_containers")
    if problems:
        lines = [p if len(p) <= _LONGEST and p.isprintable() else shortened(p, _LONGEST) for p in problems]
        more = f"; and {len(lines) - _MOST_PROBLEMS} more" if len(lines) > _MOST_PROBLEMS else ""
        raise UsageError("; ".join(lines[:_MOST_PROBLEMS]) + more)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no file can have such a name: it is too long, or has a null byte
        return False


def _chosen(mesh: Mesh, choice: Any, where: str, allowed: tuple[str, ...]) -> Mesh:
    """Return the mesh with the user's own version, charts, values, parameters and namespace labels."""
    if not isinstance(choice, Mapping):
        raise UsageError(f"{where}: must be a mapping")
    for key in choice:
        if key not in allowed:
            raise UsageError(f"{where}: {shortened(key)} is not known; must be one of {', '.join(allowed)}")
    charts, values, parameters = (_inner(choice, key, where) for key in ("charts", "values", "parameters"))
    names = {release.name for release in mesh.releases}
    for name in [*charts, *values]:
        if name not in names:
            raise UsageError(f"{where}: release {shortened(name)} is not known; known are {', '.join(sorted(names))}")
    for name in parameters:
        if name not in mesh.parameters:
            known = ", ".join(mesh.parameters)
            raise UsageError(f"{where}.parameters.{shortened(name)}: not known; known are {known}")
    _text(parameters.get("image_tag") or "", f"{where}.parameters.image_tag")
    version = _text(choice.get("version", mesh.version), f"{where}.version")
    releases = []
    for release in mesh.releases:
        said = {**({"version": version} if "version" in choice else {}), **_inner(charts, release.name, where)}
        releases.append(typed.read(Release, {**asdict(release), **said}, f"{where}.charts.{release.name}"))
    return replace(
        mesh,
        version=version,
        build=str(choice.get("build", mesh.build)),
        enrol=replace(mesh.enrol, namespace_labels=_namespace_labels(mesh, choice, where)),
        method=str(choice.get("method", mesh.method)),
        releases=tuple(releases),
        choices=(*mesh.choices, MeshOverride(where, parameters, values)),
    )


def _namespace_labels(mesh: Mesh, choice: Mapping[str, Any], where: str) -> Mapping[str, str]:
    """Return the labels that enrol a namespace: the user's instead of the mesh's, for example ``istio.io/rev``."""
    where = f"{where}.namespace_labels"
    labels = choice.get("namespace_labels")
    if labels is None:
        return mesh.enrol.namespace_labels
    if not isinstance(labels, Mapping):
        raise UsageError(f"{where}: must be a mapping, not {shortened(labels)}")
    for key, value in labels.items():
        if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
            raise UsageError(f"{where}: {shortened(key)} is no label of Kubernetes; write for example istio.io/rev")
        if key == _NAME_LABEL:
            raise UsageError(f"{where}: {key} is set by Kubernetes itself; leave it out")
        # Ownership and deletion of namespaces depend on these.
        if key == manifests.MANAGED_BY or (key.startswith(manifests.NOTE) and key not in mesh.enrol.namespace_labels):
            raise UsageError(f"{where}: {key} is set by meshtrial itself; leave it out")
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            raise UsageError(f"{where}.{key} = {shortened(value)}: must be a label's value; write a text in quotes")
    if labels.keys() >= _EXCLUSIVE_LABELS:
        both = " and ".join(sorted(_EXCLUSIVE_LABELS))
        raise UsageError(f"{where}: with both {both}, Istio ignores the revision; leave one of them out")
    return dict(labels)


def _versions(mesh: Mesh, choice: Mapping[str, Any], where: str) -> dict[str, Mesh]:
    """Return the versions of a mesh, the folder's and the user's, named as treatments name them, as overridden."""
    declared = {**mesh.versions, **_inner(choice, "versions", where)}
    if declared and mesh.reference:
        raise UsageError(f"{where}.versions: {mesh.name} is this project's reference and has no versions on a cluster")
    versions = {}
    for name, override in declared.items():
        here = f"{where}.versions.{_version_name(name, where)}"
        own = _chosen(mesh, override, here, (*_CHOICES, "runs"))
        _require_own_charts(mesh, own, override, here)
        # A version's own tag comes before the one for all versions.
        images = (_image_names(one) for one in (override, choice))
        names = next(filter(None, images), (own.version,))
        runs = {str(what): _text(text, f"{here}.runs.{what}") for what, text in _inner(override, "runs", here).items()}
        if not all(runs.values()):
            raise UsageError(f"{here}.runs: an empty text matches every image; give a tag or a digest")
        versions[name] = replace(own, name=f"{mesh.name}@{name}", declared=ExpectedVersion(name, names, runs))
    return {mesh.name: mesh for mesh in versions.values()}


def _version_name(name: Any, where: str) -> str:
    if not isinstance(name, str):
        raise UsageError(f"{where}.versions: {shortened(name)} is no text in YAML; write the name in quotes")
    if not VERSION_NAME.fullmatch(name) or name.endswith(TWIN_SUFFIX):
        raise UsageError(
            f"{where}.versions: {shortened(name)}: must be letters, digits and . _ -, not {TWIN_SUFFIX} at the end"
        )
    if is_app(name):
        raise UsageError(f"{where}.versions: {name} is the name of an application; take another name")
    return name


def _image_names(choice: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the images are called by a version and a tag that the user gives."""
    given = (choice.get("version"), (choice.get("parameters") or {}).get("image_tag"))
    return tuple(dict.fromkeys(str(text) for text in given if text))


def _require_own_charts(mesh: Mesh, own: Mesh, override: Mapping[str, Any], where: str) -> None:
    """Refuse a version that would be installed from the one chart that is given by path for all versions."""
    for release, before in zip(own.releases, mesh.releases, strict=True):
        overridden = "path" in _inner(override.get("charts") or {}, release.name, where)
        if "version" in override and before.path and not overridden:
            raise UsageError(
                f"{where}: is version {own.version}, but its chart {release.name} is {before.path}, as for all; "
                f"set charts.{release.name}.path to another one, to the same one, or to '' for its repository"
            )


def _inner(choice: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    inner = choice.get(key)
    if inner is None:
        return {}
    if not isinstance(inner, Mapping):
        raise UsageError(f"{where}.{key}: must be a mapping, not {shortened(inner)}")
    return inner


def _text(value: Any, where: str) -> str:
    """Return a version or tag; YAML reads 1.30 as the number 1.3."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UsageError(f"{where} = {shortened(value)}: must be a text in quotes, because YAML reads 1.30 as 1.3")
    return shortened(value) if isinstance(value, int) else value
