"""Reads meshes from their folders, strictly, and puts the user's own choices in place.

A name that this version does not know is refused: a misspelt selector would leave a proxy out of the sum and
nobody would notice.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshtrial import typed
from meshtrial.design.study import APPS, TWIN_SUFFIX, VERSION_NAME
from meshtrial.errors import UsageError
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

# Problems of a mesh that one message names, and how long each may be: names that somebody mangled have any length.
_MOST_TOLD, _LONGEST = 8, 160
_CHOICES = ("version", "build", "method", "charts", "values", "parameters")


def find_meshes(options: KubernetesOptions) -> dict[str, Mesh]:
    """Every mesh that has a folder and each of its versions (``istio@1.30``), with the user's own settings in place."""
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
    """Read and check one folder; what is wrong is said with the file."""
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
            f"{path}: is not a mesh's data ({shortened(error, 120)}); see docs/reference/mesh-yaml.md"
        ) from None


def _mesh(data: dict[str, Any], folder: Path) -> Mesh:
    said = {key: value for key, value in data.items() if value is not None}  # an empty line says nothing
    features = {}
    for name, item in said.get("features", {}).items():
        named = {**item, "name": name} if isinstance(item, Mapping) else item
        features[name] = typed.read(Feature, named, f"features.{name}")
    protocols = APP_PROTOCOLS | said.get("app_protocols", {})
    mesh = typed.read(Mesh, {**said, "features": features, "app_protocols": protocols, "folder": folder})
    _validate(mesh)
    return mesh


def _validate(mesh: Mesh) -> None:
    problems = []
    both = set(mesh.features) & set(mesh.not_toggles)
    if both:
        problems.append(f"{', '.join(sorted(both))}: both a feature and not a toggle")
    used = [*mesh.proofs, *(p for f in mesh.features.values() for p in (*f.proofs, *f.absent_proofs))]
    problems += [f"proof {name!r} is not known; known are {', '.join(PROOFS)}" for name in used if name not in PROOFS]
    problems += [
        f"feature {f.name}: has no proof" for f in mesh.features.values() if not (f.proofs or f.counters or f.logs)
    ]
    problems += [f"protocol {p!r}: must be one of {', '.join(PROTOCOLS)}" for p in mesh.protocols if p not in PROTOCOLS]
    strange = sorted(set(mesh.app_protocols) - set(APP_PROTOCOLS))
    problems += [f"app_protocols: {name!r} is not among {', '.join(APP_PROTOCOLS)}" for name in strange]
    files = [*mesh.base, *mesh.denial]
    files += [n for f in mesh.features.values() for n in (*f.manifests, *f.absent, *f.denial)]
    files += [name for release in mesh.releases for name in release.values]
    problems += [f"file {name} is not in the folder" for name in files if not _is_file(mesh.folder / name)]
    known = {release.name for release in mesh.releases}
    mentioned = {r for targets in mesh.parameters.values() for r in targets} | {*mesh.generated, *mesh.open_values}
    problems += [f"release {name!r} is not among the releases" for name in sorted(mentioned - known)]
    others = {n for f in mesh.features.values() for n in (*f.needs, *f.excludes)}
    problems += [
        f"feature {name!r} is needed or excluded but not there" for name in sorted(others - set(mesh.features))
    ]
    if not mesh.reference and not mesh.releases and not mesh.install:
        problems.append("says neither releases (Helm) nor install (commands)")
    places = {"app", "load", "waypoint", "collector", *(p.component for p in (*mesh.agents, *mesh.control_plane))}
    evidence: list[Counter | Lines | VersionProbe] = [*mesh.counters, *mesh.tells]
    for feature in mesh.features.values():
        evidence += [*feature.counters, *feature.logs]
    for of_bytes in filter(None, (mesh.tcp, *(feature.tcp for feature in mesh.features.values()))):
        evidence += [*of_bytes.counters, *of_bytes.absent_counters]
    problems += [
        f"{e.name}: pods {e.pods!r} is not among {', '.join(sorted(places))}" for e in evidence if e.pods not in places
    ]
    wholes = {"", *(one.name for one in evidence if isinstance(one, Counter) and not one.of)}
    problems += [
        f"{e.name}: must have percent from 0 to 100 of another counter, not {e.percent:g} of {e.of!r}"
        for e in evidence
        if isinstance(e, Counter) and (e.of not in wholes or (0 < e.percent < 100) != bool(e.of))
    ]
    bare = {f.name: f.bare for f in mesh.features.values() if f.bare}
    problems += [f"feature {n}: bare {b!r}: must be app or load" for n, b in bare.items() if b not in ("app", "load")]
    if bare and not (mesh.enrol.outside_labels or mesh.enrol.outside_annotations):
        problems.append(f"feature {', '.join(bare)}: enrol says no outside_labels or outside_annotations")
    if mesh.pushes is not None and mesh.pushes.component not in {part.component for part in mesh.control_plane}:
        problems.append(f"pushes: component {mesh.pushes.component!r} is not of the control plane")
    if mesh.architecture not in ("sidecar", "node-proxy"):
        problems.append(f"architecture {mesh.architecture!r}: must be sidecar or node-proxy")
    if mesh.architecture == "sidecar" and not mesh.proxy_containers:
        problems.append("a sidecar mesh must name its proxy_containers")
    if problems:
        told = [p if len(p) <= _LONGEST and p.isprintable() else shortened(p, _LONGEST) for p in problems]
        more = f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
        raise UsageError("; ".join(told[:_MOST_TOLD]) + more)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have: too long, or with a zero in it
        return False


def _chosen(mesh: Mesh, choice: Any, where: str, allowed: tuple[str, ...]) -> Mesh:
    """The user's own version, charts, values and parameters over what is there."""
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
        method=str(choice.get("method", mesh.method)),
        releases=tuple(releases),
        choices=(*mesh.choices, MeshOverride(where, parameters, values)),
    )


def _versions(mesh: Mesh, choice: Mapping[str, Any], where: str) -> dict[str, Mesh]:
    """The declared versions of a mesh, each by the name that a treatment has: the mesh with its overrides on top."""
    declared = _inner(choice, "versions", where)
    if declared and mesh.reference:
        raise UsageError(f"{where}.versions: {mesh.name} is this project's reference and has no versions on a cluster")
    versions = {}
    for name, said in declared.items():
        here = f"{where}.versions.{_version_name(name, where)}"
        own = _chosen(mesh, said, here, (*_CHOICES, "runs"))
        _own_charts(mesh, own, said, here)
        # Whoever said last what runs is believed: a tag of all versions says nothing of one that names its own.
        told = (_called(one) for one in (said, choice))
        names = next(filter(None, told), (own.version,))
        runs = {str(what): _text(text, f"{here}.runs.{what}") for what, text in _inner(said, "runs", here).items()}
        if not all(runs.values()):
            raise UsageError(f"{here}.runs: an empty text is in every image; say a tag or a digest")
        versions[name] = dataclasses.replace(
            own, name=f"{mesh.name}@{name}", declared=ExpectedVersion(name, names, runs)
        )
    return {mesh.name: mesh for mesh in versions.values()}


def _version_name(name: Any, where: str) -> str:
    if not isinstance(name, str):
        raise UsageError(f"{where}.versions: {shortened(name)} is no text to YAML; write the name in quotes")
    if not VERSION_NAME.fullmatch(name) or name.endswith(TWIN_SUFFIX):
        raise UsageError(
            f"{where}.versions: {shortened(name)}: must be letters, digits and . _ -, not {TWIN_SUFFIX} at the end"
        )
    if name in APPS:
        raise UsageError(f"{where}.versions: {name} is what an application is called; take another name")
    return name


def _called(choice: Mapping[str, Any]) -> tuple[str, ...]:
    """What the images are called by what a user says, version and tag."""
    said = (choice.get("version"), (choice.get("parameters") or {}).get("image_tag"))
    return tuple(dict.fromkeys(str(one) for one in said if one))


def _own_charts(mesh: Mesh, own: Mesh, said: Mapping[str, Any], where: str) -> None:
    """Refuse a version that would be installed from the one chart that all versions were given by path."""
    for release, before in zip(own.releases, mesh.releases, strict=True):
        again = "path" in _inner(said.get("charts") or {}, release.name, where)
        if "version" in said and before.path and not again:
            raise UsageError(
                f"{where}: says version {own.version}, but its chart {release.name} is {before.path}, as for all; "
                f"say charts.{release.name}.path: another one, the same if it is meant, or '' for its repository"
            )


def _inner(choice: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """A mapping in a mapping; empty where it is not there or nothing is in it."""
    inner = choice.get(key)
    if inner is None:
        return {}
    if not isinstance(inner, Mapping):
        raise UsageError(f"{where}.{key}: must be a mapping, not {shortened(inner)}")
    return inner


def _text(value: Any, where: str) -> str:
    """A version or the like; YAML reads 1.30 as a number and forgets the nought."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UsageError(f"{where} = {shortened(value)}: must be a text; in quotes, for YAML reads 1.30 as 1.3")
    return shortened(value) if isinstance(value, int) else value
