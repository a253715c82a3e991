"""Choose between the test cluster and a cluster of the user's own."""

import os
from collections.abc import Mapping
from pathlib import Path

from testcluster import ClusterError

OWN_KUBECONFIG = "MESHTRIAL_TEST_KUBECONFIG"
OWN_CLUSTER_FILE = "MESHTRIAL_TEST_CLUSTER_FILE"


def own_kubeconfig(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the kubeconfig of the user's own cluster, or None for the test cluster."""
    for name in (OWN_KUBECONFIG, OWN_CLUSTER_FILE):
        if environ.get(name) and not Path(environ[name]).expanduser().is_file():
            raise ClusterError(f"{name}={environ[name]} is not a file; name one, or unset it for the test cluster")
    if not environ.get(OWN_KUBECONFIG):
        if environ.get(OWN_CLUSTER_FILE):
            raise ClusterError(f"{OWN_CLUSTER_FILE} is set without {OWN_KUBECONFIG}; set both, or neither")
        return None
    return Path(environ[OWN_KUBECONFIG]).expanduser().absolute()
