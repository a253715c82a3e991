"""Several copies of the application behind each data plane: each gets its share, and the policy is verified."""

import pytest
from local.studies import exercise

from meshtrial.design.load import FixedRate
from meshtrial.testbed.local import sidecar

LOAD = FixedRate(160, 8, 0.5, generators=2, replicas=2)


@pytest.mark.parametrize(
    ("name", "proof"),
    [
        ("none", "no proxy in the path"),
        ("node-proxy", "connections to each copy"),
        ("sidecar+mtls", "copies take turns"),
        ("sidecar+mtls+observability+jwt+opa+least-request", "copies do not take turns"),
    ],
)
def test_every_copy_has_its_share(name, proof, tmp_path):
    done = exercise(name, tmp_path, LOAD)
    assert done.failed == {}
    assert proof in done.names
    assert done.measured.responses["error_ratio"] == 0
    apps = {u.component: u for u in done.usage if u.role == "app"}
    assert set(apps) == {"app", "app 2"}
    assert all(u.cpu_s > 0 for u in apps.values())
    sidecars = {u.component for u in done.usage if u.component.startswith("server sidecar")}
    assert sidecars == ({"server sidecar", "server sidecar 2"} if name.startswith("sidecar") else set())


def test_requests_of_one_connection_are_balanced_too(tmp_path):
    load = FixedRate(160, 2, 0.5, generators=2, replicas=2, protocol="grpc")
    done = exercise("sidecar", tmp_path, load)
    assert done.failed == {}
    assert {"copies take turns", "each copy has its share"} <= done.names


def test_a_policy_that_is_not_there_is_found_by_its_proof(tmp_path, monkeypatch):
    forgotten = [sidecar.least_request, lambda pair: pair.upstream.clear()]
    monkeypatch.setitem(sidecar.FEATURES, "least-request", forgotten)
    failed = exercise("sidecar+least-request", tmp_path, LOAD).failed
    assert set(failed) == {"copies do not take turns"}
    assert failed["copies do not take turns"].observed.startswith(("1 2 1 2", "2 1 2 1"))
