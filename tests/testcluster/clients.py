"""kubectl, and the environment in which the cluster's clients run."""

import os
from pathlib import Path

from testcluster.procs import call
from testcluster.settings import Layout


def environment(layout: Layout) -> dict[str, str]:
    """Return an environment for the cluster's clients, whose caches are removed with the cluster."""
    return os.environ | {
        "KUBECONFIG": str(layout.kubeconfig),
        "KUBECACHEDIR": str(layout.run / "kube-cache"),
        "HELM_CACHE_HOME": str(layout.run / "helm" / "cache"),
        "HELM_CONFIG_HOME": str(layout.run / "helm" / "config"),
        "HELM_DATA_HOME": str(layout.run / "helm" / "data"),
        "PATH": f"{layout.bin}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def kubectl(layout: Layout, *arguments: str, stdin: str | None = None, timeout_s: float = 60) -> str:
    """Run kubectl as the administrator."""
    command: list[str | Path] = [layout.program("kubectl"), *arguments]
    return call(command, stdin=stdin, timeout_s=timeout_s, env=environment(layout))
