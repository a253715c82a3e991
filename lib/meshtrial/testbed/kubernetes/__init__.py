"""The Kubernetes backend: real meshes on any cluster that a kubeconfig reaches."""

from __future__ import annotations

from meshtrial.testbed.kubernetes.cleanup import Cleaned, clean
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed

__all__ = ["Cleaned", "KubernetesOptions", "KubernetesTestbed", "clean"]
