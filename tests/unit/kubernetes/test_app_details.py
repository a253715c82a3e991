"""The apps details and details-nodelay on Kubernetes: one image, one service, one flag between them."""

import copy
import json
import re
import shutil
import socket
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.kubernetes.rendering import find, render

from meshtrial import network, waiting
from meshtrial.design.study import Load
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
def test_both_are_called_like_the_local_ones(name: str):
    app = read_app(OPTIONS, name, ("http1",))
    assert app.path == local.app(name).path
    assert app.protocols == local.app(name).protocols
    assert not app.headers_path


@pytest.mark.parametrize("name", BOTH)
def test_a_users_image_of_bookinfos_details_is_another_one(name: str):
    images = {"details": "registry.test/bookinfo-details:1", "webrick-details": "registry.test/own:1"}
    options = KubernetesOptions(images=images)
    load = Load(rps=10, connections=1, duration_s=1)
    for app, image in ((name, images["webrick-details"]), ("bookinfo", images["details"])):
        rendered = render("none", app, load, options)
        assert image in rendered.images
        assert not {*images.values()} - {image} & {*rendered.images}


def test_behind_the_reference_sidecar_it_listens_on_loopback():
    load = Load(rps=10, connections=1, duration_s=1)
    found = find(render("sidecar", "details-nodelay", load), "Deployment", "details-nodelay")
    (own,) = (c for c in found["spec"]["template"]["spec"]["containers"] if c["name"] == "webrick-details")
    assert own["args"] == ["--listen=127.0.0.1:9080", "--nodelay"]


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


@pytest.fixture
def ruby() -> str:
    found = shutil.which("ruby")
    if found is None:
        pytest.skip("not run: ruby is not installed")
    return found


@pytest.fixture
def running(ruby: str) -> Iterator[str]:
    """The service as the manifest starts it, on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    args = copy.copy(container(list(read_app(OPTIONS, "details-nodelay", ("http1",)).objects))["args"])
    args[0] = f"--listen=127.0.0.1:{port}"
    child = subprocess.Popen([ruby, str(SERVICE), *args], stderr=subprocess.DEVNULL)
    try:

        def listens() -> bool:
            assert child.poll() is None
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        assert waiting.until(listens, 60, 0.05), "the service does not listen"
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(20)


def test_probes_do_not_ask_what_is_measured(running: str):
    app = read_app(OPTIONS, "details", ("http1",))
    probe = container(list(app.objects))["readinessProbe"]["httpGet"]
    assert probe["port"] == app.app_port
    assert not probe["path"].startswith("/details")
    with network.ask(running + probe["path"], 10) as answer:
        assert answer.status == 200
    with network.ask(running + app.path, 10) as answer:
        assert json.loads(answer.read())["author"] == "William Shakespeare"
    with pytest.raises(urllib.error.HTTPError, check=lambda error: error.code == 404):
        network.ask(running + "/healthy", 10)


@pytest.mark.parametrize(
    "args", [[], ["127.0.0.1", "9080"], ["--listen=9080"], ["--listen=127.0.0.1:0"], ["--listen=127.0.0.1:9", "--no"]]
)
def test_a_wrong_call_is_refused(ruby: str, args: list[str]):
    done = subprocess.run([ruby, str(SERVICE), *args], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: ruby details.rb --listen=ADDRESS:PORT")
