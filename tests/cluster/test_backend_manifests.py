"""The API server's validation of every manifest, the service account's rights, and 600 simulated pods."""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_backend_support import bed_on, one_run, options_for, study
from testcluster import Cluster, ClusterError, Istio, Kwok

from meshtrial import waiting
from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.envoy.keys import make_tokens
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import manifests, wait
from meshtrial.testbed.kubernetes.apply import Applier, Owner, delete_namespace
from meshtrial.testbed.kubernetes.client import Cluster as Api
from meshtrial.testbed.kubernetes.options import KubernetesOptions

FOLDER = KubernetesOptions().folder
FILES = [p for p in sorted(FOLDER.rglob("*.yaml")) if p.name != "mesh.yaml" and not p.name.startswith("values")]
# Groups whose CRDs come with other projects' charts; without the chart, files are rendered but not validated.
CHARTS = {"kuma.io": "kuma", "linkerd.io": "linkerd-crds", "consul.hashicorp.com": "consul"}


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    return Api(str(cluster.kubeconfig))


@pytest.fixture(scope="module")
def crds(cluster: Cluster, istio: Istio) -> Iterator[None]:
    """Return Istio's CRDs, those of the Gateway API, and those of the available charts."""
    cluster.kubectl("apply", "--server-side", "-f", str(istio.gateway_crds))
    for namespace in ("kuma-system", "meshtrial"):
        cluster.kubectl("create", "namespace", namespace)
    # The oldest supported Kubernetes suffices, because only CRDs are rendered.
    # Consul's chart has old copies of the Gateway API's CRDs, which are installed already.
    without = {"consul": ("--set", "connectInject.apiGateway.manageExternalCRDs=false")}
    rendered = [
        cluster.helm(
            "template", "crds", str(path), "--include-crds", "--kube-version", "1.34.0", *without.get(name, ())
        )
        for name, path in cluster.charts.items()
        if name in CHARTS.values()
    ]
    foreign = [item for text in rendered for item in yaml.safe_load_all(text) if item]
    foreign = [item for item in foreign if item["kind"] == "CustomResourceDefinition"]
    text = yaml.safe_dump_all(foreign)
    if foreign:
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    yield
    if foreign:
        cluster.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=text)
    for namespace in ("kuma-system", "meshtrial"):
        cluster.delete_namespace(namespace)
    cluster.kubectl("delete", "-f", str(istio.gateway_crds), "--ignore-not-found")


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(FOLDER)))
def test_the_api_server_takes_every_manifest_as_it_lies(cluster: Cluster, api: Api, path: Path):
    objects = manifests.read(path)
    groups = {item["apiVersion"].rpartition("/")[0] for item in objects}
    for suffix, chart in CHARTS.items():
        if chart not in cluster.charts and any(group.endswith(suffix) for group in groups):
            pytest.skip(f"not judged: the CRDs of {suffix} come with the chart {chart}, which is not here")
    # A bare pod needs its account and its namespace's objects at once; a dry run creates none.
    accounts = [item["metadata"]["name"] for item in objects if item["kind"] == "ServiceAccount"]
    accounts = accounts if any(item["kind"] == "Pod" for item in objects) else []
    made = {item["metadata"]["name"] for item in objects if item["kind"] == "Namespace"}
    standing = {item["metadata"]["name"] for item in cluster.get("namespaces")["items"]}
    with contextlib.ExitStack() as stack:
        for name in accounts:
            cluster.kubectl("create", "serviceaccount", name)
            stack.callback(cluster.kubectl, "delete", "serviceaccount", name)
        for name in made - standing:
            cluster.kubectl("create", "namespace", name)
            stack.callback(cluster.delete_namespace, name)
        Applier(api, Owner("dry-run")).apply(objects, dry_run=True)


def wait_for_policy(cluster: Cluster, account: Path) -> None:
    """The API server takes a moment to apply a new policy."""

    def refuses() -> bool:
        with contextlib.suppress(ClusterError):
            cluster.kubectl("--kubeconfig", str(account), "create", "--dry-run=server", "namespace", "intruder")
            return False
        return True

    assert waiting.until(refuses, 30, 0.2)


@contextlib.contextmanager
def account(cluster: Cluster, file: str, folder: Path) -> Iterator[Path]:
    """Return a kubeconfig that has only the service account of a file."""
    cluster.kubectl("apply", "-f", str(FOLDER / file))
    token = cluster.kubectl("-n", "meshtrial", "create", "token", "meshtrial", "--duration=1h").strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": "sa", "user": {"token": token}}]
    config["contexts"] = [{"name": "sa", "context": {"cluster": config["clusters"][0]["name"], "user": "sa"}}]
    config["current-context"] = "sa"
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    wait_for_policy(cluster, path)
    yield path
    cluster.kubectl("delete", "-f", str(FOLDER / file), "--ignore-not-found", timeout_s=90)


@pytest.fixture
def service_account(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The account that creates its own namespaces."""
    with account(cluster, "rbac.yaml", tmp_path) as path:
        yield path


@pytest.fixture
def borrower(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The account that borrows two namespaces."""
    with account(cluster, "rbac-least.yaml", tmp_path) as path:
        yield path


def test_a_study_borrows_the_namespaces_that_were_made_for_it(
    cluster: Cluster, istio: Istio, borrower: Path, images: Mapping[str, str], tmp_path: Path
):
    sees = ("--clusterrole=meshtrial-sees", "--serviceaccount=meshtrial:meshtrial")
    cluster.kubectl("-n", istio.namespace, "create", "rolebinding", "meshtrial", *sees)
    names = ("meshtrial-lent", "meshtrial-lent-probe")

    def words() -> list[dict[str, Any]]:
        metadata = [cluster.get("namespace", name)["metadata"] for name in names]
        return [{key: one.get(key) for key in ("labels", "annotations", "uid")} for one in metadata]

    before = words()
    with bed_on(cluster, kubeconfig=str(borrower), namespace=names[0], mesh_install="existing") as bed:
        assert bed.preflight(study("lent", "none", "istio+mtls")) == ()
        for treatment in ("none", "istio+mtls"):
            run = one_run(bed, treatment, tmp_path)
            assert run.failed == []
            assert run.extra["resources"]["missing"] == []
        assert words() != before
    assert words() == before
    kinds = "deployments,pods,services,configmaps,secrets,serviceaccounts,leases,peerauthentications"
    for name in names:
        assert cluster.kubectl("-n", name, "get", kinds, "-l", "meshtrial.dev/owner", "-o", "name") == ""

    def may(*arguments: str, stdin: str | None = None) -> bool:
        with contextlib.suppress(ClusterError):
            cluster.kubectl("--kubeconfig", str(borrower), *arguments, stdin=stdin)
            return True
        return False

    dry = ("create", "--dry-run=server", "-f", "-")
    assert may("-n", names[0], *dry, stdin=pod_of(images["busybox"]))
    assert not may("-n", names[0], *dry, stdin=pod_of(images["busybox"], hostPID=True))
    assert not may("-n", "default", *dry, stdin=pod_of(images["busybox"]))
    assert not may("create", "--dry-run=server", "namespace", "intruder")
    assert not may("get", "pods", "-A")
    assert not may("label", "--dry-run=server", "namespace", "default", "meshtrial.dev/lent=true")
    assert not may("-n", names[0], "get", "secrets")


def test_least_rights_are_enough(cluster: Cluster, istio: Istio, service_account: Path, tmp_path: Path):
    with bed_on(cluster, kubeconfig=str(service_account), namespace="least", mesh_install="existing") as bed:
        assert bed.preflight(study("least", "none", "sidecar+mtls", "istio+mtls")) == ()
        assert one_run(bed, "none", tmp_path).failed == []
        assert one_run(bed, "sidecar+mtls", tmp_path).failed == []
        run = one_run(bed, "istio+mtls", tmp_path)
        assert run.failed == []
        assert run.usage["istiod"].role == "control plane"
        assert run.extra["resources"]["missing"] == []
    api = Api(str(service_account))
    assert not api.allowed("delete", "pods", namespace="kube-system")
    assert not api.allowed("get", "secrets", namespace="kube-system")
    assert not api.allowed("create", "clusterroles", "rbac.authorization.k8s.io")


@pytest.fixture
def precious(cluster: Cluster, images: Mapping[str, str]) -> Iterator[str]:
    """A namespace of somebody else with a pod and a secret, and one of meshtrial's."""
    cluster.kubectl("create", "namespace", "precious")
    cluster.kubectl("create", "namespace", "least-own")
    cluster.kubectl("label", "namespace", "least-own", "app.kubernetes.io/managed-by=meshtrial")
    cluster.kubectl("-n", "precious", "create", "secret", "generic", "key", "--from-literal=key=secret")
    run = ("run", "theirs", f"--image={images['busybox']}", "--restart=Never", "--command", "--", "sleep", "600")
    cluster.kubectl("-n", "precious", *run)
    cluster.kubectl("-n", "precious", "wait", "--for=condition=Ready", "--timeout=60s", "pod/theirs", timeout_s=70)
    yield "precious"
    for name in ("precious", "least-own"):
        cluster.kubectl("delete", "namespace", name, "--wait=false")


def pod_of(image: str, **spec: Any) -> str:
    """Return a pod with more rights than a study's pods."""
    container = {"name": "x", "image": image, "command": ["sleep", "600"]} | spec.pop("container", {})
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [container], **spec}}
    return yaml.safe_dump(body)


def test_what_the_account_must_not_do_is_refused(
    cluster: Cluster, service_account: Path, precious: str, images: Mapping[str, str]
):
    def refusal(*arguments: str, stdin: str | None = None) -> str:
        """Return why a request is forbidden; empty if it succeeded."""
        try:
            cluster.kubectl("--kubeconfig", str(service_account), *arguments, stdin=stdin)
        except ClusterError as error:
            return str(error)
        return ""

    image, server = images["busybox"], "--dry-run=server"
    own, theirs = ("-n", "least-own", "create", server, "-f", "-"), ("-n", precious)
    host = {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}
    privileged = {"container": {"securityContext": {"privileged": True}}}
    label = "app.kubernetes.io/managed-by=meshtrial"
    may = [refusal(*own, stdin=pod_of(image)), refusal("get", "nodes"), refusal("-n", "least-own", "get", "events")]
    assert may == [""] * 3
    calls = {
        "a namespace that does not say whose it is": refusal("create", server, "namespace", "intruder"),
        "a namespace that is there is claimed": refusal("label", server, "namespace", precious, label),
        "a namespace of somebody else's is deleted": refusal("delete", server, "namespace", precious),
        "a pod beside theirs": refusal(*theirs, "create", server, "-f", "-", stdin=pod_of(image)),
        "a pod of the control plane": refusal("-n", "kube-system", "create", server, "-f", "-", stdin=pod_of(image)),
        "a command in their pod": refusal(*theirs, "exec", "theirs", "--", "true"),
        "their secret, by a patch that changes nothing": refusal(*theirs, "patch", "secret", "key", "-p", "{}"),
        "their secret": refusal(*theirs, "get", "secret", "key"),
        "an account with a token": refusal(*theirs, "create", server, "serviceaccount", "new"),
        "a pod on the node's network": refusal(*own, stdin=pod_of(image, hostNetwork=True)),
        "a pod that sees the node's processes": refusal(*own, stdin=pod_of(image, hostPID=True)),
        "a pod with the node's files": refusal(*own, stdin=pod_of(image, **host)),
        "a pod with every capability": refusal(*own, stdin=pod_of(image, **privileged)),
        "a kubelet through the API server": refusal("get", "--raw", "/api/v1/nodes/n1/proxy/pods"),
        "more rights": refusal("create", server, "clusterrole", "more", "--verb=get", "--resource=secrets"),
    }
    assert [call for call, why in calls.items() if not re.search("forbidden|denied request", why, re.IGNORECASE)] == []


def test_istio_that_somebody_else_runs(cluster: Cluster, istio: Istio, tmp_path: Path):
    with bed_on(cluster, namespace="foreign-mesh") as bed:
        lines = bed.preflight(study("foreign", "none", "istio+mtls"))
        assert any("namespace istio-system exists and was not made by meshtrial" in line for line in lines)
    with bed_on(cluster, namespace="foreign-mesh", mesh_install="existing") as bed:
        assert bed.preflight(study("foreign", "none", "istio+mtls")) == ()
        run = one_run(bed, "istio+mtls", tmp_path)
        assert run.failed == []
    assert cluster.get("-n", istio.namespace, "deployment", "istiod")["status"]["readyReplicas"] == 1


def test_rights_to_install_a_mesh_are_asked_for(cluster: Cluster, service_account: Path):
    with bed_on(cluster, kubeconfig=str(service_account), namespace="least") as bed:
        lines = bed.preflight(study("least", "none", "istio+mtls"))
        assert len(lines) == 1
        assert "no right to create clusterroles" in lines[0]
        assert "rbac-meshes.yaml" in lines[0]


def test_a_missing_right_is_one_line(cluster: Cluster, service_account: Path):
    api = Api(str(service_account))
    with pytest.raises(TestbedError, match=r"no right to do it .*kubectl apply -f manifests/rbac\.yaml"):
        api.get("/api/v1/namespaces/kube-system/secrets")


def test_scale_out_of_600_pods(cluster: Cluster, kwok: Kwok, api: Api):
    """Only bookkeeping: the pods are simulated, so nothing answers and no kubelet is read."""
    from meshtrial.testbed.kubernetes.apps import read_app
    from meshtrial.testbed.kubernetes.workload import Setup, render

    placed = {"node_selector": kwok.node_selector, "tolerations": kwok.tolerations}
    more = {f"{role}_{key}": value for role in ("app", "load") for key, value in placed.items()}
    options = KubernetesOptions.read(options_for(cluster, namespace="kwok600", load_separation="none", **more))
    load = FixedRate(rps=2000, connections=400, duration_s=10, generators=200, replicas=200)
    app = read_app(options, "tiers", ("http1",))
    rendered = render(Setup(options, "kwok600", Treatment.parse("none"), load, app, None, make_tokens()))
    assert rendered.app_pods + rendered.load_pods == 600
    owner = Owner("kwok")
    applier = Applier(api, owner)
    began = time.monotonic()
    try:
        applier.namespace("kwok600")
        applier.apply(rendered.objects)
        pods = wait.pods_ready(api, "kwok600", "", 600, 150)
        print(f"600 pods ready in {time.monotonic() - began:.1f} s")
        assert len(pods) == 600
        assert {p["spec"]["nodeName"] for p in pods} <= set(kwok.names)
    finally:
        delete_namespace(api, "kwok600", owner.id, 180)
