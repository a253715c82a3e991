"""A real two-node Kubernetes on one Linux machine, for tests: from package registries, no Docker, no image registry.

README.md says what it is and how to use it, by hand and in tests. This is all of its interface, besides the fixtures of
``testcluster.plugin``; nothing here is imported by the library, and nothing here knows what a study is.
"""

from testcluster.handle import Cluster
from testcluster.istio import Istio
from testcluster.kwok import Kwok
from testcluster.procs import call
from testcluster.settings import REGISTRY, ClusterError

__all__ = ["REGISTRY", "Cluster", "ClusterError", "Istio", "Kwok", "call"]
