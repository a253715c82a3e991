"""Read meshes from their folders, strictly, and apply the user's own settings.

An unknown name is refused: with a misspelt selector, a proxy would be missing from the sum, and nobody would notice.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshtrial import typed
from meshtrial.design.study import TWIN_SUFFIX, VERSION_NAME, is_app
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.apply import MANAGED_BY
from meshtrial.testbed.kubernetes.manifests import NOTE
from meshtrial.testbed.kubernetes.meshdata import (
    APP_PROTOCOLS,
    PROOFS,
    PROTOCOLS,
    SCHEMA,
    Counter,
    ExpectedVersion,
    Feature,
    Lines,
    Mesh,
    MeshOverride,
    Release,
    VersionProbe,
)
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.typed import SHAPE_ERRORS, shortened

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
        releases.append(typed.read(Release, {**dataclasses.asdict(release), **said}, f"{where}.charts.{release.name}"))
    return dataclasses.replace(
        mesh,
        version=version,
        build=str(choice.get("build", mesh.build)),
        enrol=dataclasses.replace(mesh.enrol, namespace_labels=_namespace_labels(mesh, choice, where)),
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
        if key == MANAGED_BY or (key.startswith(NOTE) and key not in mesh.enrol.namespace_labels):
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
        versions[name] = dataclasses.replace(
            own, name=f"{mesh.name}@{name}", declared=ExpectedVersion(name, names, runs)
        )
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
