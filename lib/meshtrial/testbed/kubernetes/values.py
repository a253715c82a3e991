"""The values that a mesh's charts are installed with, in Helm's order, and those of them that a chart does not have.

The mesh's files come first, then fairness and what is generated, then the user's own: of the mesh, then of its version.

Helm ignores a value that its chart does not list, in silence. Here it is a problem: a misspelt limit makes a
comparison unfair, and nobody would notice.
"""

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtrial.envoy.pki import issuer_chain
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.manifests import Json
from meshtrial.testbed.kubernetes.meshdata import Mesh, MeshOverride, Release
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.typed import parse_yaml

# What charts hand to Kubernetes as they get it: they list what is usual, not all that may be there.
_HANDED_ON = ("annotations", "labels", "selector", "affinity", "securitycontext")
_RESOURCES = {"requests", "limits", "claims"}
_GENERATED = "generated."


class Values:
    """Values of one installation: the mesh's files, fairness and choices by its paths, generated keys, the user's."""

    def __init__(self, options: KubernetesOptions, mesh: Mesh) -> None:
        self._mesh = mesh
        names = [name for _, name in options.pull_secrets]
        given = {"image_pull_secrets": names, "image_pull_secret_references": [{"name": name} for name in names]}
        fair = {"proxy_cpu": options.proxy_cpu, "proxy_memory": options.proxy_memory}
        self._fair = MeshOverride("", fair | (given if names else {}))
        self._generated = issuer_chain() if mesh.generated else {}

    def of(self, release: Release) -> Json:
        """The values that come after the release's own files."""
        together: Json = {}
        for _, values in self._after_files(release):
            together = merged(together, values)
        return together

    def layers(self, release: Release) -> list[tuple[str, Json]]:
        """All values with where they come from, later ones winning."""
        mesh = self._mesh
        files = [(name, _mapping(mesh.folder / name, f"mesh {mesh.name}: {name}")) for name in release.values]
        return [*files, *self._after_files(release)]

    def digest(self, release: Release) -> str:
        """SHA-256 of what is given to Helm, without the keys that are made anew for every installation."""
        together: Json = {}
        for where, values in self.layers(release):
            if not where.startswith(_GENERATED):
                together = merged(together, values)
        return hashlib.sha256(json.dumps(together, default=str).encode()).hexdigest()

    def _after_files(self, release: Release) -> list[tuple[str, Json]]:
        mesh, layers = self._mesh, []
        for name, path in mesh.generated.get(release.name, {}).items():
            layers.append((f"{_GENERATED}{name}", put({}, path, self._generated[name])))
        choices = (self._fair, *mesh.choices)
        # A parameter counts where it is said last, so that an empty one takes back what was said before.
        last = {name: choice for choice in choices for name in choice.parameters}
        for choice in choices:
            for name, value in choice.parameters.items():
                if last[name] is not choice or value in ("", None):
                    continue
                where = f"{choice.where}.parameters.{name}".lstrip(".")
                for path in mesh.parameters.get(name, {}).get(release.name, ()):
                    layers.append((where, put({}, path, value)))
            if release.name in choice.values:
                where = f"{choice.where}.values.{release.name}"
                layers.append((where, _mapping(choice.values[release.name], where)))
        return layers


def unknown_values(values: Json, known: Json, open_paths: Iterable[str] = ()) -> list[str]:
    """What a chart would ignore of these values, one line each.

    Below an empty map or list, or nothing, of its own values a chart takes anything. ``open_paths`` (``meshConfig``,
    ``global.platform``) are what it takes without listing it, with all below.
    """
    ways = [tuple(path.split(".")) for path in open_paths]
    return [_unknown_line(path, known) for path in _unknown(values, known, ways, ())]


def _unknown(
    values: Mapping[str, Any], known: Mapping[str, Any], ways: Sequence[tuple[str, ...]], at: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        path = (*at, str(key))
        if any(path[: len(way)] == way for way in ways):
            continue
        if key in known:
            below = known[key]
            if isinstance(value, Mapping) and isinstance(below, Mapping) and not _is_free(str(key), below):
                yield from _unknown(value, _with_resources(below), ways, path)
        elif isinstance(value, Mapping) and any(way[: len(path)] == path for way in ways):
            yield from _unknown(value, {}, ways, path)
        else:
            yield path


def _is_free(name: str, below: Mapping[str, Any]) -> bool:
    return not below or name.lower().endswith(_HANDED_ON) or all("/" in str(key) for key in below)


def _with_resources(below: Mapping[str, Any]) -> Mapping[str, Any]:
    # Of a container's resources charts often list the requests alone; they hand on the limits all the same.
    return dict.fromkeys(_RESOURCES) if set(below) <= _RESOURCES else below


def _unknown_line(path: tuple[str, ...], known: Json) -> str:
    name = ".".join(path)
    every = list(_paths(known, ()))
    level = [p[-1] for p in every if p[:-1] == path[:-1]]
    near = [".".join((*path[:-1], key)) for key in difflib.get_close_matches(path[-1], level, n=1)]
    near = near or [".".join(p) for p in every if p[-1] == path[-1]]
    near = near or difflib.get_close_matches(name, [".".join(p) for p in every], n=1, cutoff=0.8)
    return f"{name} is not known" + (f" (did you mean {near[0]}?)" if near else "")


def _paths(known: Mapping[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, value in known.items():
        yield (*at, str(key))
        if isinstance(value, Mapping):
            yield from _paths(value, (*at, str(key)))


def _mapping(given: Any, where: str) -> Json:
    """A mapping as it is given, or read from a YAML file."""
    if isinstance(given, str | Path):
        try:
            given = parse_yaml(Path(given).read_bytes(), where) or {}
        except OSError as error:
            raise UsageError(f"{where}: {str(given)!r}: {error.strerror}") from None
    if not isinstance(given, dict):
        raise UsageError(f"{where}: must be a mapping or a YAML file of one")
    return given


def put(values: Json, path: str, value: Any) -> Json:
    """Set ``global.proxy.resources.limits.cpu`` in nested mappings."""
    *way, last = path.split(".")
    at = values
    for key in way:
        at = at.setdefault(key, {})
    at[last] = value
    return values


def merged(first: Json, second: Json) -> Json:
    """Helm's own rule: mappings merge, all else is replaced by the second."""
    result = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result
