"""``meshtrial doctor``: checks dependencies and says how to install what is missing."""

import argparse
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TextIO

from meshtrial import __version__, native, paths
from meshtrial.errors import MeshtrialError
from meshtrial.testbed.local import apps, host

PACKAGES = ("papermill", "kubernetes", "scipy", "seaborn", "polars", "statsmodels")
LAB_PACKAGES = ("jupyterlab", "ipywidgets")


def run(_: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; exit 1 when something is missing that could be had on this machine, and most work needs."""
    print(
        f"meshtrial {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        file=out,
    )
    print("\neverything needs", file=out)
    missing = sum([not _say(name, partial(_package, name, "make setup"), out) for name in PACKAGES])
    print("\n`make lab` needs", file=out)
    for name in LAB_PACKAGES:
        _say(name, partial(_package, name, "make lab"), out)
    print("\nlocal studies need", file=out)
    if _say("Linux with /proc", _host, out):
        _say("idle cores that", host.advice, out)
        for name in ("fortio", "envoy"):
            missing += not _say(name, partial(_tool, name), out)
        print("\nsome of them need, and build at their start", file=out)
        for name in native.commands():
            if name != "fortio":
                _say(name, partial(_tool, name), out)
        _say("forkserver (hundreds of sidecars start sooner)", _forkserver, out)
        _say("ruby (the details apps)", lambda: ", ".join(apps.app("details").versions().values()), out)
    print("\nbackend=kubernetes needs", file=out)
    _say("helm (to install meshes)", _helm, out)
    _say("a cluster", _kubeconfig, out)
    return 1 if missing else 0


def _say(what: str, ask: Callable[[], str], out: TextIO) -> bool:
    try:
        print(f"  ok       {what} {ask()}".rstrip(), file=out)
    except MeshtrialError as error:
        print(f"  missing  {what}: {error}", file=out)
        return False
    return True


def _host() -> str:
    host.require()
    return ""


def _tool(name: str) -> str:
    return f"{native.version(name)}  ({paths.display_path(native.find(name))})"


def _forkserver() -> str:
    path = native.forkserver()
    if path is None:
        raise MeshtrialError(
            "install a C compiler (Debian, Ubuntu: gcc and libc6-dev), then `python -m meshtrial.native build`; "
            f"until then {native.WITHOUT}"
        )
    return f" ({paths.display_path(path)})"


def _package(name: str, command: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise MeshtrialError(f"`{command}` in the checkout installs it") from None


def _helm() -> str:
    path = shutil.which("helm")
    if path is None:
        raise MeshtrialError("install it from your system or https://helm.sh/docs/intro/install/")
    return f"({path})"


def _kubeconfig() -> str:
    path = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if not path.is_file():
        raise MeshtrialError(f"{path} is not there; set KUBECONFIG, or give kubeconfig= to the study")
    return f"is configured in {path}; a study checks rights and capacity before it starts"
