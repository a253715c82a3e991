"""Deliberate faults on a cluster: each is reported with its reason, foreign objects stay, and nothing remains."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_backend_support import bed_on, load_runs, one_run, options_for, owned_namespaces, study
from testcluster import Cluster

from meshtrial import waiting
from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.errors import TestbedError
from meshtrial.load import fortio
from meshtrial.testbed.kubernetes.cleanup import clean_cluster
from meshtrial.testbed.kubernetes.client import Cluster as Api
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed

LOAD = FixedRate(rps=50, connections=2, duration_s=12, warmup_s=0)
NONE = Treatment.parse("none")


@pytest.fixture(scope="module")
def bed(cluster: Cluster) -> Iterator[KubernetesTestbed]:
    with bed_on(cluster, namespace="faults") as made:
        yield made
    assert owned_namespaces(cluster) == []


def during_load(work: Callable[[], object]) -> threading.Thread:
    """Call the function one second after the load starts."""

    def strike() -> None:
        waiting.until(load_runs, 60, 0.1)
        time.sleep(1)
        work()

    thread = threading.Thread(target=strike)
    thread.start()
    return thread


def generate(bed: KubernetesTestbed, folder: Path) -> None:
    deployment = bed.deploy(NONE, LOAD, "echo")
    try:
        deployment.generate(fortio.calls(LOAD, "measure"), folder, 60)
    finally:
        deployment.close()


@pytest.mark.wide  # test_backend_standing.py covers whole studies
def test_api_server_killed_and_restarted_in_a_run(bed: KubernetesTestbed, cluster: Cluster, tmp_path: Path):
    def blink() -> None:
        with cluster.api_server_down():
            time.sleep(2)

    deployment = bed.deploy(NONE, LOAD, "echo")
    try:
        thread = during_load(blink)
        with pytest.raises(TestbedError, match=r"API server .* gave no answer for") as caught:
            deployment.generate(fortio.calls(LOAD, "measure"), tmp_path, 60)
        thread.join()
        assert "\n" not in str(caught.value)
    finally:
        cluster.start_api_server()
        deployment.close()
    assert one_run(bed, "none", tmp_path, FixedRate(rps=50, connections=2, duration_s=2)).failed == []


# Objects and kubelet metrics; proofs and removal use the same two ways.
PHASES = (
    "deploying",
    "reading",
    *(pytest.param(p, marks=pytest.mark.wide) for p in ("proving", "proving again", "removing")),
)


@pytest.mark.parametrize("phase", PHASES)
def test_an_api_server_that_blinks_is_waited_for_in_each_phase(bed: KubernetesTestbed, cluster: Cluster, phase: str):
    def step(name: str, work: Callable[[], Any]) -> Any:
        if name != phase:
            return work()
        cluster.kill_api_server()
        back = threading.Timer(2, cluster.start_api_server)
        back.start()
        try:
            return work()
        finally:
            back.join()

    try:
        deployment = step("deploying", lambda: bed.deploy(NONE, LOAD, "echo"))
        namespace = deployment.setup.namespace
        try:
            proofs = [*step("proving", lambda: deployment.prove("before", 0))]
            assert step("reading", deployment.snapshot)["server"].cpu_s > 0
            proofs += step("proving again", lambda: deployment.prove("after", 0))
            assert [proof for proof in proofs if not proof.passed and proof.phase == "before"] == []
        finally:
            step("removing", deployment.close)
        # It is deleted while the next deployment starts, before anybody waits for it.
        left = waiting.until(lambda: owned_namespaces(cluster), 60, 0.5, lambda names: namespace not in names)
        assert namespace not in left
    finally:
        cluster.start_api_server()


def test_an_api_server_that_stays_away_is_said(cluster: Cluster):
    # During deployment, existing pods are read from open streams and from the kubelets.
    options = options_for(cluster, namespace="away", api_patience_s=3)
    with bed_on(cluster, namespace="away", api_patience_s=3) as bed:
        bed.session.probe_pod()
        with cluster.api_server_down(), pytest.raises(TestbedError, match="no answer") as caught:
            bed.deploy(NONE, LOAD, "echo")
        assert "\n" not in str(caught.value)
    read = KubernetesOptions.read(options)
    clean_cluster(Api(read.kubeconfig), read, force=True)
    assert not any(name.startswith("away") for name in owned_namespaces(cluster))


@pytest.mark.parametrize("part", [pytest.param("load", marks=pytest.mark.wide), "app"])
def test_a_pod_deleted_in_a_run(bed: KubernetesTestbed, cluster: Cluster, tmp_path: Path, part: str):
    deployment = bed.deploy(NONE, LOAD, "echo")
    chosen = ("-n", deployment.setup.namespace, "-l", f"meshtrial.dev/part={part}")
    try:
        thread = during_load(lambda: cluster.kubectl("delete", "pod", "--wait=false", *chosen))
        with pytest.raises(TestbedError, match=f"{part} pod .* on node n[12]"):
            deployment.generate(fortio.calls(LOAD, "measure"), tmp_path, 60)
        thread.join()
    finally:
        deployment.close()


def test_a_node_that_goes_in_a_run(bed: KubernetesTestbed, cluster: Cluster, tmp_path: Path):
    deployment = bed.deploy(NONE, LOAD, "echo")
    pods = cluster.get("-n", deployment.setup.namespace, "pods", "-l", "meshtrial.dev/part=load")
    (node,) = {p["spec"]["nodeName"] for p in pods["items"]}
    thread = during_load(lambda: cluster.kill_node(node))
    try:
        with pytest.raises(TestbedError, match=f"load pod .* on node {node} .*its node may be gone"):
            deployment.generate(fortio.calls(LOAD, "measure"), tmp_path, 120)
    finally:
        thread.join()
        cluster.start_node(node)
        deployment.close()
    assert one_run(bed, "none", tmp_path, FixedRate(rps=50, connections=2, duration_s=2)).failed == []


def test_a_foreign_namespace_of_the_same_name_is_left_alone(cluster: Cluster):
    cluster.kubectl("create", "namespace", "planted")
    cluster.kubectl("-n", "planted", "create", "configmap", "precious")
    before = cluster.get("namespace", "planted")["metadata"]
    try:
        with bed_on(cluster, namespace="planted") as bed:
            lines = bed.preflight(study("planted", "none"))
            assert any("namespace planted exists and was not made by meshtrial" in line for line in lines)
            with pytest.raises(TestbedError, match="was not made by meshtrial"):
                bed.deploy(NONE, LOAD, "echo")
        after = cluster.get("namespace", "planted")
        assert after["status"]["phase"] == "Active"
        assert after["metadata"]["labels"] == before["labels"]
        assert cluster.get("-n", "planted", "configmap", "precious")
    finally:
        cluster.delete_namespace("planted")


def test_another_sessions_namespace_is_refused(bed: KubernetesTestbed, cluster: Cluster):
    deployment = bed.deploy(NONE, LOAD, "echo")
    try:
        with bed_on(cluster, namespace=deployment.setup.namespace) as other:
            assert any("another session" in line for line in other.preflight(study("faults", "none")))
            with pytest.raises(TestbedError, match="belongs to another session"):
                other.deploy(NONE, LOAD, "echo")
        assert deployment.setup.namespace in owned_namespaces(cluster)
    finally:
        deployment.close()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"images": "fortio=meshtrial.test/nope:1"}, "ErrImageNeverPull"),
        ({"app_node_selector": "pool=nowhere"}, "unschedulable"),
        pytest.param({"app_memory": "200Gi"}, "unschedulable", marks=pytest.mark.wide),
    ],
)
def test_what_cannot_come_up_is_said_at_once(cluster: Cluster, changed: dict[str, str], words: str):
    options = options_for(cluster)["kubernetes"]
    images = {**options["images"], **({"fortio": "meshtrial.test/nope:1"} if "images" in changed else {})}
    more = {k: v for k, v in changed.items() if k != "images"}
    bed = KubernetesTestbed({"kubernetes": {**options, "namespace": "stuck", **more, "images": images}})
    began = time.monotonic()
    try:
        with pytest.raises(TestbedError) as caught:
            bed.deploy(NONE, LOAD, "echo")
        assert words in str(caught.value)
        assert time.monotonic() - began < 60
    finally:
        bed.close()
    assert not any(name.startswith("stuck") for name in owned_namespaces(cluster))


def test_a_quota_is_said(cluster: Cluster):
    cluster.kubectl("create", "namespace", "quota")
    try:
        # Set by an administrator, as quotas are.
        cluster.kubectl("label", "namespace", "quota", "meshtrial.dev/lent=true")
        cluster.kubectl("-n", "quota", "create", "quota", "few", "--hard=pods=1")
        with bed_on(cluster, namespace="quota") as bed, pytest.raises(TestbedError, match="exceeded quota"):
            bed.deploy(NONE, LOAD, "echo")
    finally:
        cluster.delete_namespace("quota")


def test_what_could_not_be_removed_in_its_time_goes_in_the_end(cluster: Cluster):
    with bed_on(cluster, namespace="late") as bed:
        bed.applier.namespace("late")
        made = bed.deploy(NONE, LOAD, "echo")
        assert made.setup.namespace == "late-2"
        made.close()
    assert not any(name.startswith("late") for name in owned_namespaces(cluster))


def test_preflight_says_what_is_missing(cluster: Cluster):
    with bed_on(cluster, helm="helm-that-is-not-there", app_node_selector="pool=nowhere") as bed:
        lines = "\n".join(bed.preflight(study("missing", "none", "istio+mtls")))
        assert "helm-that-is-not-there" in lines
        assert "no node takes the application" in lines
    big = FixedRate(rps=20_000, connections=400, duration_s=60, generators=200, replicas=200)
    with bed_on(cluster) as bed:
        lines = bed.preflight(study("scale-out", "none", load=big, app="tiers"))
        assert any("needs about 400" in line and "cores" in line for line in lines)
        assert any("room for" in line for line in lines)
