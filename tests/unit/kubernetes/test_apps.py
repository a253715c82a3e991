"""The apps details and details-nodelay on Kubernetes: one image, one service, one flag between them."""

import json
import re
from pathlib import Path

import pytest
from unit.kubernetes.fakeapi import FakeApi
from unit.kubernetes.rendering import render

from meshtrial.design.load import FixedRate
from meshtrial.testbed.kubernetes import apps
from meshtrial.testbed.kubernetes.apply import Applier, Owner, begin_deletion
from meshtrial.testbed.kubernetes.apps import read_app
from meshtrial.testbed.kubernetes.manifests import Json
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.local import apps as local

OPTIONS = KubernetesOptions()
SERVICE = Path(local.__file__).parent / "details" / "details.rb"
BOTH = ("details", "details-nodelay")


def container(objects: list[Json]) -> Json:
    (deployment,) = (o for o in objects if o["kind"] == "Deployment")
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found


def test_nothing_differs_but_the_flag():
    plain, nodelay = (list(read_app(OPTIONS, name, ("http1",)).objects) for name in BOTH)
    changed = json.loads(re.sub(r"\bdetails-nodelay\b", "details", json.dumps(nodelay)))
    args = container(changed)["args"]
    assert args.pop() == "--nodelay"
    assert changed == json.loads(json.dumps(plain))


@pytest.mark.parametrize("name", BOTH)
def test_a_users_image_of_bookinfos_details_is_another_one(name: str):
    images = {"details": "registry.test/bookinfo-details:1", "webrick-details": "registry.test/own:1"}
    options = KubernetesOptions(images=images)
    load = FixedRate(rps=10, connections=1, duration_s=1)
    for app, image in ((name, images["webrick-details"]), ("bookinfo", images["details"])):
        rendered = render("none", app, load, options)
        assert image in rendered.images
        assert not {*images.values()} - {image} & {*rendered.images}


def test_the_recipe_makes_what_the_manifest_runs():
    recipe = (OPTIONS.folder / "apps" / "details" / "Containerfile").read_text()
    command = json.loads(re.search(r"(?m)^CMD (.*)$", recipe)[1])  # type: ignore[index]
    entry = json.loads(re.search(r"(?m)^ENTRYPOINT (.*)$", recipe)[1])  # type: ignore[index]
    own = container(list(read_app(OPTIONS, "details", ("http1",)).objects))
    assert own["args"] == command
    assert re.search(rf"(?m)^COPY {SERVICE.name} {entry[1]}$", recipe)
    root = OPTIONS.folder.parent
    folder = re.search(r"docker build -t REFERENCE -f (\S+) (\S+)", recipe)
    assert folder
    assert (root / folder[1]).read_text() == recipe
    assert (root / folder[2]).resolve() == SERVICE.parent
    assert str(own["securityContext"]["runAsUser"]) == re.search(r"(?m)^USER (\d+)", recipe)[1]  # type: ignore[index]


# --- unused -----------------------------------------------------------------------------------------------------------

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
