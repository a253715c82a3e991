"""The settings of a cluster: declared once, checked strictly, and copied into every record.

Notebook parameters are scalars, so every mapping may also be given as text (``a=1,b=2``), and all settings together as
a YAML file named by ``cluster_file``. An unknown name in that file is refused; names outside of it that other rooms
read are ignored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from meshtrial import paths
from meshtrial.design.parameters import nearest, split_list
from meshtrial.design.sealing import published
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.manifests import cpu_millis, memory
from meshtrial.typed import read_yaml, shortened

_SECRET = re.compile(r"([a-z0-9-]+/)?[a-z0-9.-]+")


@dataclass(frozen=True)
class KubernetesOptions:
    """The settings of the Kubernetes backend."""

    # Empty: $KUBECONFIG or ~/.kube/config and its current context; without such a file, in-cluster.
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""  # first namespace, others are <namespace>-...; empty: meshtrial-<study>
    manifests: str = ""  # folder with apps/, loadgen/, meshes/; empty: the checkout's
    mesh_folders: tuple[str, ...] = ()  # more folders, each with a mesh.yaml
    # By mesh name, what replaces its data: `version`, `charts.<release>.{repository,name,version,path}`,
    # `values.<release>` (mapping or file), `parameters.<name>` (image_hub, image_tag, ...), `namespace_labels`; and
    # `versions.<name>`, which overrides the same names and has `runs.<container>`, what its image must be.
    meshes: Mapping[str, Any] = field(default_factory=dict)
    mesh_install: str = "managed"  # "managed" installs and uninstalls; "existing" changes nothing
    mesh_reinstall: str = "run"  # run, block or once, as app_reinstall
    app_reinstall: str = "run"
    # Several meshes stay installed at the same time, except those that share a namespace (Istio's two modes).
    meshes_side_by_side: bool = False
    # Whole image references by name (fortio, busybox, envoy, opa, counter-api, details, ...).
    images: Mapping[str, str] = field(default_factory=dict)
    image_pull_policy: str = ""  # of our own pods; empty: as in the manifests
    # Secrets with which nodes pull images: namespace/name, or a name in `default`. They are copied to where they are
    # needed.
    image_pull_secrets: tuple[str, ...] = ()
    app_node_selector: Mapping[str, str] = field(default_factory=dict)
    # Kubernetes tolerations, or texts key=value:Effect.
    app_tolerations: tuple[Mapping[str, str], ...] = ()
    load_node_selector: Mapping[str, str] = field(default_factory=dict)
    load_tolerations: tuple[Mapping[str, str], ...] = ()
    load_separation: str = "required"  # from the application's nodes: required, preferred or none
    # Limits; CPU requests are a tenth of them. Empty: none. The application's requests may be set separately.
    app_cpu: str = ""
    app_memory: str = ""
    app_cpu_request: str = ""
    app_memory_request: str = ""
    load_cpu: str = ""
    load_memory: str = ""
    proxy_cpu: str = "2"  # the same for every mesh
    proxy_memory: str = "512Mi"
    # Policy server of the OPA treatments, a file of manifests/policy/: "opa" (the official image) or "opa-extauthz"
    # (this project's own, for clusters that cannot pull that image).
    opa_server: str = "opa"
    hold_ms: float = 100.0  # how long the client and the server of the three tiers each hold a request
    helm: str = "helm"  # name or path of the Helm program
    deploy_timeout_s: float = 180.0  # how long an application may take to become ready
    mesh_timeout_s: float = 300.0  # how long a mesh may take to become ready
    # How long to wait for an API server that does not respond; at most 10 s before its first response.
    api_patience_s: float = 60.0
    # How long to wait for a new kubelet sample; by default there is one every 10 to 15 s.
    sample_patience_s: float = 30.0
    keep: bool = False  # remove nothing at the end

    def __post_init__(self) -> None:
        allowed = {
            "mesh_install": ("managed", "existing"),
            "mesh_reinstall": ("run", "block", "once"),
            "app_reinstall": ("run", "block", "once"),
            "load_separation": ("required", "preferred", "none"),
            "image_pull_policy": ("", "Always", "IfNotPresent", "Never"),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise UsageError(f"{name} = {shortened(getattr(self, name))}: must be {', '.join(map(repr, values))}")
        if len(self.namespace) > 40:
            raise UsageError(
                f"namespace = {shortened(self.namespace)}: must have at most 40 characters, because suffixes are "
                "added to it"
            )
        if self.mesh_install == "existing" and self.meshes_side_by_side is False and self.mesh_reinstall != "run":
            raise UsageError("mesh_install = 'existing' never reinstalls: leave mesh_reinstall out")
        for secret in self.image_pull_secrets:
            if not _SECRET.fullmatch(secret):
                raise UsageError(f"image_pull_secrets = {shortened(secret)}: must be NAMESPACE/NAME or NAME")
        if len({name for _, name in self.pull_secrets}) < len(self.image_pull_secrets):
            raise UsageError("image_pull_secrets: two have the same name, and both would be copied into one namespace")
        for name, read in (("app_cpu", cpu_millis), ("app_memory", memory)):
            limit, request = getattr(self, name), getattr(self, f"{name}_request")
            if limit and request and read(request) > read(limit):
                raise UsageError(f"{name}_request = {request!r}: must be at most {name}, {limit}")
        for name in ("deploy_timeout_s", "mesh_timeout_s", "api_patience_s", "sample_patience_s"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} = {getattr(self, name):g}: must be more than 0")

    @property
    def pull_secrets(self) -> tuple[tuple[str, str], ...]:
        """Namespace and name of each Secret that nodes pull with."""
        pairs = (secret.rpartition("/") for secret in self.image_pull_secrets)
        return tuple((namespace or "default", name) for namespace, _, name in pairs)

    @property
    def folder(self) -> Path:
        """The folder of the manifests."""
        if self.manifests:
            return Path(self.manifests).expanduser()
        return paths.MANIFESTS

    def echo(self) -> dict[str, Any]:
        """Return plain data for a record that may be published: no local paths, digests of values."""
        values = {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}
        return published(values)

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> KubernetesOptions:
        """Read ``study.options``: names at the top level or under ``parameters`` or ``kubernetes``.

        ``cluster_file`` is a YAML file of the same names; a value that is given more directly wins.
        """
        nested = options.get("kubernetes", {})
        if not isinstance(nested, Mapping):
            raise UsageError("kubernetes: must be a mapping of option names to values")
        parameters = options.get("parameters", {})
        if parameters.get("versions"):
            raise UsageError(
                f"versions = {shortened(parameters['versions'])}: are for local proxies; on a cluster, give versions "
                "of a mesh in the cluster_file, meshes.<mesh>.versions"
            )
        outer = {**_known(parameters), **_known(options)}
        file = nested.get("cluster_file", outer.pop("cluster_file", ""))
        strict = {**_read_file(str(file)), **{k: v for k, v in nested.items() if k != "cluster_file"}}
        for name in strict:
            if name not in _KINDS:
                raise UsageError(f"kubernetes option {shortened(name)} is not known: {nearest(str(name), _KINDS)}")
        # An empty parameter counts as absent: it must not replace the value of the file.
        given = {k: v for k, v in outer.items() if v not in ("", None)}
        return cls(**{name: _convert(name, value) for name, value in {**strict, **given}.items()})


_KINDS = get_type_hints(KubernetesOptions)


def _known(options: Any) -> dict[str, Any]:
    return {k: v for k, v in dict(options).items() if k in _KINDS or k == "cluster_file"}


def _read_file(name: str) -> dict[str, Any]:
    if not name:
        return {}
    label = f"cluster_file = {name!r}"
    return read_yaml(Path(name).expanduser(), label, "a mapping of option names to values")


def _convert(name: str, value: Any) -> Any:
    kind = _KINDS[name]
    if name == "meshes" and isinstance(value, str):
        return _read_file(value)
    if get_origin(kind) is Mapping:
        return _mapping(name, value)
    if get_origin(kind) is tuple:
        items = value if isinstance(value, list | tuple) else split_list(str(value))
        return tuple(_toleration(name, item) if name.endswith("tolerations") else str(item) for item in items)
    if kind is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{name} = {shortened(value)}: must be true or false")
        return value
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
            unit = "milliseconds" if name.endswith("_ms") else "seconds"
            raise UsageError(f"{name} = {shortened(value)}: must be a number of {unit}")
        return float(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _mapping(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    texts = {}
    for item in str(value).split(","):
        key, separator, text = item.strip().partition("=")
        if not separator:
            raise UsageError(f"{name} = {shortened(value)}: must be key=value,key=value or a mapping")
        texts[key] = text
    return texts


def _toleration(name: str, item: Any) -> dict[str, str]:
    if isinstance(item, Mapping):
        return {str(k): str(v) for k, v in item.items()}
    text, _, effect = str(item).strip().partition(":")
    key, separator, value = text.partition("=")
    if not key:
        raise UsageError(f"{name} = {shortened(item)}: must be key=value:Effect")
    toleration = {"key": key, "operator": "Equal" if separator else "Exists"}
    if separator:
        toleration["value"] = value
    return toleration | ({"effect": effect} if effect else {})
