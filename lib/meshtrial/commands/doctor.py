"""``meshtrial doctor``: check dependencies and print how to install what is missing."""

import argparse
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TextIO

from meshtrial import __version__, native, packages, paths
from meshtrial.errors import MeshtrialError

# Packages by what needs them.
PACKAGES = {
    "All commands": ("scipy",),
    "Records, reports and studies": ("polars", "papermill", "seaborn", "statsmodels"),
}
LAB_PACKAGES = ("jupyterlab", "ipywidgets")


def run(_: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; return 1 if something is missing that most studies need and that can be installed here."""
    print(
        f"meshtrial {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        file=out,
    )
    missing = 0
    for who, names in PACKAGES.items():
        print(f"\n{who} need", file=out)
        missing += sum([not _report(name, partial(_package, name, "make setup"), out) for name in names])
    print("\nJupyterLab needs", file=out)
    for name in LAB_PACKAGES:
        _report(name, partial(_package, name, "make lab"), out)
    if missing:
        print("\nOther requirements of studies are checked once these are installed", file=out)
        return 1
    from meshtrial.testbed.local import apps, host  # they need these packages

    print("\nLocal studies need", file=out)
    if _report("Linux with /proc", _host, out):
        _report("idle cores", host.advice, out)
        for name in ("fortio", "envoy"):
            missing += not _report(name, partial(_tool, name), out)
        print("\nSome local studies need these, and build them when they start", file=out)
        for name in native.commands():
            if name != "fortio":
                _report(name, partial(_tool, name), out)
        _report("forkserver (starts hundreds of sidecars sooner)", _forkserver, out)
        _report("ruby (for the details apps)", lambda: ", ".join(apps.app("details").versions().values()), out)
    print("\nStudies on Kubernetes need", file=out)
    _report("kubernetes", partial(_package, "kubernetes", "make setup"), out)
    _report("helm (to install meshes)", _helm, out)
    _report("a cluster", _kubeconfig, out)
    return 1 if missing else 0


def _report(name: str, ask: Callable[[], str], out: TextIO) -> bool:
    """Print whether a dependency is there, with the answer of ``ask`` or the reason of its MeshtrialError."""
    try:
        print(f"  ok       {name} {ask()}".rstrip(), file=out)
    except MeshtrialError as error:
        print(f"  missing  {name}: {error}", file=out)
        return False
    return True


def _host() -> str:
    from meshtrial.testbed.local import host

    host.require()
    return ""


def _tool(name: str) -> str:
    return f"{native.version(name)}  ({paths.display_path(native.find(name))})"


def _forkserver() -> str:
    path = native.forkserver()
    if path is None:
        raise MeshtrialError(
            "install a C compiler (Debian, Ubuntu: gcc and libc6-dev), then `python -m meshtrial.native build`; "
            f"until then {native.NO_FORKSERVER}"
        )
    return f" ({paths.display_path(path)})"


def _package(name: str, command: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        remedy = packages.advice(name) if paths.INSTALLED else None
        raise MeshtrialError(remedy or f"run `{command}` in the checkout to install it") from None


def _helm() -> str:
    path = shutil.which("helm")
    if path is None:
        raise MeshtrialError("install it from your system or https://helm.sh/docs/intro/install/")
    return f"({path})"


def _kubeconfig() -> str:
    path = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if not path.is_file():
        raise MeshtrialError(f"{path}: no such file; set KUBECONFIG, or set kubeconfig for the study")
    return f"(configured in {path}; a study checks rights and capacity before it starts)"
