"""The project's own Kubernetes for its cluster tests: built from package registries, no Docker, no image registry.

``tests/cluster/README.md`` says what it is and how to use it by hand; ``tests/cluster/conftest.py`` gives it to tests.
Nothing here is imported by the library.
"""

from clusterenv.handle import Cluster
from clusterenv.istio import Istio
from clusterenv.kwok import Kwok
from clusterenv.meshimages import MeshImages
from clusterenv.settings import ClusterError, Layout

__all__ = ["Cluster", "ClusterError", "Istio", "Kwok", "Layout", "MeshImages"]
