"""Versions of the reference data planes as treatments: another Envoy, or a change of its configuration.

``versions="1.39.3,old=/opt/envoy-1.37,slow=slow.yaml"`` declares ``sidecar@1.39.3``, a release of Envoy that is fetched
where it is missing, ``sidecar@old`` and ``sidecar@slow``. A YAML file may hold

- ``http_filters``: Envoy's HTTP filters, before the server's sidecar calls the application;
- ``bootstrap``: merged into every proxy's bootstrap, mapping by mapping; a list replaces the one that was there;
- ``flags``: further command-line flags of every proxy.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshtrial import native
from meshtrial.design.parameters import split_list
from meshtrial.design.study import Treatment, is_app
from meshtrial.envoy.bootstrap import Json
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.typed import parse_yaml, read

# Data planes that consist of Envoys, and those of them that process HTTP.
VERSIONED, FILTERED = ("sidecar", "node-proxy", "tcp-pair"), ("sidecar",)


@dataclass(frozen=True, kw_only=True)
class Change:
    """Changes that a file declares."""

    http_filters: tuple[Json, ...] = ()
    bootstrap: Json = field(default_factory=dict)
    flags: tuple[str | int | float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Version(Change):
    """A declared version."""

    name: str
    digest: str  # SHA-256 of the program or file, by which a record identifies it
    envoy: Path | None = None  # the program; None for the default Envoy

    def described(self) -> str:
        """Return kind or Envoy version with the digest, for the record of a run."""
        kind = native.version_of("envoy", self.envoy) if self.envoy else "configuration"
        return f"{kind} (sha256 {self.digest[:12]})"

    def prove(self, pid: int, component: str, phase: str) -> Proof:
        """Prove that a process runs exactly this version's program."""
        program = str((self.envoy or native.find("envoy")).resolve())
        try:
            running = str(Path(f"/proc/{pid}/exe").readlink())
        except OSError as error:
            running = f"unknown: {error.strerror}"
        # No path of this machine goes into a record: only whether it is this program, or the other program's name.
        observed = "this program" if running == program else f"another program, {Path(running).name}"
        return Proof(f"version {self.name} of {component}", phase, running == program, "this program", observed)


def read_versions(text: str) -> dict[str, Version]:
    """Return the declared versions by name; UsageError names a wrong item and its fault."""
    declared: dict[str, Version] = {}
    for item in split_list(text):
        name, separator, path = (part.strip() for part in item.partition("="))
        is_release = not separator and native.is_release(name)
        if not is_release and not (name and path):
            raise UsageError(f"versions: {item!r} is neither NAME=PATH nor a release of Envoy, such as 1.40.0")
        if name in declared or is_app(name):
            reason = "is declared twice" if name in declared else "is the name of an application; choose another name"
            raise UsageError(f"versions: {name} {reason}")
        declared[name] = _version(name, native.released_envoy(name) if is_release else Path(path).expanduser())
    return declared


def of(treatment: Treatment, declared: Mapping[str, Version]) -> Version | None:
    """Return the version that a treatment names; None if it names none.

    Raise UsageError for one that is not declared, or that this data plane cannot have.
    """
    if not treatment.version:
        return None
    prefix = f"treatment {treatment.name}: version {treatment.version} of {treatment.dataplane}"
    if treatment.dataplane not in VERSIONED:
        raise UsageError(
            f"{prefix}: only {', '.join(VERSIONED)} have versions; an application of your own is written @@NAME"
        )
    if treatment.version not in declared:
        known = ", ".join(declared) or "none"
        missing = treatment.version if native.is_release(treatment.version) else f"{treatment.version}=PATH"
        raise UsageError(f"{prefix} is not declared (declared: {known}); add versions={missing}")
    version = declared[treatment.version]
    without_http = treatment.dataplane not in FILTERED or treatment.has("client-only")
    if version.http_filters and without_http:
        raise UsageError(f"{prefix}: its http_filters need the server's sidecar, which processes HTTP")
    return version


def merged(base: Json, change: Mapping[str, Any]) -> Json:
    """Return ``base`` with ``change`` merged into it, mapping by mapping."""
    result = dict(base)
    for key, value in change.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def _version(name: str, path: Path) -> Version:
    where = f"versions: {name}={path}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{where}: cannot be read ({error.strerror})") from None
    digest = hashlib.sha256(content).hexdigest()
    if path.suffix not in (".yaml", ".yml", ".json"):
        native.version_of("envoy", path)  # raises with the reason if the file is no Envoy
        return Version(name=name, digest=digest, envoy=path.resolve())
    data = parse_yaml(content, where) or {}
    try:
        change = read(Change, data)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    if not data:
        raise UsageError(f"{where}: the file changes nothing; write http_filters, bootstrap or flags")
    if not all("name" in item for item in change.http_filters):
        raise UsageError(f"{where}: each item of http_filters needs a name, as in Envoy")
    return Version(name=name, digest=digest, **vars(change))
