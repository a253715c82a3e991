import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from meshtrial import paths
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import probing
from meshtrial.testbed.kubernetes.manifests import Json
from meshtrial.testbed.kubernetes.meshdata import ExpectedVersion, Mesh, Selector, VersionProbe, read_mesh
from meshtrial.testbed.kubernetes.meshversions import contradiction, is_version, prove, reported_versions, tag
from meshtrial.testbed.kubernetes.pods import PodRef

PROBE = PodRef("trial", "probe", "fortio", "uid", "n1", "10.0.0.1")
VERSION_PROBES = (
    VersionProbe("brain", "brain", "80/metrics", r'build\{tag="([^"]+)"'),
    VersionProbe("proxy", "app", "90/metrics", r'build\{tag="([^"]+)"', of_mesh=False),
)
MESH = Mesh(
    "tiny@1.30",
    "A mesh of a test",
    "1.30.4",
    Path(),
    proxy_containers=("tiny-proxy",),
    control_plane=(Selector("brain", "tiny-system", "app=brain"),),
    version_probes=VERSION_PROBES,
    declared=ExpectedVersion("1.30", ("1.30.4",)),
)


def pod(asked: dict[str, str], known: dict[str, str] | None = None, digest: str = "sha256:ab") -> Json:
    """A pod that names these images; the node may use other names."""
    known = asked if known is None else known
    states = [{"name": n, "image": image, "imageID": f"r.test/x@{digest}"} for n, image in known.items()]
    containers = [{"name": name, "image": image} for name, image in asked.items()]
    return {"spec": {"containers": containers}, "status": {"podIP": "10.0.0.9", "containerStatuses": states}}


def running(brain: str, *proxies: str) -> dict[str, Sequence[Json]]:
    apps = [pod({"echo": "fortio:1.68", "tiny-proxy": proxy}) for proxy in proxies]
    return {"brain": [pod({"cp": brain})], "app": apps, "load": [], "waypoint": []}


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        *(("1.30", True), ("v1.30", True), ("1.30.4", True)),
        *(("1.3", False), ("1.301", False), ("2.1.30", False), ("11.30", False), ("edge-1.30", False)),
        # Neither a candidate nor a variant is the release.
        *(("1.30-rc.1", False), ("1.30-distroless", False)),
    ],
)
def test_a_version_is_found_whole_or_as_a_line(text: str, is_it: bool):
    assert is_version(text, "1.30") is is_it


def test_a_registry_that_is_called_like_a_version_is_none():
    assert tag("r.test:5000/istio-1.30/pilot:1.31.1") == "1.31.1"
    assert tag("r.test:5000/istio-1.30/pilot:1.31@sha256:ab") == "1.31"
    assert tag("r.test:5000/istio-1.30/pilot@sha256:ab") == ""
    assert tag("pilot") == ""


def test_what_runs_as_declared_is_proven_part_by_part():
    found = prove(MESH, running("r.test/cp:1.30.4", "r.test/proxy:1.30.4", "r.test/proxy:v1.30.4"), {}, "before")
    assert [(p.name, p.passed, p.expected, p.observed) for p in found] == [
        ("version 1.30 of brain", True, "images of 1.30.4", "1 of 1"),
        ("version 1.30 of the application's proxies", True, "images of 1.30.4", "2 of 2"),
    ]


def test_one_proxy_of_another_version_is_found_out_and_named():
    _, proxies = prove(MESH, running("cp:1.30.4", "proxy:1.30.4", "proxy:1.31.1"), {}, "after")
    assert not proxies.passed
    assert (proxies.phase, proxies.observed) == ("after", "tiny-proxy: proxy:1.31.1 (sha256:ab)")


def test_a_node_that_knows_an_image_by_another_tag_is_believed_about_what_was_asked():
    pods = {"brain": [pod({"cp": "cp:1.30.4"}, {"cp": "cp:latest"})]}
    (found,) = prove(MESH, pods, {}, "before")
    assert found.passed
    pods = {"brain": [pod({"cp": "cp:latest"}, {"cp": "cp:1.31.1"})]}
    (found,) = prove(MESH, pods, {}, "before")
    assert not found.passed


def test_what_is_called_otherwise_is_said_by_container_and_held_to_it():
    mesh = replace(MESH, declared=ExpectedVersion("1.30", ("1.30.4",), {"tiny-proxy": "sha256:cd"}))
    pods = running("cp:1.30.4", "proxy:mine")
    brain, proxies = prove(mesh, pods, {}, "before")
    assert (brain.passed, proxies.passed, proxies.expected) == (True, False, "images of sha256:cd")
    right = [pod({"tiny-proxy": "proxy:mine"}, digest="sha256:cdef")]
    assert all(p.passed for p in prove(mesh, {**pods, "app": right}, {}, "before"))
    for runs, passed in (("mine", True), ("proxy:mine", True), ("min", False), ("proxy:min", False)):
        named = replace(MESH, declared=ExpectedVersion("1.30", ("1.30.4",), {"tiny-proxy": runs}))
        assert prove(named, pods, {}, "before")[1].passed is passed
    misspelt = replace(MESH, declared=ExpectedVersion("1.30", ("1.30.4",), {"tiny-prxoy": "x"}))
    *_, last = prove(misspelt, running("cp:1.30.4", "proxy:1.30.4"), {}, "before")
    assert (last.passed, last.observed) == (False, "no such container; known are cp, tiny-proxy")


def test_a_tag_that_lies_is_found_out_by_what_the_program_tells():
    pods = running("cp:1.30.4")
    said = {"brain": (VERSION_PROBES[0], ["1.31.1"]), "proxy": (VERSION_PROBES[1], ["v2.359.0"])}
    image, word = prove(MESH, pods, said, "before")
    assert image.passed
    # The proxy counts versions of its own.
    assert (word.name, word.passed) == ("version 1.30 as brain reports it", False)
    assert (word.expected, word.observed) == ("1.30.4", "1.31.1")
    said["brain"] = (VERSION_PROBES[0], ["1.30.4"])
    assert all(proof.passed for proof in prove(MESH, pods, said, "before"))
    own = replace(MESH, declared=ExpectedVersion("1.30", ("1.30.4",), {"proxy": "v2.360.0"}))
    *_, word = prove(own, pods, said, "before")
    assert (word.name, word.passed) == ("version 1.30 as proxy reports it", False)


def test_what_has_no_version_proves_none():
    assert prove(replace(MESH, declared=None), running("cp:2", "proxy:3"), {}, "before") == []
    assert contradiction(replace(MESH, declared=None), "brain", [pod({"cp": "cp:2"})]) == ""


def test_parts_are_asked_and_one_that_is_silent_is_left_out(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def scrape(cluster: object, probe: PodRef, urls: Sequence[str]) -> list[str]:
        asked.extend(urls)
        if "90/" in urls[0]:
            raise TestbedError("exec refused")
        return ['build{tag="1.30.4"} 1\nbuild{tag="unknown"} 1\n', ""]

    monkeypatch.setattr(probing, "scrape", scrape)
    found = reported_versions(None, PROBE, MESH, running("cp:1.30.4", "proxy:1.30.4"))  # type: ignore[arg-type]
    assert found == {"brain": (VERSION_PROBES[0], ["1.30.4"])}
    assert asked == ["http://10.0.0.9:80/metrics", "http://10.0.0.9:90/metrics"]


def test_what_only_the_inside_or_the_log_tells_is_asked_of_one_pod(monkeypatch: pytest.MonkeyPatch):
    pattern = '"?build"?: ?"(\\w+)"'
    probes = (
        VersionProbe("proxy", "app", "127.0.0.1:9901/server_info", pattern, of_build=True),
        VersionProbe("agent", "app", "log tiny-agent", pattern, of_build=True),
    )
    asked: list[tuple[str, str]] = []

    def scrape(cluster: object, probe: PodRef, urls: Sequence[str]) -> list[str]:
        asked.extend((probe.name, url) for url in urls)
        return ['{"build": "DEBUG"}']

    class Logs:
        def text(self, path: str, once_s: float | None, **query: object) -> str:
            asked.append((path, str(query["container"])))
            return 'starting, build: "release"\n'

    several = running("cp:1.30.4", "proxy:1.30.4", "proxy:1.30.4")
    names = ({"namespace": "trial", "name": f"app-{i}", "uid": str(i)} for i in range(9))
    pods = {part: [one | {"metadata": next(names)} for one in found] for part, found in several.items()}
    monkeypatch.setattr(probing, "scrape", scrape)
    found = reported_versions(Logs(), PROBE, replace(MESH, version_probes=probes), pods)  # type: ignore[arg-type]
    assert found == {"proxy": (probes[0], ["DEBUG"]), "agent": (probes[1], ["release"])}
    first = pods["app"][0]["metadata"]["name"]
    assert asked == [
        (first, "http://127.0.0.1:9901/server_info"),
        (f"/api/v1/namespaces/trial/pods/{first}/log", "tiny-agent"),
    ]
    # A build description is not a version, so it contradicts none.
    assert all(proof.passed for proof in prove(replace(MESH, version_probes=probes), pods, found, "before"))


def test_how_kubernetes_admitted_a_container_is_read_of_every_pod():
    def admitted(*names: str, kind: str = "containers", **limits: str) -> Json:
        containers = [{"name": name, "resources": {"limits": limits} if limits else None} for name in names]
        return {"spec": {"containers": [{"name": "echo"}], kind: containers}, "status": {}}

    probe = VersionProbe("place", "app", "containers", r"(?m)^(\w+) proxy ", of_mesh=False)
    limit = VersionProbe("limit", "app", "containers", r"(?m)^\w+ proxy cpu=(\S+)", of_mesh=False)
    pods = {"app": [admitted("proxy", kind="initContainers", cpu="200m"), admitted("echo", "proxy")]}
    declared = ExpectedVersion("1.30", ("1.30.4",), {"place": "initContainers", "limit": "200m"})
    mesh = replace(MESH, version_probes=(probe, limit), declared=declared)
    found = reported_versions(None, PROBE, mesh, pods)  # type: ignore[arg-type]
    assert {name: texts for name, (_, texts) in found.items()} == {
        "place": ["containers", "initContainers"],
        "limit": ["200m", "none"],
    }
    assert not any(proof.passed for proof in prove(mesh, {}, found, "before"))
    found = reported_versions(None, PROBE, mesh, {"app": pods["app"][:1]})  # type: ignore[arg-type]
    assert [proof.passed for proof in prove(mesh, {}, found, "before")] == [True, True]


@pytest.mark.parametrize(
    ("mesh", "name", "page", "found"),
    [
        ("istio", "redirection", "info\tFinal iptables state (IPv4):\n*nat\n", ["iptables"]),
        ("istio", "redirection", "native nftables enabled\ninfo\tnftables rules programmed:\nadd table", ["nftables"]),
        ("istio", "redirection", "Running iptables restore with: iptables-restore\nnftables environment", []),
        ("istio-ambient", "ztunnel's worker threads", "# TYPE tokio_num_workers gauge\ntokio_num_workers 4\n", ["4"]),
    ],
)
def test_a_probe_reads_how_a_mesh_was_installed(mesh: str, name: str, page: str, found: list[str]):
    (probe,) = (one for one in read_mesh(paths.MANIFESTS / "meshes" / mesh).version_probes if one.name == name)
    assert not probe.of_mesh
    assert re.findall(probe.pattern, page) == found


@pytest.mark.parametrize(
    ("mesh", "page", "word"),
    [
        (
            "istio-ambient",
            'info\tversion: version.BuildInfo{Version:"1.31", BuildProfile:"release", BuildStatus:"Clean"}',
            "release",
        ),
        ("istio-ambient", '{"message":"version: version.BuildInfo{BuildProfile:\\"debug\\"}"}', "debug"),
        ("linkerd", 'proxy_build_info{date="2026",git_sha="ab",profile="debug",vendor="",version="2.3"} 1', "debug"),
        ("kuma", '{\n "version": "9e55/1.40.0/Modified/DEBUG/BoringSSL",\n "state": "LIVE"}', "DEBUG"),
    ],
)
def test_meshes_find_the_word_in_what_their_proxies_say(mesh: str, page: str, word: str):
    (probe,) = (one for one in read_mesh(paths.MANIFESTS / "meshes" / mesh).version_probes if one.of_build)
    assert re.findall(probe.pattern, page) == [word]
