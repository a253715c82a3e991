"""Images of a private registry: every pod names the secrets, and every namespace of ours has a copy of them."""

import base64
from collections.abc import Mapping

import pytest
from refused import as_reviewed, refused
from unit.kubernetes.fakeapi import FakeApi
from unit.kubernetes.rendering import our_meshes, render

from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import manifests, preflight, session, testbed
from meshtrial.testbed.kubernetes.apply import Applier, Owner
from meshtrial.testbed.kubernetes.helm import Values
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed

OPTIONS = KubernetesOptions.read({"image_pull_secrets": "regcred,tools/mirror"})
NAMES = [{"name": "regcred"}, {"name": "mirror"}]
SPACES = "/api/v1/namespaces"
DATA = {".dockerconfigjson": base64.b64encode(b"{}").decode()}
KIND = "kubernetes.io/dockerconfigjson"


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.objects["/api/v1"] = {"resources": [{"kind": "Secret", "name": "secrets", "namespaced": True}]}
    made.add(f"{SPACES}/default/secrets/regcred", {"type": KIND, "data": DATA, "metadata": {"annotations": {"a": "b"}}})
    made.add(f"{SPACES}/tools/secrets/mirror", {"type": KIND, "data": DATA})
    return made


@pytest.mark.parametrize(
    "treatment", ["none", "sidecar+mtls+opa", "istio+mtls+observability", "istio-ambient+waypoint"]
)
def test_every_pod_of_a_deployment_names_them(treatment: str):
    rendered = render(treatment, options=OPTIONS)
    templates = [manifests.template(manifests.overlay_deployment(item) or item) for item in rendered.objects]
    pods = [pod for pod in templates if pod is not None]
    assert len(pods) >= 2
    assert [pod["spec"].get("imagePullSecrets") for pod in pods] == [NAMES] * len(pods)
    bare = [manifests.template(item) for item in render(treatment).objects]
    assert not any("imagePullSecrets" in pod["spec"] for pod in bare if pod is not None)


def test_the_probe_names_them_too(api: FakeApi, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(testbed, "Cluster", lambda *_: api)
    bed = KubernetesTestbed({"image_pull_secrets": "regcred", "namespace": "trial", "keep": True})
    applied: list[Mapping[str, object]] = []
    monkeypatch.setattr(bed.applier, "apply", lambda objects, **_: applied.extend(objects))
    pod = {"metadata": {"name": "probe", "namespace": "trial-probe", "uid": "1"}, "spec": {}, "status": {}}
    monkeypatch.setattr(session.wait, "pods_ready", lambda *_: [pod])
    bed.session.probe_pod()
    pods = [pod for item in applied if (pod := manifests.template(dict(item))) is not None]
    assert [pod["spec"]["imagePullSecrets"] for pod in pods] == [NAMES[:1]]
    bed.close()


@pytest.mark.parametrize("name", ["consul", "istio", "istio-ambient", "kuma", "linkerd"])
def test_a_mesh_that_is_installed_gets_them_in_the_form_of_its_charts(name: str):
    mesh = our_meshes()[name]
    found = []
    for release in mesh.releases:
        values = Values(OPTIONS, mesh).of(release)
        for path in ("imagePullSecrets", "global.imagePullSecrets"):
            at: object = values
            for key in path.split("."):
                at = at.get(key) if isinstance(at, dict) else None
            if at:
                found.append((release.name, at))
        assert "imagePullSecrets" not in str(Values(KubernetesOptions(), mesh).of(release))
    wanted: object = NAMES if name in ("consul", "linkerd") else ["regcred", "mirror"]
    assert found
    assert all(given == wanted for _, given in found)
    assert len(found) == {"istio-ambient": 3}.get(name, 1)


def test_a_namespace_of_ours_has_a_copy_that_is_ours(api: FakeApi):
    owner = Owner("study", "abc123")
    Applier(api, owner, OPTIONS.pull_secrets).namespace("trial")
    for name in ("regcred", "mirror"):
        copy = api.objects[f"{SPACES}/trial/secrets/{name}"]
        assert (copy["type"], copy["data"]) == (KIND, DATA)
        assert copy["metadata"]["labels"] == owner.labels
        assert "annotations" not in copy["metadata"]


def test_in_a_namespace_that_was_lent_a_secret_that_is_there_stays_as_it_is(api: FakeApi):
    api.add(f"{SPACES}/lent", {"metadata": {"labels": {"meshtrial.dev/lent": "true"}}})
    theirs = api.add(f"{SPACES}/lent/secrets/regcred", {"type": KIND, "data": {"x": "theirs"}})
    Applier(api, Owner("study", "abc123"), OPTIONS.pull_secrets).namespace("lent")
    assert theirs["data"] == {"x": "theirs"}
    assert "labels" not in theirs["metadata"] or not theirs["metadata"]["labels"]
    assert api.objects[f"{SPACES}/lent/secrets/mirror"]["data"] == DATA


def test_what_cannot_be_pulled_with_is_said_before_a_study_starts(api: FakeApi, monkeypatch: pytest.MonkeyPatch):
    assert preflight.pull_secret_problems(api, OPTIONS) == []
    api.objects[f"{SPACES}/default/secrets/regcred"]["type"] = "Opaque"
    del api.objects[f"{SPACES}/tools/secrets/mirror"]
    as_reviewed(*preflight.pull_secret_problems(api, OPTIONS))
    api.refused = {"secrets"}
    as_reviewed(*preflight.pull_secret_problems(api, OPTIONS))


def test_names_that_are_none_and_two_that_are_alike_are_refused():
    with refused(UsageError):
        KubernetesOptions.read({"image_pull_secrets": ["a/b/c"]})
    with refused(UsageError):
        KubernetesOptions.read({"image_pull_secrets": "regcred,tools/regcred"})
