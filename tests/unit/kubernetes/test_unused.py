"""Unused services: real objects, complete when first seen, and counted while they exist."""

from unit.kubernetes.fakeapi import FakeApi

from meshtrial.testbed.kubernetes import apps
from meshtrial.testbed.kubernetes.apply import Applier, Owner, begin_deletion

SERVICES, SLICES = "/api/v1/namespaces/trial/services", "/apis/discovery.k8s.io/v1/namespaces/trial/endpointslices"


def standing(count: int) -> FakeApi:
    api = FakeApi()
    kinds = {"v1": ("Service", "services"), "discovery.k8s.io/v1": ("EndpointSlice", "endpointslices")}
    for version, (kind, name) in kinds.items():
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        api.objects[base] = {"resources": [{"kind": kind, "name": name, "namespaced": True}]}
    Applier(api, Owner("study", "abc123")).apply(apps.unused_services(count, "trial"), home="trial")
    return api


def test_what_is_gone_of_them_fails_their_proof():
    api = standing(2)
    assert len([path for path in api.objects if path.startswith((f"{SERVICES}/", f"{SLICES}/"))]) == 4
    (proof,) = apps.prove_unused(api, "trial", 2, "before")
    assert (proof.passed, proof.observed) == (True, "2 with 4 endpoints")
    del api.objects[f"{SLICES}/unused-0001"]
    (proof,) = apps.prove_unused(api, "trial", 2, "after")
    assert (proof.passed, proof.expected, proof.observed) == (False, "2 with 4 endpoints", "1 with 2 endpoints")


def test_in_a_namespace_that_was_lent_they_go_one_by_one():
    api = standing(2)
    labels = {**Owner("study", "abc123").labels, "meshtrial.dev/lent": "true"}
    api.add("/api/v1/namespaces/trial", {"metadata": {"labels": labels}})
    assert begin_deletion(api, "trial", "abc123") == ""
    assert not [path for path in api.objects if path.startswith((f"{SERVICES}/", f"{SLICES}/"))]
    assert "/api/v1/namespaces/trial" in api.objects
