"""What a plan holds of options that name files of one machine: their content, and no path.

A path names a file that a reader does not have, and often its owner. A plan keeps the file's last name and, of a
cluster file, what it says, with digests in place of charts' values, for keys and licences may be among these. What a
session needs to find the files again, :data:`LOCAL`, stays on the machine.
"""

from __future__ import annotations

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
_NAMED = ("cluster_file", "versions")  # those of which a plan keeps the last name
# Options that say where a study runs: parts of one plan run in several clusters, and may differ in these.
_PLACE = (
    *("kubeconfig", "context", "namespace", "helm", "image_pull_secrets"),
    *("app_node_selector", "app_tolerations", "load_node_selector", "load_tolerations"),
)


def options_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A study's options: its parameters, and what its cluster file says; UsageError where that cannot be read."""
    file = parameters.get("cluster_file")
    return {"parameters": dict(parameters)} | ({"cluster": _content(str(file))} if file else {})


def sealed(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as a plan holds them."""
    parameters = options.get("parameters")
    if not isinstance(parameters, Mapping):
        return dict(options)
    return {**options, "parameters": without_folders(parameters)}


def without_folders(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with the last names of files, and without what only leads to a cluster."""
    given = {name: str(parameters[name]) for name in LOCAL if parameters.get(name)}
    names = {name: _each_path(name, text, _last_name) if name in _NAMED else "" for name, text in given.items()}
    return {**parameters, **names}


def at_hand(options: Mapping[str, Any], local: Mapping[str, str]) -> dict[str, Any]:
    """A plan's options with the files of a session; UsageError where the cluster file is not known, or was changed."""
    if not isinstance(options.get("parameters"), Mapping):
        return dict(options)
    parameters = {**options["parameters"], **local}
    was = options.get("cluster")
    if was is not None and "cluster_file" not in local:
        name = parameters["cluster_file"]
        raise UsageError(f"cluster_file: the plan has the options of {name}, and where that lies is not known; say it")
    made = {**options, **options_of(parameters)}
    if was is not None and made["cluster"] != was:
        changed = sorted(key for key in {**was, **made["cluster"]} if was.get(key) != made["cluster"].get(key))
        raise UsageError(
            f"cluster_file = {parameters['cluster_file']!r}: differs from what the plan was sealed with in "
            f"{', '.join(changed)}; restore it to go on, or leave study_dir out to start a new study"
        )
    return made


def local_of(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Those of the parameters that are :data:`LOCAL`, as a session that begins in another folder needs them."""
    given = {name: str(parameters[name]) for name in LOCAL if parameters.get(name)}
    return {name: text if name == "context" else _each_path(name, text, _absolute) for name, text in given.items()}


def published(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a cluster file says, for a record: of paths the last name, and of charts' values digests."""
    made = dict(said)
    for name in ("kubeconfig", "manifests", "helm"):
        if made.get(name):
            made[name] = _last_name(str(made[name]))
    if folders := made.get("mesh_folders"):
        listed = folders if isinstance(folders, list | tuple) else split_list(str(folders))
        made["mesh_folders"] = [_last_name(str(folder)) for folder in listed]
    if isinstance(made.get("meshes"), Mapping):
        made["meshes"] = _meshes(made["meshes"])
    return made


def _content(file: str) -> dict[str, Any]:
    what = f"cluster_file = {file!r}"
    said = read_yaml(Path(file), what, "a mapping of option names to values")
    if isinstance(meshes := said.get("meshes"), str):
        said["meshes"] = read_yaml(Path(meshes), f"{what}: meshes", "a mapping of meshes")
    kept = {name: value for name, value in said.items() if name not in _PLACE}
    try:
        plain: dict[str, Any] = json.loads(json.dumps(published(kept), default=str, allow_nan=False))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what}: holds what cannot be recorded ({error})") from None
    return plain


def _meshes(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a record tells of a user's words about meshes: keys and licences may be among their charts' values."""
    told: dict[str, Any] = {}
    for key, value in said.items():
        if key == "values" and isinstance(value, Mapping):
            told[key] = {name: f"sha256:{_digest(one)}" for name, one in value.items()}
        elif isinstance(value, Mapping):
            told[key] = _meshes(value)
        else:
            told[key] = _last_name(value) if key == "path" and isinstance(value, str) else value
    return told


def _digest(values: Any) -> str:
    """SHA-256 of values as they are given, or of the file that holds them."""
    file = Path(values).expanduser() if isinstance(values, str) else None
    data = file.read_bytes() if file is not None and file.is_file() else json.dumps(values, default=str).encode()
    return hashlib.sha256(data).hexdigest()


def _each_path(name: str, text: str, change: Callable[[str], str]) -> str:
    """A parameter with its paths changed: one, or in ``versions`` one behind each ``name=``."""
    if name != "versions":
        return change(text)
    parts = (item.partition("=") for item in split_list(text))
    return ",".join(f"{version}={change(path)}" if equals else version for version, equals, path in parts)


def _last_name(path: str) -> str:
    return Path(path).name


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())
