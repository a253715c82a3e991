"""The apps details and details-nodelay on Kubernetes, unused services, and generated systems."""

import json
import re
from pathlib import Path

import pytest
from refused import refused
from unit.kubernetes.fakeapi import FakeApi
from unit.kubernetes.rendering import LOAD, TOKENS, find, images_of, of_kind, our_meshes, render

from meshtrial.design.generated import generated
from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import apps, workload
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
        assert {*images.values()} & images_of(rendered) == {image}


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


# --- generated systems ------------------------------------------------------------------------------------------------

SEED = 2  # seven services: one calls three, three call one, three call none
SYSTEM = generated(SEED, LOAD.rps, LOAD.connections, on_cluster=True)
NAMES = [call.callee for call in SYSTEM.calls]


def rendered(text: str, protocol: str = "http1") -> workload.Rendered:
    options, treatment = KubernetesOptions(), Treatment.parse(f"{text}@system-{SEED}")
    app = read_app(options, treatment.app, (protocol,), {f"system-{SEED}": SYSTEM})
    mesh = our_meshes().get(treatment.dataplane)
    return workload.render(workload.Setup(options, "trial", treatment, LOAD, app, mesh, TOKENS))


def test_each_service_calls_its_callees_at_the_same_time_and_listens_where_it_is_called():
    found = rendered("none")
    assert (found.app_pods, found.target.url) == (len(NAMES), "http://service-1.trial.svc.cluster.local:8080/")
    calls = {name: [call.callee for call in SYSTEM.calls if call.caller == name] for name in NAMES}
    assert {len(called) for called in calls.values()} == {0, 1, 3}
    for name, called in calls.items():
        pod = find(found, "Deployment", name)["spec"]["template"]
        assert pod["metadata"]["labels"]["meshtrial.dev/component"] == name
        assert pod["spec"]["serviceAccountName"] == name
        assert find(found, "Service", name)["spec"]["selector"] == {"app": name}
        assert find(found, "Service", name)["spec"]["ports"][0]["port"] == 8080
        (container,) = pod["spec"]["containers"]
        arguments = container["args"]
        urls = [f"http://{one}.trial.svc.cluster.local:8080/" for one in called]
        if called:
            assert arguments[arguments.index("-M") + 1].split() == ["8080", *urls]
            assert "-multi-serial-mode" not in arguments
        else:
            assert "-M" not in arguments
        assert ("-http-port=8080" in arguments) == (not called)


@pytest.mark.parametrize("mesh", [name for name, mesh in our_meshes().items() if not mesh.reference])
def test_every_mesh_carries_a_system(mesh: str):
    assert {*NAMES, "load"} <= of_kind(rendered(mesh), "Deployment").keys()


def test_what_a_system_on_a_cluster_has_not():
    with refused(UsageError, names=["sidecar+mtls", f"system-{SEED}"]):
        rendered("sidecar+mtls")
    with refused(UsageError, names=["none"]):
        rendered("none+delay-3000us")
    with refused(UsageError, names=["http1", "h2"]):
        rendered("none", "h2")
    with refused(UsageError, names=["system-7", "prediction"]):
        read_app(KubernetesOptions(), "system-7", ("http1",))
