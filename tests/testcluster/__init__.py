"""A real two-node Kubernetes on one Linux machine, for tests: from package registries, no Docker, no image registry.

README.md says what it is and how to use it, by hand and in tests. This is the whole interface, with the fixtures of
``testcluster.plugin``. The library imports nothing from here, and this package knows nothing about studies.
"""

from testcluster.handle import Cluster
from testcluster.istio import Istio
from testcluster.kwok import Kwok
from testcluster.procs import call
from testcluster.settings import REGISTRY, ClusterError

__all__ = ["REGISTRY", "Cluster", "ClusterError", "Istio", "Kwok", "call"]
