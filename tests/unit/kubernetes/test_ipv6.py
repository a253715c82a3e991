"""Clusters whose pods have IPv6 addresses: brackets in URLs, services of that family, and refusals."""

from collections.abc import Sequence

import pytest
from refused import as_reviewed
from unit.kubernetes.fakeapi import FakeApi
from unit.kubernetes.rendering import LOAD, our_meshes, render

from meshtrial.testbed.kubernetes import apps, meshversions, preflight, probing
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.pods import PodRef

IP, PROBE = "fd00:10:244::12", PodRef("trial-probe", "probe", "fortio")
POD = {"metadata": {"name": "istiod-1", "namespace": "istio-system", "uid": "1"}, "status": {"podIP": IP}}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the URLs that are requested from inside the cluster."""
    urls: list[str] = []

    def scrape(cluster: object, probe: PodRef, wanted: Sequence[str]) -> list[str]:
        urls.extend(wanted)
        return ["requests 7\n"] * len(wanted)

    monkeypatch.setattr(probing, "scrape", scrape)
    return urls


def mesh() -> Mesh:
    return our_meshes()["istio"]


def test_counters_pushes_and_versions_are_read_at_addresses_in_brackets(asked: list[str]):
    probing.total(FakeApi(), PROBE, [IP], "15020/stats/prometheus", r"requests (\d+)")
    told = mesh().pushes
    assert told is not None
    probing.read_pushes(FakeApi(), PROBE, [POD], told)
    (probe,) = (one for one in mesh().version_probes if one.pods == "istiod")
    meshversions.reported_versions(FakeApi(), PROBE, mesh(), {"istiod": [POD]})
    assert asked == [f"http://[{IP}]:{rest}" for rest in ("15020/stats/prometheus", told.url, probe.url)]


def test_services_that_nobody_calls_are_of_the_pods_family():
    slices, services = apps.unused_services(2, "trial", IP)[::2], apps.unused_services(2, "trial", IP)[1::2]
    assert {one["addressType"] for one in slices} == {"IPv6"}
    assert [end["addresses"] for one in slices for end in one["endpoints"]] == [
        ["2001:2::1"],
        ["2001:2::2"],
        ["2001:2::3"],
        ["2001:2::4"],
    ]
    assert {family for one in services for family in one["spec"]["ipFamilies"]} == {"IPv6"}
    assert {one["addressType"] for one in apps.unused_services(2, "trial", "10.0.0.7")[::2]} == {"IPv4"}


@pytest.mark.parametrize(
    ("pods", "cidr", "is_ipv6"),
    [
        ([("10.1.0.1", True), (IP, False)], "10.244.0.0/24", True),
        ([("fd00::1", True), ("10.1.0.1", False)], "fd00:10:244::/64", False),
        ([], "fd00:10:244::/64", True),
        ([], "", False),
    ],
)
def test_the_family_is_that_of_a_pod_with_an_address_of_its_own(pods, cidr: str, is_ipv6: bool):
    api = FakeApi()
    for number, (address, on_host) in enumerate(pods):
        body = {"spec": {"hostNetwork": on_host}, "status": {"podIP": address}}
        api.add(f"/api/v1/namespaces/kube-system/pods/p{number}", body)
    api.add("/api/v1/nodes/n1", {"spec": {"podCIDR": cidr}})
    assert preflight.pods_have_ipv6(api) is is_ipv6
    api.refused = {"pods"}  # a borrowed namespace: only nodes may be listed
    assert preflight.pods_have_ipv6(api) is (":" in cidr)


@pytest.mark.parametrize(
    ("treatment", "app", "names"),
    [
        ("none", "echo", []),
        ("istio+mtls", "echo", []),
        ("linkerd", "echo", []),
        ("none", "counter-api", ["Deployment counter"]),
        ("sidecar+mtls", "echo", ["ConfigMap envoy-server", "ConfigMap envoy-client"]),
        ("istio+mtls+metrics", "echo", ["ConfigMap scraper"]),
    ],
)
def test_what_listens_on_ipv4_alone_is_named_before_a_study_starts(treatment: str, app: str, names: list[str]):
    lines = preflight.ipv4_problems([render(treatment, app, LOAD)])
    assert len(lines) == bool(names)
    assert [name for name in names if name not in lines[0]] == []
    as_reviewed(*lines)
