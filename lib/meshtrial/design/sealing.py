"""Options that name files of one machine: a plan holds the files' content and no paths.

A path is useless to a reader of the plan, and often names the file's owner. A plan keeps the file's last name and the
content of a cluster file. Charts' values are replaced by digests, because keys and licences may be among them. What a
session needs to find the files again, :data:`LOCAL`, stays on the machine.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from meshtrial.design.parameters import split_list
from meshtrial.errors import UsageError
from meshtrial.typed import read_yaml

# Parameters that say where something lies on the machine of a session, or how it reaches its cluster.
LOCAL = ("kubeconfig", "context", "cluster_file", "versions")
_NAMED = ("cluster_file", "versions")  # those whose last name a plan keeps
# Options of the place where a study runs; parts of one plan, which run in several clusters, may differ in them.
_PLACE = (
    *("kubeconfig", "context", "namespace", "helm", "image_pull_secrets"),
    *("app_node_selector", "app_tolerations", "load_node_selector", "load_tolerations"),
)


def options_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's options: parameters and the content of the cluster file; UsageError if that is unreadable."""
    file = parameters.get("cluster_file")
    return {"parameters": dict(parameters)} | ({"cluster": _content(str(file))} if file else {})


def sealed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as a plan holds them."""
    parameters = options.get("parameters")
    if not isinstance(parameters, Mapping):
        return dict(options)
    return {**options, "parameters": without_folders(parameters)}


def without_folders(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the last names of files, and without those that only lead to a cluster."""
    given = {name: str(parameters[name]) for name in LOCAL if parameters.get(name)}
    names = {
        name: _each_path(name, text, lambda path: path.name) if name in _NAMED else "" for name, text in given.items()
    }
    return {**parameters, **names}


def at_hand(options: Mapping[str, Any], local: Mapping[str, str]) -> dict[str, Any]:
    """Return a plan's options with a session's files; UsageError if the cluster file is unknown or has changed."""
    if not isinstance(options.get("parameters"), Mapping):
        return dict(options)
    parameters = {**options["parameters"], **local}
    was = options.get("cluster")
    if was is not None and "cluster_file" not in local:
        name = parameters["cluster_file"]
        raise UsageError(f"cluster_file: the plan has the options of {name}, whose path is not known; give it")
    made = {**options, **options_of(parameters)}
    if was is not None and made["cluster"] != was:
        changed = sorted(key for key in {**was, **made["cluster"]} if was.get(key) != made["cluster"].get(key))
        raise UsageError(
            f"cluster_file = {parameters['cluster_file']!r}: differs from what the plan was sealed with in "
            f"{', '.join(changed)}; restore it to go on, or leave study_dir out to start a new study"
        )
    return made


def local_of(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters in :data:`LOCAL` with absolute paths, for a session in another folder."""
    given = {name: str(parameters[name]) for name in LOCAL if parameters.get(name)}
    return {
        name: text if name == "context" else _each_path(name, text, lambda path: path.expanduser().absolute())
        for name, text in given.items()
    }


def published(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cluster file's options for a record: last names of paths, and digests of charts' values."""
    made = dict(options)
    for name in ("kubeconfig", "manifests", "helm"):
        if made.get(name):
            made[name] = Path(str(made[name])).name
    if folders := made.get("mesh_folders"):
        listed = folders if isinstance(folders, list | tuple) else split_list(str(folders))
        made["mesh_folders"] = [Path(str(folder)).name for folder in listed]
    if isinstance(made.get("meshes"), Mapping):
        made["meshes"] = _meshes(made["meshes"])
    return made


def _content(file: str) -> dict[str, Any]:
    where = f"cluster_file = {file!r}"
    options = read_yaml(Path(file), where, "a mapping of option names to values")
    if isinstance(meshes := options.get("meshes"), str):
        options["meshes"] = read_yaml(Path(meshes), f"{where}: meshes", "a mapping of meshes")
    kept = {name: value for name, value in options.items() if name not in _PLACE}
    try:
        plain: dict[str, Any] = json.loads(json.dumps(published(kept), default=str, allow_nan=False))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: holds values that cannot be recorded ({error})") from None
    return plain


def _meshes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a user's options of meshes without charts' values, among which keys and licences may be."""
    public: dict[str, Any] = {}
    for key, value in options.items():
        if key == "values" and isinstance(value, Mapping):
            public[key] = {name: f"sha256:{_digest(values)}" for name, values in value.items()}
        elif isinstance(value, Mapping):
            public[key] = _meshes(value)
        else:
            public[key] = Path(value).name if key == "path" and isinstance(value, str) else value
    return public


def _digest(values: Any) -> str:
    """Return the SHA-256 of given values, or of the file that holds them."""
    file = Path(values).expanduser() if isinstance(values, str) else None
    data = file.read_bytes() if file is not None and file.is_file() else json.dumps(values, default=str).encode()
    return hashlib.sha256(data).hexdigest()


def _each_path(name: str, text: str, change: Callable[[Path], object]) -> str:
    """Return a parameter with its paths changed: a single one, or in ``versions`` one after each ``name=``."""
    if name != "versions":
        return str(change(Path(text)))
    parts = (item.partition("=") for item in split_list(text))
    return ",".join(f"{version}={change(Path(path))}" if equals else version for version, equals, path in parts)
