from pathlib import Path

import pytest
from refused import refused
from unit.kubernetes.fakeapi import FakeApi

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import cleanup
from meshtrial.testbed.kubernetes.apply import Owner
from meshtrial.testbed.kubernetes.meshdata import Mesh, Release

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
MUTATING = cleanup.WEBHOOKS[0]
CLASSES = "/apis/gateway.networking.k8s.io/v1/gatewayclasses"
OWNER = Owner("study", "abc123")
KUMA = Mesh(
    "kuma",
    "Kuma",
    "2",
    Path("/nowhere"),
    namespaces=("kuma-system",),
    crd_groups=("kuma.io",),
    releases=(Release("kuma", namespace="kuma-system"),),
)


def helms(namespace: str) -> dict:
    return {"metadata": {"annotations": {"meta.helm.sh/release-namespace": namespace}}}


@pytest.mark.parametrize(
    ("path", "body", "ours"),
    [
        (f"{ROLES}/kuma-control-plane", {}, True),
        (f"{ROLES}/kumara", {}, False),
        (f"{ROLES}/reader", {"metadata": {"labels": {"app.kubernetes.io/instance": "kuma"}}}, True),
        (f"{ROLES}/reader", {"metadata": {"labels": {"kuma.io/zone": "a"}}}, True),
        (f"{ROLES}/reader", {"metadata": {"labels": {"notkuma.io/zone": "a"}}}, False),
        (f"{ROLES}/any", helms("kuma-system"), True),
        # Helm's annotation of another installation outweighs a name.
        (f"{ROLES}/kuma-control-plane", helms("shop"), False),
        (f"{BINDINGS}/any", {"subjects": [{"kind": "ServiceAccount", "namespace": "kuma-system"}]}, True),
        (f"{BINDINGS}/any", {"subjects": [{"kind": "Group", "name": "people"}]}, False),
        (f"{MUTATING}/any", {"webhooks": [{"clientConfig": {"service": {"namespace": "kuma-system"}}}]}, True),
        (f"{MUTATING}/any", {"webhooks": [{"clientConfig": {"url": "https://x"}}]}, False),
        (f"{CLASSES}/any", {"spec": {"controllerName": "gateways.kuma.io/controller"}}, True),
        (f"{CLASSES}/any", {"spec": {"controllerName": "istio.io/gateway-controller"}}, False),
    ],
)
def test_only_an_objects_own_words_tie_it_to_a_mesh(path: str, body: dict, ours: bool):
    assert cleanup.belongs_to(path, FakeApi().add(path, body), KUMA) is ours


def test_what_helm_does_not_remove_is_labelled_for_a_later_cleaning():
    api = FakeApi()
    before = cleanup.cluster_objects(api)
    api.add(f"{ROLES}/kuma-hook")
    api.add(f"{ROLES}/kuma-cp", helms("kuma-system"))
    api.add(f"{ROLES}/stranger")
    cleanup.label_owned(api, KUMA, OWNER, before)
    labelled = {path for path, item in api.objects.items() if item["metadata"]["labels"]}
    assert labelled == {f"{ROLES}/kuma-hook"}
    assert cleanup.remove_owned(api, "meshtrial.dev/owner", protected=lambda: {"abc123"}) == []
    assert f"{ROLES}/kuma-hook" in api.objects
    assert cleanup.remove_owned(api, "meshtrial.dev/owner") == ["clusterroles kuma-hook removed"]
    assert set(api.objects) == {f"{ROLES}/kuma-cp", f"{ROLES}/stranger"}


def test_what_cannot_be_seen_before_a_mesh_comes_is_not_taken_for_its_own():
    api = FakeApi()
    api.add(f"{ROLES}/kuma-of-somebody", {"metadata": {"labels": {"meshtrial.dev/owner": "gone"}}})
    api.add(f"{MUTATING}/kuma-hook", {"metadata": {"labels": {"meshtrial.dev/owner": "gone"}}})
    api.refused = {"clusterroles"}
    with refused(TestbedError):
        cleanup.cluster_objects(api)
    # Cleaning follows our own label and deletes what the rights allow.
    gone = ["mutatingwebhookconfigurations kuma-hook removed"]
    assert cleanup.remove_owned(api, "meshtrial.dev/owner") == gone
    assert set(api.objects) == {f"{ROLES}/kuma-of-somebody"}
