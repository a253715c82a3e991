"""The test cluster itself: what the other cluster tests take for granted is checked here."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from testcluster import Cluster, ClusterError, Istio, Kwok, host
from testcluster.settings import CONTROL_PLANE, HERE, KUBERNETES_VERSION, Layout


def eventually(what: str, condition: Callable[[], Any], timeout_s: float = 60) -> Any:
    """Retry until the answer is true; raise the last error if it never is."""
    deadline, last = time.monotonic() + timeout_s, "it stayed false"
    while time.monotonic() < deadline:
        try:
            if answer := condition():
                return answer
            last = "it stayed false"
        except (ClusterError, OSError, LookupError, ValueError) as error:
            last = str(error)
        time.sleep(0.3)
    raise AssertionError(f"{what}: not within {timeout_s:g} s; {last}")


def server(image: str, name: str, node: str = "", labels: Mapping[str, str] | None = None) -> str:
    """Manifest of a fortio server with a Service in front."""
    selector = {"slot": node} if node else {}
    pod = {
        "nodeSelector": selector,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "fortio",
                "image": image,
                "imagePullPolicy": "Never",
                "args": ["server", "-redirect-port", "disabled"],
                "ports": [{"containerPort": 8080}],
                "readinessProbe": {"httpGet": {"path": "/debug", "port": 8080}, "periodSeconds": 1},
            }
        ],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name, **(labels or {})}}, "spec": pod},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"type": "NodePort", "selector": {"app": name}, "ports": [{"name": "http", "port": 8080}]},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [deployment, service]})


def deploy(cluster: Cluster, namespace: str, manifest: str, *names: str) -> None:
    cluster.kubectl("-n", namespace, "apply", "-f", "-", stdin=manifest)
    for name in names:
        cluster.kubectl("-n", namespace, "rollout", "status", f"deployment/{name}", "--timeout=120s", timeout_s=130)


def answers(address: str) -> bool:
    """Whether the machine reaches a fortio server."""
    with urllib.request.urlopen(f"http://{address}/debug", timeout=5) as answer:
        return answer.status == 200


def curl(cluster: Cluster, namespace: str, client: str, url: str) -> str:
    """Call a URL inside a fortio pod; ClusterError if the call fails."""
    where = ("-n", namespace, "exec", f"deployment/{client}", "-c", "fortio", "--")
    return cluster.kubectl(*where, "fortio", "curl", "-timeout", "5s", url, timeout_s=30)


def summary(cluster: Cluster, node: str, namespace: str) -> dict[str, dict[str, Any]]:
    """Return the containers of a namespace by name, from the kubelet's summary."""
    text = cluster.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary")
    pods = [pod for pod in json.loads(text)["pods"] if pod["podRef"]["namespace"] == namespace]
    return {container["name"]: container for pod in pods for container in pod["containers"]}


def running_pods(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    return [pod for pod in cluster.get("pods", "-n", namespace)["items"] if pod["status"]["phase"] == "Running"]


def test_two_nodes_are_ready(cluster: Cluster) -> None:
    nodes = {node["metadata"]["name"]: node for node in cluster.get("nodes")["items"]}
    assert set(nodes) == {"n1", "n2"}
    for node in nodes.values():
        conditions = {entry["type"]: entry["status"] for entry in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        assert node["status"]["nodeInfo"]["kubeletVersion"] == f"v{KUBERNETES_VERSION}"
    assert (
        json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"] == f"v{KUBERNETES_VERSION}"
    )


def test_every_image_is_on_every_node(cluster: Cluster, images: Mapping[str, str]) -> None:
    assert {"pause", "coredns", "fortio", "envoy", "istio-pilot", "istio-proxyv2", "busybox"} <= set(images)

    def absent() -> dict[str, set[str]]:
        nodes = cluster.get("nodes")["items"]
        lists = {node["metadata"]["name"]: node["status"]["images"] for node in nodes}
        # An image without a name, because a newer image has it.
        have = {node: {name for image in found for name in image["names"] or ()} for node, found in lists.items()}
        return {node: {*images.values(), *cluster.mesh_images} - names for node, names in have.items()}

    # The kubelet reports its images about every 10 s, after the import.
    eventually("images in the nodes' status", lambda: not any(absent().values()), 60)


def test_a_cluster_of_another_home_is_named_while_it_lives(cluster: Cluster, tmp_path: Path) -> None:
    assert [line for line in host.reasons(Layout(tmp_path)) if str(cluster.layout.home) in line]


def test_a_killed_cluster_of_another_home_is_known_by_its_empty_namespaces(cluster: Cluster, tmp_path: Path) -> None:
    other = Layout(tmp_path / "killed")
    file = other.netns(CONTROL_PLANE)
    file.parent.mkdir(parents=True)
    file.touch()
    subprocess.run(["unshare", f"--net={file}", "true"], check=True)
    try:
        assert other in host.other_homes(cluster.layout)
        assert not host.inhabited(other)
        with subprocess.Popen(["nsenter", f"--net={file}", "sleep", "60"]) as guest:
            eventually("a process in it", lambda: host.inhabited(other))
            guest.kill()
        assert not host.inhabited(other)
    finally:
        subprocess.run(["umount", file], check=True)
    assert other not in host.other_homes(cluster.layout)


def test_keys_are_private(cluster: Cluster) -> None:
    # Files in containers are ignored: a running mesh also has keys, and a mount namespace around them.
    theirs = tuple(cluster.layout.run / node / "containerd" for node in cluster.nodes)
    found = [*cluster.layout.run.rglob("*.key"), *cluster.layout.run.rglob("*kubeconfig")]
    keys = [path for path in found if not any(path.is_relative_to(folder) for folder in theirs)]
    assert len(keys) > 10
    assert [path for path in keys if path.stat().st_mode & 0o077] == []


def test_tools_by_hand_take_their_own_options_first(cluster: Cluster) -> None:
    script = HERE / "cluster"
    done = subprocess.run(
        [script, "kubectl", "-n", "kube-system", "get", "pods", "-o", "name"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pod/coredns-" in done.stdout


def test_services_dns_exec_logs_and_node_ports(cluster: Cluster, namespace: str, images: Mapping[str, str]) -> None:
    deploy(cluster, namespace, server(images["fortio"], "near", "n1"), "near")
    deploy(cluster, namespace, server(images["fortio"], "far", "n2"), "far")
    for url in ("http://far:8080/debug", f"http://far.{namespace}.svc.cluster.local:8080/debug"):
        # Not at the first try: kube-proxy follows a new Service within a second or two, and up to a minute later where
        # a test before this one killed the API server (client-go waits that long before it watches again).
        eventually(f"an answer from {url}", lambda url=url: "GET /debug" in curl(cluster, namespace, "near", url), 90)
    with pytest.raises(ClusterError, match=r"lookup nobody on 10\.96\.0\.10"):
        curl(cluster, namespace, "near", "http://nobody:8080/")
    assert "fortio" in cluster.kubectl("-n", namespace, "logs", "deployment/far").lower()
    port = cluster.get("service", "far", "-n", namespace)["spec"]["ports"][0]["nodePort"]
    pod = running_pods(cluster, namespace)[0]["status"]["podIP"]
    for address in (f"{cluster.address('n1')}:{port}", f"{cluster.address('n2')}:{port}", f"{pod}:8080"):
        eventually(f"an answer from {address}", lambda address=address: answers(address), 90)  # each node has its proxy


def test_summary_has_cpu_and_memory_of_each_container(
    cluster: Cluster, namespace: str, images: Mapping[str, str]
) -> None:
    deploy(cluster, namespace, server(images["fortio"], "web", "n1"), "web")
    before = eventually("web in the summary", lambda: summary(cluster, "n1", namespace)["fortio"]["cpu"])
    where = ("-n", namespace, "exec", "deployment/web", "--", "fortio", "load", "-quiet", "-t", "3s", "-qps", "0")
    cluster.kubectl(*where, "http://127.0.0.1:8080/")

    def used() -> bool:
        now = summary(cluster, "n1", namespace)["fortio"]
        assert now["memory"]["workingSetBytes"] > 1 << 20
        # A full-speed run on both ends in one container: the kubelet must report it within seconds.
        return now["cpu"]["usageCoreNanoSeconds"] - before["usageCoreNanoSeconds"] > 5e8

    eventually("half a CPU second of load in the summary", used, 30)


def test_envoy_image_runs(cluster: Cluster, namespace: str, images: Mapping[str, str]) -> None:
    cluster.kubectl("-n", namespace, "run", "envoy", f"--image={images['envoy']}", "--restart=Never", "--", "--version")
    log = eventually("envoy's answer", lambda: cluster.kubectl("-n", namespace, "logs", "envoy"))
    assert images["envoy"].rpartition(":")[2] in log


def test_busybox_image_has_a_shell(cluster: Cluster, namespace: str, images: Mapping[str, str]) -> None:
    run = ("run", "shell", f"--image={images['busybox']}", "--restart=Never", "--", "sh", "-c", "cat /etc/resolv.conf")
    cluster.kubectl("-n", namespace, *run)
    assert "svc.cluster.local" in eventually("output", lambda: cluster.kubectl("-n", namespace, "logs", "shell"))


def test_a_claim_gets_a_volume_that_its_group_may_write_and_nothing_stays(
    cluster: Cluster, namespace: str, images: Mapping[str, str]
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    shell = {"name": "shell", "image": images["busybox"], "imagePullPolicy": "Never"}
    shell |= {"args": ["sh", "-c", "echo kept > /data/file && cat /data/file"]}
    shell |= {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "writer"},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsUser": 100, "runAsGroup": 1000, "fsGroup": 1000},
            "containers": [shell],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }
    with cluster.volumes(2):
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": [claim, pod]})
        cluster.kubectl("-n", namespace, "apply", "-f", "-", stdin=items)
        assert eventually("output", lambda: cluster.kubectl("-n", namespace, "logs", "writer")).strip() == "kept"
        cluster.kubectl("-n", namespace, "delete", "pod/writer", "pvc/data", "--wait", "--timeout=60s", timeout_s=70)
    assert cluster.get("storageclasses")["items"] == cluster.get("persistentvolumes")["items"] == []
    assert list(cluster.layout.run.glob("n1/kubelet/claimed")) == []


def test_pods_outlive_a_killed_api_server(cluster: Cluster, namespace: str, images: Mapping[str, str]) -> None:
    deploy(cluster, namespace, server(images["fortio"], "web"), "web")
    (pod,) = running_pods(cluster, namespace)
    with cluster.api_server_down():
        with pytest.raises(ClusterError):
            cluster.kubectl("get", "nodes", timeout_s=10)
        assert answers(f"{pod['status']['podIP']}:8080")
    (after,) = running_pods(cluster, namespace)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_killed_node_comes_back(cluster: Cluster, namespace: str, images: Mapping[str, str]) -> None:
    deploy(cluster, namespace, server(images["fortio"], "web", "n2"), "web")
    (pod,) = running_pods(cluster, namespace)
    container = pod["status"]["containerStatuses"][0]["containerID"]
    cluster.kill_node("n2")
    try:
        with pytest.raises(OSError):  # noqa: PT011  refused, reset or unreachable: no answer is all that matters
            urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080/debug", timeout=2)
    finally:
        cluster.start_node("n2")

    def back() -> bool:
        (again,) = running_pods(cluster, namespace)
        new = again["status"]["containerStatuses"][0]["containerID"] != container
        return new and answers(f"{again['status']['podIP']}:8080")

    eventually("an answer from the node that came back", back, 90)


def test_600_pretended_pods_get_ready(cluster: Cluster, kwok: Kwok, namespace: str) -> None:
    assert len(kwok.names) == 20
    for tier in ("front", "middle", "back"):
        spec = {
            "nodeSelector": kwok.node_selector,
            "tolerations": kwok.tolerations,
            "containers": [{"name": "app", "image": "pretended", "resources": {"requests": {"cpu": "100m"}}}],
        }
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": tier},
            "spec": {
                "replicas": 200,
                "selector": {"matchLabels": {"app": tier}},
                "template": {"metadata": {"labels": {"app": tier}}, "spec": spec},
            },
        }
        cluster.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(deployment))
    for tier in ("front", "middle", "back"):
        rollout = ("rollout", "status", f"deployment/{tier}", "--timeout=300s")
        cluster.kubectl("-n", namespace, *rollout, timeout_s=310)
    pods = running_pods(cluster, namespace)
    assert len(pods) == 600
    assert {pod["spec"]["nodeName"] for pod in pods} <= set(kwok.names)
    assert len({pod["status"]["podIP"] for pod in pods}) == 600

    created = max(node["metadata"]["creationTimestamp"] for node in cluster.get("nodes", "-l", "type=kwok")["items"])
    long_after = datetime.fromisoformat(created) + timedelta(seconds=10)

    def heard() -> bool:
        nodes = cluster.get("nodes", "-l", "type=kwok")["items"]
        ready = [next(c for c in node["status"]["conditions"] if c["type"] == "Ready") for node in nodes]
        assert {condition["status"] for condition in ready} == {"True"}
        return all(datetime.fromisoformat(condition["lastHeartbeatTime"]) > long_after for condition in ready)

    # A node that is silent for 50 s is NotReady with its pods, so nodes must report long before that.
    eventually("a second heartbeat of every pretended node", heard, 40)


@pytest.fixture
def mesh_namespace(cluster: Cluster, istio: Istio, namespace: str) -> str:
    cluster.kubectl("label", "namespace", namespace, "istio-injection=enabled")
    return namespace


@pytest.fixture
def outside(cluster: Cluster, istio: Istio) -> Any:
    name = "outside-the-mesh"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.delete_namespace(name)


def test_istio_injects_a_sidecar_that_is_measured(
    cluster: Cluster, istio: Istio, mesh_namespace: str, images: Mapping[str, str]
) -> None:
    deploy(cluster, mesh_namespace, server(images["fortio"], "web", "n1"), "web")
    (pod,) = running_pods(cluster, mesh_namespace)
    sidecars = {entry["name"]: entry["image"] for entry in pod["spec"]["initContainers"]}
    assert sidecars["istio-proxy"] == images["istio-proxyv2"]
    eventually("istio-proxy in the summary", lambda: summary(cluster, "n1", mesh_namespace)["istio-proxy"]["cpu"])
    control = [summary(cluster, node, istio.namespace) for node in cluster.nodes]
    assert any("discovery" in containers for containers in control)


def test_strict_mtls_refuses_plaintext_from_outside(
    cluster: Cluster, mesh_namespace: str, outside: str, images: Mapping[str, str]
) -> None:
    for name, node in (("web", "n1"), ("client", "n2")):
        deploy(cluster, mesh_namespace, server(images["fortio"], name, node), name)
    deploy(cluster, outside, server(images["fortio"], "client", "n2"), "client")
    url = f"http://web.{mesh_namespace}.svc.cluster.local:8080/debug"
    # First without STRICT, so that a refusal cannot be a broken network.
    eventually("plaintext before STRICT", lambda: "GET /debug" in curl(cluster, outside, "client", url))
    policy = {
        "apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication",
        "metadata": {"name": "default", "namespace": mesh_namespace},
        "spec": {"mtls": {"mode": "STRICT"}},
    }
    cluster.apply(json.dumps(policy))

    def refused() -> bool:
        try:
            curl(cluster, outside, "client", url)
        except ClusterError:
            return True
        return False

    eventually("refusal of plaintext", refused, 60)
    time.sleep(2)
    assert refused()
    inside = curl(cluster, mesh_namespace, "client", url)
    assert "GET /debug" in inside
    assert f"spiffe://cluster.local/ns/{mesh_namespace}/sa/default" in inside  # the identity that the server saw
