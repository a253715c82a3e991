"""Helm as a program: one release installed or uninstalled, with everything that the user chose."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from meshtrial.errors import MissingToolError, TestbedError
from meshtrial.testbed.kubernetes.client import Cluster
from meshtrial.testbed.kubernetes.meshdata import Mesh, Release
from meshtrial.testbed.kubernetes.options import KubernetesOptions

Watch = Callable[[], str]


def program(options: KubernetesOptions) -> str:
    """The Helm program's path.

    Raises
    ------
    MissingToolError
        When it is not there.
    """
    found = shutil.which(options.helm)
    if found is None:
        raise MissingToolError(
            f"helm = {options.helm!r} is not on PATH; install Helm 3 or later (https://helm.sh/docs/intro/install/), "
            "or set helm=PATH"
        )
    return found


def version(options: KubernetesOptions) -> str:
    """What ``helm version`` says."""
    return run([program(options), "version", "--short"], 30.0).strip()


def install_release(
    cluster: Cluster,
    options: KubernetesOptions,
    mesh: Mesh,
    release: Release,
    chart: Path,
    values: Mapping[str, Any],
    watch: Watch | None = None,
) -> None:
    """Install or upgrade; readiness is waited for by whoever can give reasons."""
    with tempfile.TemporaryDirectory(prefix="meshtrial-helm-") as folder:
        own = Path(folder) / "values.yaml"
        own.write_text(yaml.safe_dump(dict(values)))
        own.chmod(0o600)  # keys may be among them
        files = [part for name in release.values for part in ("-f", str(mesh.folder / name))]
        argv = [program(options), "upgrade", "--install", release.name, str(chart), "-n", release.namespace, *files]
        argv += ["-f", str(own), "--timeout", f"{options.mesh_timeout_s:g}s", *_cluster_flags(cluster)]
        run(argv, options.mesh_timeout_s + 30, watch=watch)


def uninstall_release(
    cluster: Cluster, options: KubernetesOptions, release: Release, watch: Watch | None = None
) -> None:
    """Uninstall; a release that is not there is fine."""
    argv = [program(options), "uninstall", release.name, "-n", release.namespace, "--ignore-not-found", "--wait"]
    argv += ["--timeout", f"{options.mesh_timeout_s:g}s", *_cluster_flags(cluster)]
    run(argv, options.mesh_timeout_s + 30, watch=watch)


def run(
    argv: Sequence[str],
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    watch: Watch | None = None,
    every_s: float = 1.0,
) -> str:
    """Run a program in a session of its own, so that Ctrl-C reaches this process first, which then ends it.

    Parameters
    ----------
    watch : callable, optional
        Asked every ``every_s`` seconds; a text that it returns is why the program is waited for no longer.

    Raises
    ------
    TestbedError
        When it fails; with its last lines.
    """
    name = Path(argv[0]).name
    child = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **(env or {})},
    )
    began = time.monotonic()
    try:
        while True:
            left_s = timeout_s - (time.monotonic() - began)
            try:
                out, err = child.communicate(timeout=min(left_s, every_s) if watch else left_s)
                break
            except subprocess.TimeoutExpired:
                if left_s <= every_s or watch is None:
                    raise TestbedError(f"{name} {argv[1]}: no end within {timeout_s:g} s") from None
                hopeless = watch()
                if hopeless:
                    raise TestbedError(f"{name} {' '.join(argv[1:4])}: given up: {hopeless}") from None
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if child.returncode != 0:
        words = [line for line in (err.strip() or out.strip()).splitlines() if line.strip()]
        told = " ".join(" ".join(words[-3:]).split())
        raise TestbedError(f"{name} {' '.join(argv[1:4])}: exit {child.returncode}: {told[:600]}")
    return out


def _cluster_flags(cluster: Cluster) -> list[str]:
    flags = ["--kubeconfig", str(Path(cluster.kubeconfig).expanduser())] if cluster.kubeconfig else []
    return flags + (["--kube-context", cluster.context] if cluster.context else [])
