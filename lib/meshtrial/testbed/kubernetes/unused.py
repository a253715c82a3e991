"""Services that nobody calls: the rest of a company's cluster, which a mesh tells its proxies of all the same.

They are real Services with an EndpointSlice each, in the study's own namespace, which they go with. No pod stands
behind them: their endpoints are addresses of the networks that are set apart for benchmarks (RFC 2544, RFC 5180), so
what a mesh does for a pod of its own it does not do for them, and a mesh that knows services by their pods alone
(Consul) may not see them at all. kube-proxy knows them in every treatment, without a mesh too.
"""

from ipaddress import ip_address

from meshtrial.records.schema import Proof
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.manifests import NOTE

ENDPOINTS = 2  # of each service
PORT = 8080
_FIRST = {"IPv4": ip_address("198.18.0.1"), "IPv6": ip_address("2001:2::1")}
_LABEL = f"{NOTE}unused"
# What an account must be allowed beside what every study needs.
RIGHTS = (("patch", "endpointslices", "discovery.k8s.io"), ("list", "endpointslices", "discovery.k8s.io"))


def objects(count: int, namespace: str, pod_ip: str = "") -> list[Json]:
    """So many services with their endpoints, each service behind its endpoints: it is whole when it is first seen.

    They are of the family of a pod's address, as services with pods are; of IPv4 without one.
    """
    family = "IPv6" if ":" in pod_ip else "IPv4"
    return [item for number in range(count) for item in _service(number, namespace, family)]


def _service(number: int, namespace: str, family: str) -> tuple[Json, Json]:
    name = f"unused-{number:04d}"
    first = _FIRST[family] + number * ENDPOINTS
    endpoints = [{"addresses": [str(first + i)], "conditions": {"ready": True}} for i in range(ENDPOINTS)]
    return (
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {
                    "kubernetes.io/service-name": name,
                    "endpointslice.kubernetes.io/managed-by": "meshtrial",
                    _LABEL: "true",
                },
            },
            "addressType": family,
            "endpoints": endpoints,
            "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace, "labels": {_LABEL: "true"}},
            "spec": {
                "ipFamilies": [family],
                "ports": [{"name": "http", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
            },
        },
    )


def prove(cluster: Cluster, namespace: str, count: int, phase: str) -> tuple[Proof, ...]:
    """They are all there, with all of their endpoints, and no more of them."""
    place = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = cluster.items(place, labelSelector=f"{_LABEL}=true")
    endpoints = sum(len(one.get("endpoints") or []) for one in slices)
    expected, seen = (f"{a} with {b} endpoints" for a, b in ((count, count * ENDPOINTS), (len(slices), endpoints)))
    return (Proof("services that nobody calls", phase, seen == expected, expected, seen),)
