from collections.abc import Callable

import pytest
from kubernetes.client.exceptions import ApiException
from refused import refused
from unit.kubernetes.conftest import Clock
from unit.kubernetes.fakeapi import FakeApi

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.apply import Applier, Owner, delete_namespace, label

pytestmark = pytest.mark.usefixtures("clock")  # nobody waits for real

OWNER = Owner("mesh comparison", "abc123")


def namespace(**labels: str) -> dict:
    return {"metadata": {"name": "trial", "labels": labels or None}}


def test_one_that_was_lent_stays_taken_while_pods_are_in_it(clock: Clock):
    api, at = FakeApi(), "/api/v1/namespaces/trial"
    api.add(at, {"metadata": {"labels": {"meshtrial.dev/lent": "true"}}})
    Applier(api, OWNER).namespace("trial")
    api.add(f"{at}/pods/somebodys")
    with refused(TestbedError):
        delete_namespace(api, "trial", OWNER.id, 1.0)
    assert api.objects[at]["metadata"]["labels"]["meshtrial.dev/owner"] == OWNER.id


def test_owners_are_unique_and_their_labels_are_legal():
    assert Owner("s").id != Owner("s").id
    assert label("Scale-out to 600 endpoints! (full)") == "scale-out-to-600-endpoints-full"
    assert label("***") == "study"
    assert len(label("x" * 99)) <= 40


MESHES = "/apis/kuma.io/v1alpha1/meshes"
LATE = 'admission webhook "v.kuma.io" denied the request: there are still some dataplanes attached'


def test_an_object_is_applied_where_its_kind_lies_and_goes_by_itself_where_that_is_not_at_home():
    api = FakeApi()
    resources = [{"name": name, "kind": "Service", "namespaced": True} for name in ("services", "services/status")]
    api.add("/api/v1", {"resources": resources})
    applier = Applier(api, OWNER)
    mesh = {"apiVersion": "kuma.io/v1alpha1", "kind": "Mesh", "metadata": {"name": "trial", "namespace": "trial"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo", "namespace": "trial"}}
    with refused(TestbedError):
        applier.apply([mesh])
    api.add("/apis/kuma.io/v1alpha1", {"resources": [{"name": "meshes", "kind": "Mesh", "namespaced": False}]})
    applier.apply([mesh, service], home="trial")
    applied = {path: item["metadata"] for path, item in api.objects.items() if "resources" not in item}
    assert applied.keys() == {f"{MESHES}/trial", "/api/v1/namespaces/trial/services/echo"}
    assert "namespace" not in applied[f"{MESHES}/trial"]
    assert all(OWNER.labels.items() <= metadata["labels"].items() for metadata in applied.values())
    applier.delete_outside(["trial"])
    assert "/api/v1/namespaces/trial/services/echo" in api.objects
    assert f"{MESHES}/trial" not in api.objects


def guarded(times: int, words: str) -> tuple[FakeApi, Callable[[float], None]]:
    """A cluster whose webhook refuses some deletions, and a deleter for it."""
    api = FakeApi()
    api.add(f"{MESHES}/trial")
    applier = Applier(api, OWNER)
    applier.outside = {f"{MESHES}/trial": {"home"}}
    good, left = api.request, [None] * times

    def request(method: str, path: str, *rest: object, **more: object) -> bytes:
        if method == "DELETE" and left:
            left.pop()
            raise ApiException(status=400, reason=words)
        return good(method, path, *rest, **more)  # type: ignore[arg-type]

    api.request = request  # type: ignore[method-assign]
    return api, lambda patience_s: applier.delete_outside(["home"], patience_s)


@pytest.mark.parametrize("words", [LATE, 'Internal error: failed calling webhook "v.kuma.io": connection refused'])
def test_a_webhook_that_sees_late_what_is_gone_is_asked_again(words: str):
    api, delete = guarded(2, words)
    delete(5.0)
    assert api.objects == {}


@pytest.mark.parametrize(("words", "patience_s"), [(LATE, 0.0), ("the object is not valid", 5.0)])
def test_any_other_refusal_is_told_at_once(words: str, patience_s: float):
    api, delete = guarded(2, words)
    with refused(TestbedError):
        delete(patience_s)
    assert f"{MESHES}/trial" in api.objects


def test_what_several_namespaces_lean_on_goes_with_the_last_of_them():
    api = FakeApi()
    api.add(f"{MESHES}/trial")
    applier = Applier(api, OWNER)
    applier.outside = {f"{MESHES}/trial": {"one", "other"}}
    assert applier.homes == {"one", "other"}
    applier.delete_outside(["one"])
    assert f"{MESHES}/trial" in api.objects
    assert applier.homes == {"other"}
    applier.delete_outside(["other"])
    assert api.objects == {}
