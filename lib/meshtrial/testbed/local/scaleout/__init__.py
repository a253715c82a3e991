"""Three tiers of up to 200 endpoints each, every endpoint with its own Envoy under mutual TLS.

    load generator -> [sidecar] -> [sidecar] -> client -> [sidecar] -> [sidecar] -> server

The client and the server hold each request for a known time, as an application does that works. The sidecars are
configured by a control plane of our own over gRPC (``xds-server``), so that the cost of configuration is measured
too. Limits: one machine carries all of it, so CPU is shared by what would have cores of its own on a cluster; the
replicas of a tier are addresses of one process, so the application's share is smaller than that of real replicas.
"""

from meshtrial.testbed.local.scaleout.app import APP
from meshtrial.testbed.local.scaleout.deployment import TiersDeployment, deploy
from meshtrial.testbed.local.scaleout.preflight import problems

__all__ = ["APP", "TiersDeployment", "deploy", "problems"]
