"""Conformance: every mesh and feature with each protocol and application that its data claims, run for real.

Each is deployed, verified, loaded, counted, metered and removed without a trace. The reverse too: with the
toggle removed, its proof fails. `make test-meshes` runs everything; the plain cluster tests run each mesh once and each
mechanism on one mesh. The cases come from the meshes' own data, so a new mesh is tested without a new test.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from commandline import meshtrial
from ground import Ground
from remains import Remains
from scraping import needs_prometheus, scraping
from test_backend_support import Run, load_and_prove
from testcluster import Cluster
from waiting import wait_for

from meshtrial import paths
from meshtrial.design.load import FixedRate, Load
from meshtrial.design.study import Treatment
from meshtrial.design.system import read_system
from meshtrial.load import fortio
from meshtrial.testbed.kubernetes.apps import read_app
from meshtrial.testbed.kubernetes.meshdata import PROTOCOLS, Enrolment, Feature, Mesh, find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed
from meshtrial.testbed.proving import least_requests

NO_IMAGE = {"agentgateway"}  # features whose proxy is in no package registry and no folder of meshes
MESHES = {
    name: replace(mesh, features={k: feature for k, feature in mesh.features.items() if k not in NO_IMAGE})
    for name, mesh in find_meshes(KubernetesOptions()).items()
    if not mesh.reference and mesh.declared is None
}
LOAD = FixedRate(rps=50, connections=4, duration_s=3, warmup_s=1)
WIDE = pytest.mark.wide
FIRST = "istio"
# These features repeat another's mechanism; observability is the access log, the scrape and the traces in one.
SECOND_WAYS = ("jwt-filter", "client-only", "authz-route", "tracing", "access-log", "metrics", "x25519")
# What Envoy does by itself is there without its toggle. The manifests of this other feature take it away.
OPPOSITES = {"pqc": "x25519"}
# Besides the echo, which has every proof: applications of other shapes, once per mesh.
OTHER_APPS = ("tiers", "counter-api", "details", "details-nodelay", "bookinfo", "emojivoto")


@dataclass(frozen=True)
class Case:
    """One treatment with one application and one protocol."""

    treatment: str
    app: str = "echo"
    protocol: str = "http1"

    def __str__(self) -> str:
        return "-".join([self.treatment, *([self.app] if self.app != "echo" else []), self.protocol])


def treatment_with(mesh: Mesh, feature: Feature) -> str:
    """Return the smallest treatment with a feature: its requirements, and mutual TLS if that is a toggle."""
    names = list(feature.needs)
    for name in names:
        names += [more for more in mesh.features[name].needs if more not in names]
    mtls = ["mtls"] if "mtls" in mesh.features and "mtls" not in {feature.name, *names, *feature.excludes} else []
    return "+".join([mesh.name, *mtls, *reversed(names), feature.name])


def cases_of(mesh: Mesh) -> list[Case]:
    """Return a mesh's cases: base and features on the echo by each protocol, the base on the other applications."""
    apps = {name: (feature.apps or ("echo",))[0] for name, feature in mesh.features.items()}
    treatments = [(mesh.name, "echo"), *((treatment_with(mesh, f), apps[f.name]) for f in mesh.features.values())]
    protocols = {app: _speaks(app) for app in {app for _, app in treatments}}
    found = [Case(name, app, p) for name, app in treatments for p in mesh.protocols if p in protocols[app]]
    if mesh.tcp is not None:
        of_bytes = [mesh.name, *(treatment_with(mesh, f) for f in mesh.features.values() if f.tcp is not None)]
        found += [Case(name, protocol="tcp") for name in of_bytes]
    return found + [Case(fullest(mesh), app) for app in OTHER_APPS]


def fullest(mesh: Mesh) -> str:
    """Return the mesh itself, with mutual TLS if that is a toggle."""
    return treatment_with(mesh, mesh.features["mtls"]) if "mtls" in mesh.features else mesh.name


def _speaks(app: str) -> tuple[str, ...]:
    spoken = read_app(KubernetesOptions(), app, ("http1",)).protocols
    return tuple(p for p in PROTOCOLS if (p in spoken or (p == "mixed" and {"http1", "grpc"} <= set(spoken))))


def brief_cases() -> list[Case]:
    """Return the cases of every change: each mesh once, and each mechanism on the first mesh that has it.

    Istio comes first because its images are built here, on every machine. A treatment covers its
    requirements too, so treatments with the most features come first.
    """
    shown: set[str] = set()
    found: list[Case] = []
    for name in sorted(MESHES, key=lambda name: (name != FIRST, name)):
        mesh, of_mesh = MESHES[name], list[Case]()
        by_size = sorted(mesh.features.values(), key=lambda f: -len(Treatment.parse(treatment_with(mesh, f)).features))
        for feature in by_size:
            if feature.name not in shown and feature.name not in SECOND_WAYS:
                case = Case(treatment_with(mesh, feature), (feature.apps or ("echo",))[0])
                of_mesh.append(case)
                shown.update(Treatment.parse(case.treatment).features)
        found += of_mesh or [Case(fullest(mesh))]
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Group cases by mesh, so that each mesh is installed once."""
    if "case" in metafunc.fixturenames:
        brief = brief_cases()
        _by_mesh(metafunc, "case", [(name, c, c in brief) for name, mesh in MESHES.items() for c in cases_of(mesh)])
    elif "feature" in metafunc.fixturenames:
        # The first case, on which the others depend.
        first = (FIRST, next(iter(MESHES[FIRST].features)))
        pairs = [(name, f, (name, f) == first) for name, mesh in MESHES.items() for f in mesh.features]
        _by_mesh(metafunc, "feature", pairs)
    elif "standing" in metafunc.fixturenames and not metafunc.definition.get_closest_marker("parametrize"):
        metafunc.parametrize("standing", list(MESHES), indirect=True, scope="module")


def _by_mesh(metafunc: pytest.Metafunc, name: str, pairs: list[tuple[str, Any, bool]]) -> None:
    marked = [
        pytest.param(mesh, item, id=str(item) if name == "case" else f"{mesh}-{item}", marks=() if brief else WIDE)
        for mesh, item, brief in pairs
    ]
    metafunc.parametrize(("standing", name), marked, indirect=["standing"], scope="module")


@dataclass
class Installation:
    """A mesh that a testbed of ours installs when it is first used."""

    ground: Ground
    bed: KubernetesTestbed
    mesh: Mesh
    before: Remains

    def load_of(self, case: Case) -> Load:
        """A light load, with the generators that the protocol needs."""
        # Both tiers hold a request for 100 ms, so a connection carries five per second.
        tiers = {"replicas": 2, "connections": 16} if case.app == "tiers" else {}
        further = {"mixed": {"generators": 2}, "tcp": {"payload_bytes": 16384}}.get(case.protocol, {})
        shares = [c.percent for f in self.mesh.check(Treatment.parse(case.treatment)) for c in f.counters if c.of]
        # Twice the requests that can show the share, because a busy machine sends fewer.
        enough = {"rps": 400, "duration_s": 2 * least_requests(min(shares)) / 400} if shares else {}
        return replace(LOAD, protocol=case.protocol, **tiers, **further, **enough)

    @contextmanager
    def altered(self, mesh: Mesh) -> Iterator[None]:
        """The testbed reads this instead of the mesh's own data."""
        kept = self.bed.meshes[mesh.name]
        self.bed.meshes[mesh.name] = mesh
        try:
            yield
        finally:
            self.bed.meshes[mesh.name] = kept

    def run(self, case: Case, folder: Path) -> Run:
        """Make one run, from its deployment to its end."""
        load = self.load_of(case)
        deployment = self.bed.deploy(Treatment.parse(case.treatment), load, case.app)
        try:
            return load_and_prove(deployment, load, folder)
        finally:
            deployment.close()


@pytest.fixture(scope="module")
def standing(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Installation]:
    """Install a mesh for all of its tests, and remove it with all its objects."""
    mesh = request.param
    ground.require(mesh)
    bed = KubernetesTestbed(ground.options(namespace="meshes", mesh_reinstall="once"))
    with ground.asked_by(bed.meshes[mesh]):
        before = ground.remains()
        try:
            yield Installation(ground, bed, bed.meshes[mesh], before)
        finally:
            bed.close()
            left = ground.remains().beyond(before)
    assert left == []


def test_case(standing: Installation, case: Case, tmp_path: Path):
    standing.ground.require_app(case.app)
    run = standing.run(case, tmp_path)
    assert run.failed == []
    treatment = Treatment.parse(case.treatment)
    mesh = standing.mesh.carrying(case.protocol, treatment)
    features = mesh.check(treatment)
    bare = {feature.bare for feature in features}
    evidence = [*mesh.counters, *(e for f in features for e in (*f.counters, *f.logs))]
    assert {item.name for item in evidence if item.pods not in bare} <= run.names
    usage = {name: (u.role, u.cpu_s > 0, (u.pss_bytes or 0) > 0) for name, u in run.usage.items()}
    expected = {part.component: ("control plane", True, True) for part in mesh.control_plane}
    expected |= {part.component: ("data plane", True, True) for part in mesh.agents}
    if any(feature.name == "waypoint" for feature in features):
        expected["waypoint"] = ("data plane", True, True)
    sidecars = [name for name in usage if name.endswith(" sidecar")]
    expected |= dict.fromkeys(sidecars, ("data plane", True, True))
    assert len(sidecars) >= (1 if bare - {""} else 2) or not mesh.proxy_containers
    assert {name: usage.get(name) for name in expected} == expected
    assert run.extra["resources"]["missing"] == []
    assert run.requests >= 0.9 * LOAD.rps * LOAD.duration_s
    assert run.versions[f"mesh {mesh.name}"] == mesh.called
    print(f"{case}: {len(run.proofs)} proofs, {run.requests} requests, deployed in {run.deploy_s:.1f} s")


# Studies of single hops under every mesh, at 500 and at 200 requests per second.
SINGLE_HOPS = ("mesh_comparison-20261125T022942Z-a6e76e54.tar.xz", "mesh_comparison-20261126T023809Z-4289d2f7.tar.xz")
WINDOW_S = 10


def targets_of(cluster: Cluster, container: str, port: int) -> list[Mapping[str, Any]]:
    """A Prometheus' target for every pod that has this proxy, with the labels that Linkerd's configuration gives it."""
    targets = []
    for pod in cluster.get("pods", "-A")["items"]:
        metadata, spec = pod["metadata"], pod["spec"]
        if any(one["name"] == container for one in (*spec.get("initContainers", ()), *spec["containers"])):
            given = {re.sub(r"^linkerd\.io/(proxy-)?", "", key): value for key, value in metadata["labels"].items()}
            labels = {re.sub(r"\W", "_", key): value for key, value in given.items()}
            labels |= {"namespace": metadata["namespace"], "pod": metadata["name"]}
            targets.append({"targets": [f"{pod['status']['podIP']}:{port}"], "labels": labels})
    return targets


@contextmanager
def scraped(
    standing: Installation, cluster: Cluster, container: str, port: int, folder: Path
) -> Iterator[Callable[[], tuple[int, str, str]]]:
    """Ask a Prometheus that scrapes a mesh's proxies for calls, while the three tiers carry a load."""
    case = Case(standing.mesh.name, "tiers")
    load = standing.load_of(case)
    deployment = standing.bed.deploy(Treatment.parse(case.treatment), load, case.app)
    try:
        deployment.keep_warm(fortio.calls(replace(load, duration_s=120), "measure")[0])
        job = {"job_name": "proxies", "static_configs": targets_of(cluster, container, port)}
        with scraping(folder, job) as address:
            given = ("--range", f"{WINDOW_S}s", "--namespace", deployment.setup.namespace)
            time.sleep(WINDOW_S)
            yield lambda: meshtrial("calls", "--prometheus", address, *given, "--kubeconfig", cluster.kubeconfig)
    finally:
        deployment.close()


@needs_prometheus
@pytest.mark.parametrize("standing", ["linkerd"], indirect=True, scope="module")
def test_from_a_prometheus_to_a_prediction_in_two_commands(
    standing: Installation, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "studies"))
    with scraped(standing, cluster, "linkerd-proxy", 4191, tmp_path) as calls:
        wait_for(lambda: calls()[0] == 0)
        time.sleep(2)  # the first samples of the counters are before the window
        code, out, err = calls()
    assert (code, err) == (0, "")
    file = tmp_path / "system.yaml"
    file.write_text(out)
    system = read_system(file)
    found = {name: (one.replicas, one.outside) for name, one in system.services.items()}
    assert found == dict.fromkeys(("load", "client", "server"), (2, False))
    assert system.by_pair.keys() == {("load", "client"), ("client", "server")}
    first, second = system.by_pair["load", "client"], system.by_pair["client", "server"]
    assert first.rps == pytest.approx(LOAD.rps, rel=0.25)
    assert second.rps == pytest.approx(first.rps, rel=0.1)
    assert first.connections == pytest.approx(16, abs=2)  # those of fortio to its own proxy, not of the proxies
    for call in (first, second):
        assert (call.protocol, call.connections > 0) == ("http1", True)
        assert 0 < min(call.request_bytes, call.response_bytes) < 1000  # headers, for fortio sends no body
    studies = [paths.CHECKOUT / "data" / "sample" / name for name in SINGLE_HOPS]
    answer, report = tmp_path / "predicted.json", tmp_path / "predicted.html"
    code, out, err = meshtrial("predict", file, "--from", *studies, "--json", answer, "--html", report)
    assert (code, err) == (0, "")
    predicted = {one["treatment"]: one for one in json.loads(answer.read_text())["predictions"]}
    assert {"linkerd", "istio+mtls", "istio-ambient"} <= predicted.keys()
    assert predicted["linkerd"]["services"].keys() == system.services.keys()
    assert "<svg" in report.read_text()
    assert 0 < predicted["linkerd"]["cores"]["low"] < predicted["linkerd"]["cores"]["high"]


@needs_prometheus
@pytest.mark.parametrize("standing", ["istio-ambient"], indirect=True, scope="module")
def test_the_metrics_of_ztunnel_have_no_requests(standing: Installation, cluster: Cluster, tmp_path: Path):
    with scraped(standing, cluster, "istio-proxy", 15020, tmp_path) as calls:
        wait_for(lambda: "waypoint" in calls()[2])
        assert calls()[:2] == (2, "")


def test_without_the_toggle_its_proof_fails(standing: Installation, feature: str, tmp_path: Path):
    """Remove what makes the feature; everything that proves it stays."""
    mesh = standing.mesh
    toggle = mesh.features[feature]
    case = Case(treatment_with(mesh, toggle), (toggle.apps or ("echo",))[0])
    # Annotations of a feature with manifests make its evidence readable; without manifests they are the toggle.
    notes = toggle.pod_annotations if toggle.manifests else {}
    instead = mesh.features[OPPOSITES[feature]] if feature in OPPOSITES else replace(toggle, manifests=(), settings=())
    kept = {"manifests": instead.manifests, "settings": instead.settings}
    without = replace(toggle, **kept, namespace_labels={}, pod_annotations=notes, waits="")
    # A pod is kept out of the mesh by the mesh's enrolment.
    enrol = replace(mesh.enrol, outside_labels={}, outside_annotations={}) if toggle.bare else mesh.enrol
    with standing.altered(replace(mesh, enrol=enrol, features={**mesh.features, feature: without})):
        run = standing.run(case, tmp_path)
    assert run.failed != []
    # The rest of the treatment works: only this feature is missing.
    assert not [line for line in run.failed if line.startswith("a proxy in every pod")], run.failed


@WIDE
def test_another_share_than_the_one_that_is_said_is_found_out(standing: Installation, tmp_path: Path):
    """Replace the rate of traces: spans arrive, but not as many as the proof expects."""
    mesh = standing.mesh
    if "tracing-1pct" not in mesh.features:
        pytest.skip(f"{mesh.name}: has no rate of traces")
    said, other = mesh.features["tracing-1pct"], mesh.features["tracing"]
    wrong = replace(said, manifests=other.manifests)
    with standing.altered(replace(mesh, features={**mesh.features, said.name: wrong})):
        run = standing.run(Case(treatment_with(mesh, said)), tmp_path)
    shares = [counter.name for counter in said.counters if counter.of]
    assert [name for name in shares if not any(line.startswith(name) for line in run.failed)] == []
    assert len(run.failed) == len(shares)  # everything else stands


@WIDE
def test_a_treatment_without_a_feature_is_found_out_where_it_has_it(standing: Installation, tmp_path: Path):
    """Leave out the opposite of an absent feature, so the treatment has what it should lack."""
    mesh = standing.mesh
    opposed = [f for f in mesh.features.values() if f.absent]
    if not opposed:
        pytest.skip(f"{mesh.name}: no feature of it is there unless it is switched off")
    for toggle in opposed:
        kept = replace(toggle, absent=())
        with standing.altered(replace(mesh, features={**mesh.features, toggle.name: kept})):
            assert standing.run(Case(mesh.name), tmp_path).failed != []


@WIDE
def test_without_enrolment_the_meshs_own_proofs_fail(standing: Installation, tmp_path: Path):
    with standing.altered(replace(standing.mesh, enrol=Enrolment())):
        assert standing.run(Case(standing.mesh.name), tmp_path).failed != []


@WIDE
def test_what_stood_is_not_touched(standing: Installation, tmp_path: Path):
    """mesh_install=existing, with a mesh that another session installed."""
    mesh = standing.mesh
    treatment = mesh.name if "mtls" not in mesh.features else f"{mesh.name}+mtls"
    standing.run(Case(treatment), tmp_path)  # so that it stands
    standing.bed.applier.wait_for_deletions()  # objects of that run do not belong to the installation
    before = standing.ground.fingerprint(mesh)
    assert before
    with standing.ground.bed(namespace="guest", mesh_install="existing") as guest:
        deployment = guest.deploy(Treatment.parse(treatment), LOAD, "echo")
        try:
            run = load_and_prove(deployment, LOAD, tmp_path)
        finally:
            deployment.close()
    assert run.failed == []
    assert standing.ground.fingerprint(mesh) == before


@WIDE  # test_backend_runs.py covers Istio, with a fresh mesh for each of two runs
def test_a_second_installation_works_and_nothing_is_left(standing: Installation, tmp_path: Path):
    bed, mesh = standing.bed, standing.mesh
    ours = bed.namespace
    assert standing.run(Case(mesh.name), tmp_path).failed == []
    bed.installer.uninstall(mesh.name)
    left = [line for line in standing.ground.remains().beyond(standing.before) if f"{ours}-probe" not in line]
    assert left == []
    run = standing.run(Case(mesh.name), tmp_path)
    assert run.failed == []
    assert run.extra["policy"]["mesh_installed_for_this_run"]
    assert json.loads(json.dumps(bed.environment()))["charts"]
