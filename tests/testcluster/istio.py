"""The locally built Istio: how it is installed and removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testcluster.settings import HERE, ISTIO_HUB, ISTIO_TAG, ISTIO_VERSION

if TYPE_CHECKING:
    from testcluster.handle import Cluster

ISTIO_NAMESPACE = "istio-system"


@dataclass
class Istio:
    """The locally built Istio: real istiod, webhook and agents on a vanilla Envoy. Not a release: say so in records."""

    cluster: Cluster

    version = ISTIO_VERSION
    hub = ISTIO_HUB
    tag = ISTIO_TAG
    namespace = ISTIO_NAMESPACE

    @property
    def charts(self) -> Path:
        """Folder with the charts base, istiod, cni, ztunnel and gateway of this very version."""
        return self.cluster.layout.share / "istio" / "charts"

    @property
    def gateway_crds(self) -> Path:
        """Folder with the standard CRDs of the Gateway API."""
        return self.cluster.layout.share / "gateway-api" / "crds"

    def values(self) -> str:
        """Return the values of the istiod chart that the local images need, as YAML."""
        text = (HERE / "manifests" / "values-istiod.yaml").read_text()
        return text.replace("@HUB@", ISTIO_HUB).replace("@TAG@", ISTIO_TAG)

    def values_file(self) -> Path:
        """Return the same in a file that lives as long as the cluster does."""
        path = self.cluster.layout.run / "values-istiod.yaml"
        path.write_text(self.values())
        return path

    def install(self, *, extra: Sequence[str] = (), timeout_s: float = 120) -> None:
        """Install CRDs and istiod (with ``extra`` arguments of helm), each in this time; wait until istiod is ready."""
        wait = ("--wait", f"--timeout={timeout_s:g}s")
        where = ("-n", ISTIO_NAMESPACE)
        base = ("upgrade", "--install", "istio-base", str(self.charts / "base"), "--create-namespace")
        self.cluster.helm(*base, *where, "--set", "defaultRevision=default", *wait, timeout_s=timeout_s + 10)
        istiod = ("upgrade", "--install", "istiod", str(self.charts / "istiod"), "-f", str(self.values_file()))
        self.cluster.helm(*istiod, *where, *wait, *extra, timeout_s=timeout_s + 10)

    def uninstall(self) -> None:
        """Remove all of it, CRDs and their objects included, if it is installed."""
        for release in ("istiod", "istio-base"):
            self.cluster.helm("uninstall", release, "-n", ISTIO_NAMESPACE, "--wait", "--ignore-not-found")
        self.cluster.delete_namespace(ISTIO_NAMESPACE)
        crds = [name for name in self.cluster.kubectl("get", "crd", "-o", "name").split() if name.endswith(".istio.io")]
        if crds:
            self.cluster.kubectl("delete", *crds, "--wait", "--timeout=60s", timeout_s=70)
        for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
            left = [name for name in self.cluster.kubectl("get", kind, "-o", "name").split() if "istio" in name]
            if left:  # a webhook without a target would refuse every pod
                self.cluster.kubectl("delete", *left)
