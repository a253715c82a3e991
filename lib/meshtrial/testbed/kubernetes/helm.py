"""Helm as a program: install or uninstall one release.

While Helm waits for its chart's jobs, their pods are watched: Helm reports "timed out" for those that fail and often
deletes them. Their logs are read as soon as they fail. The wait ends early if a pod failed for good.
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
from meshtrial.testbed.kubernetes import wait
from meshtrial.testbed.kubernetes.client import Cluster
from meshtrial.testbed.kubernetes.meshdata import Mesh, Release
from meshtrial.testbed.kubernetes.options import KubernetesOptions

Watch = Callable[[], str]
# A registry or a kubelet may need a second attempt for a hook's pod; a problem that lasts this long is final.
_FINAL_S = 20.0


def program(options: KubernetesOptions) -> str:
    """Return the Helm program's path; MissingToolError when it is not installed."""
    path = shutil.which(options.helm)
    if path is None:
        raise MissingToolError(
            f"helm = {options.helm!r} is not on PATH; install Helm 3 or later (https://helm.sh/docs/intro/install/), "
            "or set helm=PATH"
        )
    return path


def version(options: KubernetesOptions) -> str:
    """Return the output of ``helm version``."""
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
    """Install or upgrade a release; the caller waits for its pods."""
    with tempfile.TemporaryDirectory(prefix="meshtrial-helm-") as folder:
        values_file = Path(folder) / "values.yaml"
        values_file.write_text(yaml.safe_dump(dict(values)))
        values_file.chmod(0o600)  # keys may be among them
        files = [part for name in release.values for part in ("-f", str(mesh.folder / name))]
        argv = [program(options), "upgrade", "--install", release.name, str(chart), "-n", release.namespace, *files]
        argv += ["-f", str(values_file), "--timeout", f"{options.mesh_timeout_s:g}s", *_cluster_flags(cluster)]
        run(argv, options.mesh_timeout_s + 30, watch=watch)


def uninstall_release(
    cluster: Cluster, options: KubernetesOptions, release: Release, watch: Watch | None = None
) -> None:
    """Uninstall a release; one that does not exist is no failure."""
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

    ``watch`` is called every ``every_s`` seconds; a text that it returns ends the wait as the reason. A program that
    fails is a TestbedError with its last lines.
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
                final = watch()
                if final:
                    raise TestbedError(f"{name} {' '.join(argv[1:4])}: given up: {final}") from None
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
        lines = [line for line in (err.strip() or out.strip()).splitlines() if line.strip()]
        message = " ".join(" ".join(lines[-3:]).split())
        raise TestbedError(f"{name} {' '.join(argv[1:4])}: exit {child.returncode}: {message[:600]}")
    return out


def _cluster_flags(cluster: Cluster) -> list[str]:
    flags = ["--kubeconfig", str(Path(cluster.kubeconfig).expanduser())] if cluster.kubeconfig else []
    return flags + (["--kube-context", cluster.context] if cluster.context else [])


class HookWatch:
    """The pods of Helm's hooks; called every second while Helm runs."""

    def __init__(self, cluster: Cluster, namespaces: Sequence[str], settle: Sequence[str] = ()) -> None:
        self.problem = ""  # of the last hook that had one
        self.evidence: dict[str, str] = {}  # logs of those pods
        self._cluster, self._namespaces, self._settle = cluster, tuple(namespaces), tuple(settle)
        self._since: dict[str, float] = {}

    def __call__(self) -> str:
        """Read the pods; return why the wait for Helm ends, or an empty text."""
        now = time.monotonic()
        reason = ""
        with contextlib.suppress(TestbedError):
            pods = [p for name in self._namespaces for p in wait.pods_now(self._cluster, name)]
            for pod in filter(wait.is_hook, pods):
                final = wait.first_problem([pod], self._settle)
                problem = final or wait.pod_problem(pod)
                if not problem:
                    continue
                key = f"{pod['metadata']['uid']} {problem}"
                if key not in self._since:
                    self._since[key] = now
                    last_lines = wait.last_log_lines(self._cluster, pod)
                    self.problem = f"{problem}; {last_lines}" if last_lines else problem
                    self.evidence |= wait.pod_logs(self._cluster, pod)
                if final and now - self._since[key] > _FINAL_S:
                    reason = self.problem
        return reason
