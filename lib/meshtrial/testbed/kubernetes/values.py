"""The values that a mesh's charts are installed with, in Helm's order, and those of them that a chart does not have.

Helm ignores a value that its chart does not list, in silence. Here it is a problem: a misspelt limit makes a
comparison unfair, and nobody would notice.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.issuer import issuer_chain
from meshtrial.testbed.kubernetes.manifests import LOADER, Json
from meshtrial.testbed.kubernetes.meshdata import Mesh, Release
from meshtrial.testbed.kubernetes.options import KubernetesOptions

# What charts hand to Kubernetes as they get it: they list what is usual, not all that may be there.
_HANDED_ON = ("annotations", "labels", "selector", "affinity", "securitycontext")
_RESOURCES = {"requests", "limits", "claims"}


class Values:
    """Values of one installation: the mesh's files, fairness and choices by its own paths, generated keys, the user's.

    Parameters
    ----------
    options : KubernetesOptions
    mesh : Mesh
    """

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
        found: Json = {}
        for _, values in self._after_files(release):
            found = merged(found, values)
        return found

    def layers(self, release: Release) -> list[tuple[str, Json]]:
        """All values with where they come from, later ones winning."""
        mesh = self._mesh
        files = [(name, _mapping(mesh.folder / name, f"mesh {mesh.name}: {name}")) for name in release.values]
        return [*files, *self._after_files(release)]

    def _after_files(self, release: Release) -> list[tuple[str, Json]]:
        mesh, found = self._mesh, []
        for name, value in self._said.items():
            if value in ("", None):
                continue
            for path in mesh.parameters.get(name, {}).get(release.name, ()):
                found.append((f"parameters.{name}", put({}, path, value)))
        for name, path in mesh.generated.get(release.name, {}).items():
            found.append((f"generated.{name}", put({}, path, self._generated[name])))
        where = f"meshes.{mesh.name}.values.{release.name}"
        given = mesh.values.get(release.name, {})
        return [*found, (where, _mapping(given, where))]


def unknown_values(values: Json, known: Json, open_paths: Iterable[str] = ()) -> list[str]:
    """What a chart would ignore of these values, one line each.

    Parameters
    ----------
    values : mapping
        What is given to Helm.
    known : mapping
        The chart's own values. Below an empty map or list, or nothing, a chart takes anything.
    open_paths : iterable of str
        ``meshConfig``, ``global.platform``: what the chart takes without listing it, with all below.
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
    if not isinstance(given, Mapping):
        try:
            with open(given, encoding="utf-8") as file:  # noqa: PTH123 - a path as the user wrote it
                given = yaml.load(file, Loader=LOADER) or {}
        except OSError as error:
            raise UsageError(f"{where}: {str(given)!r}: {error.strerror}") from None
        except yaml.YAMLError as error:
            raise UsageError(f"{where}: is not YAML ({' '.join(str(error).split())[:200]})") from None
    if not isinstance(given, dict):
        raise UsageError(f"{where}: allowed is a mapping or a YAML file of one")
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
    found = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], value) if both else value
    return found
