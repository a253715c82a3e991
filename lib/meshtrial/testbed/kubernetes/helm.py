"""Helm as a program: one release installed or uninstalled, with everything that the user chose.

While it waits for its chart's jobs before and after an installation, their pods are watched: it says "timed out" of
those that fail and, often, deletes them. What they said is kept as soon as it is there, and a pod that waiting will not
mend ends the wait.
"""

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
from meshtrial.testbed.kubernetes import evidence, wait
from meshtrial.testbed.kubernetes.client import Cluster
from meshtrial.testbed.kubernetes.meshdata import Mesh, Release
from meshtrial.testbed.kubernetes.options import KubernetesOptions

Watch = Callable[[], str]
# A registry or a kubelet may need a second try for a hook's pod; what stands for so long stays.
_HOPELESS_S = 20.0


def program(options: KubernetesOptions) -> str:
    """The Helm program's path; a MissingToolError when it is not there."""
    path = shutil.which(options.helm)
    if path is None:
        raise MissingToolError(
            f"helm = {options.helm!r} is not on PATH; install Helm 3 or later (https://helm.sh/docs/intro/install/), "
            "or set helm=PATH"
        )
    return path


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

    ``watch`` is asked every ``every_s`` seconds; a text from it is why the program is waited for no longer. A program
    that fails is a TestbedError with its last lines.
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
            remaining_s = timeout_s - (time.monotonic() - began)
            try:
                out, err = child.communicate(timeout=min(remaining_s, every_s) if watch else remaining_s)
                break
            except subprocess.TimeoutExpired:
                if remaining_s <= every_s or watch is None:
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


class HookWatch:
    """The pods of Helm's hooks; called every second while it runs."""

    def __init__(self, cluster: Cluster, namespaces: Sequence[str], settle: Sequence[str] = ()) -> None:
        self.said = ""  # by the last hook that had trouble
        self.evidence: dict[str, str] = {}  # logs of those pods
        self._cluster, self._namespaces, self._settle = cluster, tuple(namespaces), tuple(settle)
        self._since: dict[str, float] = {}

    def __call__(self) -> str:
        """Look; why Helm need not be waited for any longer, empty while it should be."""
        now = time.monotonic()
        hopeless = ""
        with contextlib.suppress(TestbedError):
            pods = [p for name in self._namespaces for p in evidence.pods_now(self._cluster, name)]
            for pod in filter(evidence.is_hook, pods):
                final = wait.first_problem([pod], self._settle)
                said = final or evidence.pod_problem(pod)
                if not said:
                    continue
                key = f"{pod['metadata']['uid']} {said}"
                if key not in self._since:
                    self._since[key] = now
                    words = evidence.last_log_lines(self._cluster, pod)
                    self.said = f"{said}; {words}" if words else said
                    self.evidence |= evidence.logs_of(self._cluster, pod)
                if final and now - self._since[key] > _HOPELESS_S:
                    hopeless = self.said
        return hopeless
