"""Whole runs on the test cluster: every available treatment is deployed, verified, loaded, metered and removed."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_backend_support import LOAD, bed_on, one_run, owned_namespaces, study
from testcluster import Cluster

from meshtrial import waiting
from meshtrial.design.generated import generated
from meshtrial.design.load import ClosedLoop, FixedRate
from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.load.ingest import ingest
from meshtrial.run.stage import usage_responses
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed

SYSTEM = "system-3"  # four services: the first calls two at once, and one of these the fourth
GENERATED = generated(3, LOAD.rps, LOAD.connections, on_cluster=True)


@pytest.fixture(scope="module")
def bed(cluster: Cluster) -> Iterator[KubernetesTestbed]:
    """One session for all runs; Istio stays installed between those that use it."""
    with bed_on(cluster, {SYSTEM: GENERATED}, mesh_reinstall="once") as made:
        yield made
    assert owned_namespaces(cluster) == []


def test_preflight_finds_nothing_missing(bed: KubernetesTestbed):
    assert bed.preflight(study("runs", "none", "sidecar+mtls", "istio+mtls")) == ()
    environment = bed.environment()
    assert environment["kubernetes"].startswith("v1.34")
    assert [n["name"] for n in environment["nodes"]] == ["n1", "n2"]
    assert 0 <= bed.before_run().get("idle_before", 0) <= 1


def test_none(bed: KubernetesTestbed, tmp_path: Path):
    run = one_run(bed, "none", tmp_path)
    assert run.failed == []
    assert {"no proxy container", "no proxy header", "planned placement"} <= run.names
    # 100 requests per second for 4 s, each of them in the fetched access log. If the machine stalls near the end, some
    # requests are never sent.
    assert 360 <= run.requests <= 400
    output = run.outputs[0]
    lines = output.access_log_path.read_text().splitlines()
    assert len(lines) == run.requests
    assert json.loads(lines[0])["ok"] is True
    assert 0 < output.usage.cpu_s < 4
    assert 3.9 < output.usage.window_s < 6
    assert {(u.component, u.role) for u in run.usage.values()} == {("server", "app")}
    assert run.usage["server"].cpu_s > 0
    assert 4 <= run.usage["server"].window_s < 30
    assert run.extra["resources"]["missing"] == []
    assert set(run.extra["placement"].values()) == {"n1", "n2"}
    assert any("fortio" in value for value in run.versions.values())
    assert bed.generator_cpus() == os.cpu_count()  # each node may use the whole machine
    used = bed.used_between()
    assert used is None or 0 <= used.busy <= 1


def test_two_generators_start_in_the_same_second(bed: KubernetesTestbed, tmp_path: Path):
    load = FixedRate(rps=100, connections=4, duration_s=3, generators=2)
    run = one_run(bed, "none-aa", tmp_path, load)
    assert run.failed == []
    starts = [json.loads(o.access_log_path.read_text().splitlines()[0])["timestamp"] / 1e9 for o in run.outputs]
    assert len(starts) == 2
    assert abs(starts[0] - starts[1]) < 1
    assert 270 <= run.requests <= 300


@pytest.mark.parametrize(
    ("treatment", "proofs"),
    [
        pytest.param("sidecar", {"a proxy in every pod", "no identity between the proxies"}, marks=pytest.mark.wide),
        pytest.param(
            "sidecar+mtls",
            {"plaintext from outside the mesh refused", "the generator's identity seen by the app"},
            marks=pytest.mark.wide,
        ),
        ("sidecar+mtls+jwt", {"JWT without a token", "JWT with a forged token", "JWT with a good token"}),
    ],
)
def test_reference_sidecar(bed: KubernetesTestbed, tmp_path: Path, treatment: str, proofs: set[str]):
    run = one_run(bed, treatment, tmp_path)
    assert run.failed == []
    assert proofs | {"requests through the server's sidecar"} <= run.names
    roles = {u.component: u.role for u in run.usage.values()}
    assert roles == {"server": "app", "server sidecar": "data plane", "client sidecar": "data plane"}
    assert all(u.cpu_s > 0 and (u.pss_bytes or 0) > 1 << 20 for u in run.usage.values())
    assert run.usage["server sidecar"].throttled_s is not None  # it has a CPU limit


def test_reference_sidecar_with_opa(bed: KubernetesTestbed, tmp_path: Path):
    if "opa" not in bed.options.images:
        pytest.skip("the policy server's image was not built")
    run = one_run(bed, "sidecar+mtls+opa", tmp_path)
    assert run.failed == []
    assert {"OPA with a method that is not allowed", "decisions of the policy servers"} <= run.names
    assert run.usage["server opa"].role == "policy"


SECRET = {"plaintext from outside the mesh refused", "connections of mutual TLS to the server's sidecar"}
PLAIN = {"plaintext from outside the mesh accepted", "no connection of mutual TLS to the server's sidecar"}
CARRIED = {"bytes from the server's sidecar to the application", "bytes from the client's sidecar to the service"}
OF_BYTES = pytest.mark.parametrize(
    ("treatment", "proofs"),
    [
        pytest.param("none", {"no proxy container"}, marks=pytest.mark.wide),
        pytest.param("istio", PLAIN | CARRIED, marks=pytest.mark.wide),
        ("istio+mtls", SECRET | CARRIED),
    ],
)


@OF_BYTES
def test_bytes_as_fast_as_they_go(bed: KubernetesTestbed, tmp_path: Path, treatment: str, proofs: set[str]):
    load = ClosedLoop(connections=4, duration_s=4, warmup_s=1, payload_bytes=65536, protocol="tcp")
    run = one_run(bed, treatment, tmp_path, load)
    assert run.failed == []
    assert proofs <= run.names
    told = json.loads(run.outputs[0].json_path.read_text())
    assert (told["RunType"], told["RetCodes"], told["SocketCount"]) == ("TCP", {"OK": run.requests}, 4)
    found = ingest(run.outputs, load, 100).responses
    assert found["throughput_bytes_s"] == pytest.approx(run.requests * 65536 / 4, rel=0.2)
    used = usage_responses(run.usage.values(), run.requests, 65536)
    assert (used["data_plane_cpu_s_per_gib"] > 0) == (treatment != "none")
    assert used["app_cpu_s_per_gib"] > 0


@OF_BYTES
def test_every_request_on_a_tcp_connection_of_its_own(
    bed: KubernetesTestbed, tmp_path: Path, treatment: str, proofs: set[str]
):
    load = replace(LOAD, protocol="tcp", keepalive=False)
    run = one_run(bed, treatment, tmp_path, load)
    assert run.failed == []
    assert proofs <= run.names
    told = json.loads(run.outputs[0].json_path.read_text())
    assert told["SocketCount"] == run.requests + load.connections  # one for each warm-up call of fortio's own
    assert ingest(run.outputs, load, 100).responses["connect_mean_s"] > 0


def test_closing_reaches_the_application_of_requests_too(bed: KubernetesTestbed, tmp_path: Path):
    load = replace(LOAD, keepalive=False)
    run = one_run(bed, "none", tmp_path, load)
    assert run.failed == []
    assert json.loads(run.outputs[0].json_path.read_text())["SocketCount"] == run.requests + load.connections


def test_what_is_for_requests_is_refused_where_bytes_are_sent(bed: KubernetesTestbed):
    load = replace(LOAD, protocol="tcp", payload_bytes=1024)
    with pytest.raises(UsageError, match="jwt needs requests"):
        bed.preflight(study("bytes", "none", "istio+mtls+jwt", load=load))


@pytest.mark.parametrize("treatment", [pytest.param("none", marks=pytest.mark.wide), "istio+mtls"])
def test_every_copy_of_the_application_has_its_share(bed: KubernetesTestbed, tmp_path: Path, treatment: str):
    # Without a mesh, a service spreads connections, not requests, by chance.
    load = FixedRate(
        rps=200, connections=16, duration_s=4, warmup_s=1, replicas=2, payload_bytes=100, response_bytes=5000
    )
    run = one_run(bed, treatment, tmp_path, load)
    assert run.failed == []
    assert run.usage["server"].count == 2
    assert len([pod for pod in run.extra["placement"] if pod.startswith("echo-")]) == 2
    # The larger of two equal pods uses about half of both: neither is idle or missing.
    largest, both = run.usage["server"].largest_bytes or 0, run.usage["server"].pss_bytes or 1
    assert 0.4 < largest / both < 0.75
    if treatment != "none":
        assert run.usage["server sidecar"].count == 2
    told = json.loads(run.outputs[0].json_path.read_text())
    assert told["Sizes"]["Min"] > 5000


@pytest.mark.parametrize(
    ("treatment", "proofs"),
    [
        pytest.param(
            "istio",
            {"plaintext from outside the mesh accepted", "no identity between the proxies"},
            marks=pytest.mark.wide,
        ),
        pytest.param(
            "istio+mtls+jwt-filter",
            {"JWT without a token", "JWT with a forged token", "JWT with a good token"},
            marks=pytest.mark.wide,
        ),
        pytest.param(
            "istio+mtls+observability",
            {"access log of the server's sidecar", "spans sent by the server's sidecar"},
            marks=pytest.mark.wide,  # covered for Istio by test_meshes.py
        ),
    ],
)
def test_istio_beyond_what_whole_studies_run(bed: KubernetesTestbed, tmp_path: Path, treatment: str, proofs: set[str]):
    run = one_run(bed, treatment, tmp_path)
    assert run.failed == []
    assert proofs | {"requests through the server's sidecar", "requests through the client's sidecar"} <= run.names
    roles = {u.component: u.role for u in run.usage.values()}
    expected = {
        "server": "app",
        "server sidecar": "data plane",
        "client sidecar": "data plane",
        "istiod": "control plane",
    }
    assert roles == expected | ({"collector": "collector"} if "observability" in treatment else {})
    assert all(u.cpu_s > 0 for u in run.usage.values() if u.role != "control plane")
    assert run.versions["mesh istio"].startswith("1.31-dev")
    assert run.extra["policy"]["mesh_reinstall"] == "once"
    assert any((tmp_path / "logs").glob("*istio-proxy.log"))


@pytest.mark.wide  # covered for Istio by test_meshes.py
@pytest.mark.parametrize("treatment", ["none", "istio+mtls"])
def test_three_tiers(bed: KubernetesTestbed, tmp_path: Path, treatment: str):
    load = FixedRate(rps=40, connections=8, duration_s=3, warmup_s=1, replicas=2)
    run = one_run(bed, treatment, tmp_path, load, "tiers")
    assert run.failed == []
    assert ("a tier that is not called is known to the proxy" in run.names) == (treatment != "none")
    latencies = [json.loads(line)["latency"] for line in run.outputs[0].access_log_path.read_text().splitlines()]
    assert min(latencies) > 0.2  # two holds of 100 ms
    assert run.usage["server"].count == 2
    assert run.usage["client-tier"].count == 2


@pytest.mark.parametrize("treatment", [pytest.param("none", marks=pytest.mark.wide), "istio+mtls"])
def test_every_service_of_a_generated_system_is_called_and_metered(
    bed: KubernetesTestbed, tmp_path: Path, treatment: str
):
    run = one_run(bed, treatment, tmp_path, app=SYSTEM)
    assert run.failed == []
    assert json.loads(run.outputs[0].json_path.read_text())["RetCodes"] == {"200": run.requests}
    services = {call.callee for call in GENERATED.calls}
    roles = {u.component: u.role for u in run.usage.values()}
    assert {name for name, role in roles.items() if role == "app"} == services
    proxied = {"client", *services} if treatment != "none" else set()
    assert {name for name, role in roles.items() if role == "data plane"} == {f"{name} sidecar" for name in proxied}
    assert all(u.cpu_s > 0 for u in run.usage.values() if u.role != "control plane")
    through = [float(p.observed) for p in run.proofs if p.name == "requests through the server's sidecar"]
    assert all(number >= run.requests * len(services) for number in through)


@pytest.mark.wide  # test_meshes.py takes a toggle out
def test_a_broken_toggle_fails_its_proof(bed: KubernetesTestbed, cluster: Cluster):
    deployment = bed.deploy(Treatment.parse("istio+mtls+jwt"), LOAD, "echo")
    try:
        assert [p for p in deployment.prove("before", 0) if not p.passed] == []
        for kind in ("peerauthentication/default", "authorizationpolicy/jwt"):
            cluster.kubectl("-n", bed.namespace, "delete", kind)
        wanted = {"plaintext from outside the mesh refused", "JWT without a token"}

        def failed() -> set[str]:
            return {p.name for p in deployment.prove("before", 0) if not p.passed}

        assert wanted <= waiting.until(failed, 30, 0.1, lambda names: wanted <= names)
    finally:
        deployment.close()


def test_none_beside_an_installed_mesh_has_no_proxy(bed: KubernetesTestbed, tmp_path: Path):
    assert one_run(bed, "istio", tmp_path).failed == []
    run = one_run(bed, "none", tmp_path)
    assert run.failed == []
    assert "istio" in run.extra["policy"]["installed_meshes"]


def test_nothing_of_the_last_deployment_is_left_when_the_next_one_is_measured(bed: KubernetesTestbed, cluster: Cluster):
    first = bed.deploy(Treatment.parse("none"), LOAD, "echo")
    name = first.setup.namespace
    first.close()
    assert cluster.get("-n", name, "pods")["items"] == []  # only the API server still has work
    second = bed.deploy(Treatment.parse("none"), LOAD, "echo")
    try:
        assert second.setup.namespace == name or name not in owned_namespaces(cluster)
    finally:
        second.close()


def test_a_mesh_is_fresh_for_every_run(cluster: Cluster, tmp_path: Path, bed: KubernetesTestbed):
    bed.installer.uninstall("istio")
    with bed_on(cluster, mesh_reinstall="run", namespace="fresh") as fresh:
        first = one_run(fresh, "istio+mtls", tmp_path)
        second = one_run(fresh, "istio+mtls", tmp_path)
        assert first.failed == second.failed == []
        assert first.extra["policy"]["mesh_installed_for_this_run"]
        assert second.extra["policy"]["mesh_installed_for_this_run"]
        baseline = one_run(fresh, "none", tmp_path)
        assert baseline.extra["policy"]["installed_meshes"] == {}
    crds = cluster.kubectl("get", "crd", "-o", "name")
    assert "istio.io" not in crds
    assert "istio-system" not in cluster.kubectl("get", "ns", "-o", "name")


def test_an_application_that_is_kept_is_the_same_pods(cluster: Cluster, tmp_path: Path):
    with bed_on(cluster, app_reinstall="once", namespace="kept") as kept:
        first, second = one_run(kept, "none", tmp_path), one_run(kept, "none", tmp_path)
        assert first.failed == second.failed == []
        assert first.extra["placement"] == second.extra["placement"]
        assert second.deploy_s < first.deploy_s  # nothing is deployed twice
    assert not any(name.startswith("kept") for name in owned_namespaces(cluster))
