"""Versions of the reference data planes as treatments: an Envoy of the user's own, or a change of its configuration.

``versions="old=/opt/envoy-1.37,slow=slow.yaml"`` and ``sidecar@old``, ``sidecar@slow``. A file of YAML may hold

- ``http_filters``: Envoy's HTTP filters, before the server's sidecar calls the application;
- ``bootstrap``: merged into every proxy's bootstrap, mapping by mapping; a list takes the place of what was there;
- ``flags``: further command-line flags of every proxy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshtrial import native
from meshtrial.design.parameters import split_list
from meshtrial.design.study import APPS, Treatment
from meshtrial.envoy.bootstrap import Json
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.typed import parse_yaml, read

# Data planes that are made of Envoys, and those of them that read HTTP.
VERSIONED, FILTERED = ("sidecar", "node-proxy", "tcp-pair"), ("sidecar",)


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a file changes."""

    http_filters: tuple[Json, ...] = ()
    bootstrap: Json = field(default_factory=dict)
    flags: tuple[str | int | float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Version(Change):
    """One version."""

    name: str
    digest: str  # SHA-256 of the file that it is, so that a record says which
    envoy: Path | None = None  # the program; None for the usual one

    def described(self) -> str:
        """For the record of a run."""
        what = native.version_of("envoy", self.envoy) if self.envoy else "configuration"
        return f"{what} (sha256 {self.digest[:12]})"

    def prove(self, pid: int, component: str, phase: str) -> Proof:
        """A proxy of this version runs this very program."""
        wanted = (self.envoy or native.find("envoy")).resolve()
        try:
            seen = str(Path(f"/proc/{pid}/exe").readlink())
        except OSError as error:
            seen = f"cannot be seen ({error.strerror})"
        # No path of this machine in a record: that it is the one, or by which name another runs.
        shown = "this program" if seen == str(wanted) else f"another program, {Path(seen).name}"
        return Proof(f"version {self.name} of {component}", phase, seen == str(wanted), "this program", shown)


def read_versions(text: str) -> dict[str, Version]:
    """The declared versions by name; UsageError naming the item and what is wrong with it."""
    declared: dict[str, Version] = {}
    for item in split_list(text):
        name, separator, where = (part.strip() for part in item.partition("="))
        if not separator or not name or not where:
            raise UsageError(f"versions: {item!r} is not NAME=PATH")
        if name in declared or name in APPS:
            why = "is declared twice" if name in declared else "is what an application is called; take another name"
            raise UsageError(f"versions: {name} {why}")
        declared[name] = _version(name, Path(where).expanduser())
    return declared


def of(treatment: Treatment, declared: Mapping[str, Version]) -> Version | None:
    """The version that a treatment names; None where it names none.

    UsageError for one that is not declared, or that this data plane cannot have.
    """
    if not treatment.version:
        return None
    understood = f"treatment {treatment.name}: understood as version {treatment.version} of {treatment.dataplane}"
    if treatment.dataplane not in VERSIONED:
        raise UsageError(
            f"{understood}; only {', '.join(VERSIONED)} have versions, and an app of yours is written @@NAME"
        )
    if treatment.version not in declared:
        known = ", ".join(declared) or "none"
        raise UsageError(f"{understood}; declared are {known}; say versions={treatment.version}=PATH")
    version = declared[treatment.version]
    bare = treatment.dataplane not in FILTERED or treatment.has("client-only")
    if version.http_filters and bare:
        raise UsageError(f"{understood}; its http_filters need the server's sidecar, which reads HTTP")
    return version


def merged(base: Json, change: Mapping[str, Any]) -> Json:
    """``base`` with ``change`` in it, mapping by mapping."""
    whole = dict(base)
    for key, value in change.items():
        both = isinstance(value, Mapping) and isinstance(whole.get(key), dict)
        whole[key] = merged(whole[key], value) if both else value
    return whole


def _version(name: str, path: Path) -> Version:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"versions: {name}={path}: cannot be read ({error.strerror})") from None
    digest = hashlib.sha256(content).hexdigest()
    if path.suffix in (".yaml", ".yml", ".json"):
        return _changed(name, path, content, digest)
    native.version_of("envoy", path)  # says what is wrong with a file that is no Envoy
    return Version(name=name, digest=digest, envoy=path.resolve())


def _changed(name: str, path: Path, content: bytes, digest: str) -> Version:
    data = parse_yaml(content, f"versions: {name}={path}") or {}
    try:
        change = read(Change, data)
    except UsageError as error:
        raise UsageError(f"versions: {name}={path}: {error}") from None
    if not data:
        raise UsageError(f"versions: {name}={path}: changes nothing; it may hold http_filters, bootstrap, flags")
    if not all("name" in item for item in change.http_filters):
        raise UsageError(f"versions: {name}={path}: each of http_filters has a name, as Envoy takes it")
    return Version(name=name, digest=digest, **vars(change))
