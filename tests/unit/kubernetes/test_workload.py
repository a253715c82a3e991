import json
from pathlib import Path

import pytest
import yaml
from refused import refused
from unit.kubernetes.rendering import LOAD, TOKENS, carrying, find, kinds, render

from meshtrial.design.study import Load, Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import manifests, workload
from meshtrial.testbed.kubernetes.apps import note, read_app
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions


def test_none_has_no_proxy_and_generators_on_other_nodes():
    rendered = render("none")
    assert rendered.namespace_labels == {}
    assert rendered.target.url == "http://echo.trial.svc.cluster.local:8080/echo"
    assert rendered.target.headers == ()
    pod = find(rendered, "Deployment", "load")["spec"]["template"]["spec"]
    assert [c["name"] for c in pod["containers"]] == ["fortio"]
    (away,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert away["labelSelector"]["matchLabels"] == {"meshtrial.dev/part": "app"}
    # From both sides: for the other's rule alone a scheduler does not look again.
    app = find(rendered, "Deployment", "echo")["spec"]["template"]
    (back,) = app["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert back["labelSelector"]["matchLabels"] == {"meshtrial.dev/part": "load"}
    assert app["metadata"]["labels"]["meshtrial.dev/part"] == "app"
    assert all(o["metadata"]["namespace"] == "trial" for o in rendered.objects)
    assert (rendered.app_pods, rendered.load_pods) == (1, 1)


def test_a_treatment_without_mtls_is_really_without_it():
    off, on = render("istio"), render("istio+mtls")
    assert find(off, "PeerAuthentication", "default")["spec"]["mtls"] == {"mode": "DISABLE"}
    assert find(off, "DestinationRule", "plaintext")["spec"]["host"] == "*.trial.svc.cluster.local"
    assert find(on, "PeerAuthentication", "default")["spec"]["mtls"] == {"mode": "STRICT"}
    assert "DestinationRule/plaintext" not in kinds(on)
    assert on.namespace_labels == {"istio-injection": "enabled"}


def test_proxies_have_equal_limits_whoever_installed_the_mesh():
    pods = [o["spec"]["template"] for o in render("istio+mtls").objects if o["kind"] == "Deployment"]
    assert len(pods) == 2
    for pod in pods:
        notes = pod["metadata"]["annotations"]
        assert notes["sidecar.istio.io/proxyCPULimit"] == "2"
        assert (
            "downstream_rq_total"
            in yaml.safe_load(notes["proxy.istio.io/config"])["proxyStatsMatcher"]["inclusionRegexps"][0]
        )
    free = render("istio+mtls", options=KubernetesOptions(proxy_cpu=""))
    notes = find(free, "Deployment", "echo")["spec"]["template"]["metadata"]["annotations"]
    assert "sidecar.istio.io/proxyCPULimit" not in notes


@pytest.mark.parametrize("feature", ["jwt", "jwt-filter"])
def test_jwt_carries_run_time_keys_and_a_token(feature: str):
    rendered = render(f"istio+mtls+{feature}")
    text = json.dumps(list(rendered.objects))
    assert TOKENS.jwks["keys"][0]["n"] in text
    assert "https://issuer.meshtrial.test" in text
    assert rendered.target.headers == TOKENS.headers
    assert TOKENS.good not in text


def test_kuma_jwt_filter_is_whole():
    patch = find(render("kuma+mtls+jwt"), "MeshProxyPatch", "jwt")["spec"]["default"]["appendModifications"][0]
    value = yaml.safe_load(patch["httpFilter"]["value"])
    assert value["name"] == "envoy.filters.http.jwt_authn"
    assert TOKENS.jwks["keys"][0]["n"] in json.dumps(value)


def test_opa_joins_every_application_pod():
    rendered = render("istio+mtls+opa", options=KubernetesOptions(opa_server="opa-extauthz"))
    app = find(rendered, "Deployment", "echo")["spec"]["template"]
    assert [c["name"] for c in app["spec"]["containers"]] == ["echo", "opa"]
    assert app["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeInboundPorts"] == "8282"
    data = json.loads(find(rendered, "ConfigMap", "opa-policy")["data"]["data.json"])
    assert data["jwks"] == TOKENS.jwks
    assert rendered.policy_counter is not None
    load = find(rendered, "Deployment", "load")["spec"]["template"]["spec"]
    assert [c["name"] for c in load["containers"]] == ["fortio"]


def test_the_policy_is_the_one_of_the_local_backend():
    policy = find(render("istio+mtls+opa"), "ConfigMap", "opa-policy")["data"]["policy.rego"]
    folder = KubernetesOptions().folder.parent / "lib" / "native" / "opa-extauthz"
    local = (folder / "policy.rego").read_text()
    assert policy.strip() == local[local.index("package") :].strip()


def test_reference_sidecar_stands_beside_app_and_generator():
    rendered = render("sidecar+mtls")
    assert rendered.target.url == "http://127.0.0.1:15001/echo"
    for name in ("echo", "load"):
        pod = find(rendered, "Deployment", name)["spec"]["template"]["spec"]
        envoy = next(c for c in pod["containers"] if c["name"] == "envoy")
        assert envoy["resources"]["limits"] == {"cpu": "2", "memory": "512Mi"}
    app = find(rendered, "Deployment", "echo")["spec"]["template"]["spec"]["containers"][0]
    assert "-http-port=127.0.0.1:8080" in app["args"]
    assert app["readinessProbe"] == {"tcpSocket": {"port": 15006}, "periodSeconds": 1}
    assert all(p["targetPort"] == 15006 for p in find(rendered, "Service", "echo")["spec"]["ports"])
    secret = find(rendered, "Secret", "envoy-server-keys")
    assert "PRIVATE KEY" in secret["stringData"]["tls.key"]
    config = yaml.safe_load(find(rendered, "ConfigMap", "envoy-server")["data"]["envoy.yaml"])
    chain = config["static_resources"]["listeners"][0]["filter_chains"][0]
    assert chain["transport_socket"]["typed_config"]["require_client_certificate"] is True


def test_reference_sidecar_without_mtls_has_no_keys():
    rendered = render("sidecar")
    assert not any(o["kind"] == "Secret" for o in rendered.objects)
    config = yaml.safe_load(find(rendered, "ConfigMap", "envoy-client")["data"]["envoy.yaml"])
    assert "transport_socket" not in config["static_resources"]["clusters"][0]


def test_tiers_grow_together():
    load = Load(rps=2000, connections=40, duration_s=5, generators=2, replicas=200)
    rendered = render("istio+mtls", app="tiers", load=load)
    assert (rendered.app_pods, rendered.load_pods) == (400, 200)
    client = find(rendered, "Deployment", "client")["spec"]["template"]["spec"]["containers"][0]
    assert any("server.trial.svc.cluster.local" in a for a in client["args"])


def test_one_endpoint_a_tier_is_a_size_too():
    rendered = render("none", app="tiers", load=Load(rps=10, connections=4, duration_s=5))
    assert (rendered.app_pods, rendered.load_pods) == (2, 1)


def test_the_tiers_hold_as_long_as_asked():
    rendered = render("none", app="tiers", options=KubernetesOptions(hold_ms=20))
    args = " ".join(find(rendered, "Deployment", "client")["spec"]["template"]["spec"]["containers"][0]["args"])
    assert args.count("delay=20ms") == 2
    assert "delay=100ms" not in args


def test_scoped_configuration_is_for_the_tiers():
    rendered = render("istio+mtls+scoped", app="tiers")
    assert {"Sidecar/load", "Sidecar/client", "Sidecar/server"} <= kinds(rendered)
    assert find(rendered, "Sidecar", "load")["spec"]["egress"] == [{"hosts": ["./client.trial.svc.cluster.local"]}]
    assert "Sidecar/load" not in kinds(render("istio+mtls", app="tiers"))


def test_a_mixed_load_has_a_target_for_each_protocol():
    target = render("istio+mtls", load=carrying("mixed")).target
    assert target.url == "http://echo.trial.svc.cluster.local:8080/echo"
    assert target.grpc == "echo.trial.svc.cluster.local:8079"


def test_generators_stay_on_their_hosts():
    chosen = KubernetesOptions()
    app = read_app(chosen, "echo", ("http1",))
    setup = workload.Setup(chosen, "trial", Treatment.parse("none"), LOAD, app, None, None, load_hosts=("n1", "n2"))
    rendered = workload.render(setup)
    term = find(rendered, "Deployment", "load")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (one,) = term["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert one["matchExpressions"][0]["values"] == ["n1", "n2"]
    assert "nodeAffinity" not in str(find(rendered, "Deployment", "echo"))


def test_several_generators_are_several_pods():
    assert render("none", load=Load(rps=100, connections=4, duration_s=5, generators=3)).load_pods == 3


@pytest.mark.parametrize("app", ["echo", "tiers", "details", "bookinfo", "emojivoto", "counter-api"])
def test_every_app_renders_for_every_mesh(app: str):
    for name, mesh in find_meshes(KubernetesOptions()).items():
        if not mesh.reference:
            assert render(name, app=app).target.url.startswith("http://")


ONE_HOP = "treatment sidecar: the reference sidecar has one hop of HTTP, not bookinfo's"
L7_APPS = "treatment consul+l7: l7 is for the app echo, counter-api, details, details-nodelay, not bookinfo"
BOTH_WAYS = "treatment linkerd+authz+authz-route: authz and authz-route exclude each other; take one"
APPS = "bookinfo, counter-api, details, details-nodelay, echo, emojivoto, tiers"


@pytest.mark.parametrize(
    ("text", "app", "protocol", "words"),
    [
        ("none+mtls", "echo", "http1", "treatment none+mtls: none has no features on Kubernetes"),
        ("sidecar", "bookinfo", "http1", ONE_HOP),
        ("istio+mtls+scoped", "echo", "http1", "treatment istio+mtls+scoped: scoped is for the app tiers, not echo"),
        ("consul+l7", "bookinfo", "http1", L7_APPS),
        ("linkerd+authz+authz-route", "echo", "http1", BOTH_WAYS),
        ("none", "details", "grpc", "app details: speaks http1, not grpc"),
        ("none", "details", "mixed", "app details: speaks http1, not http1 and grpc"),
        ("none", "shop", "http1", f"app = 'shop': allowed on Kubernetes is {APPS}"),
    ],
)
def test_what_does_not_go_together_is_refused(text: str, app: str, protocol: str, words: str):
    with refused(UsageError, words):
        render(text, app, carrying(protocol))


def test_grpc_target_is_an_address():
    assert render("none", load=carrying("grpc")).target.url == "echo.trial.svc.cluster.local:8079"


def test_images_are_replaced_everywhere():
    options = KubernetesOptions(images={"fortio": "r.test/f:1", "busybox": "r.test/b:1"}, image_pull_policy="Never")
    rendered = render("none", options=options)
    assert rendered.images == ("r.test/b:1", "r.test/f:1")


def mesh_folder(folder: Path, **changed: object) -> KubernetesOptions:
    data = {
        "schema": "meshtrial.mesh/1",
        "name": "tiny",
        "title": "A mesh of a test",
        "version": "1",
        "namespaces": ["tiny-system"],
        "releases": [{"name": "tiny", "path": "/charts/tiny", "namespace": "tiny-system"}],
        "proxy_containers": ["tiny-proxy"],
        "base": ["base.yaml"],
        "features": {"mtls": {"manifests": ["mtls.yaml"], "absent": [], "proofs": ["plaintext-refused"]}},
    }
    base = [
        {
            "apiVersion": "tiny/v1",
            "kind": "Realm",
            "metadata": {"name": "trial", "namespace": "tiny-system"},
            "spec": {},
        },
        {"apiVersion": "tiny/v1", "kind": "Route", "metadata": {"name": "app"}, "spec": {"to": "x", "port": 1}},
    ]
    mtls = [{**base[0], "spec": {"mtls": True}}, {**base[1], "kind": "Other", "metadata": {"name": "more"}}]
    folder.mkdir()
    (folder / "mesh.yaml").write_text(yaml.safe_dump(data | changed))
    (folder / "base.yaml").write_text(yaml.safe_dump_all(base))
    (folder / "mtls.yaml").write_text(yaml.safe_dump_all(mtls))
    return KubernetesOptions(mesh_folders=(str(folder),))


def test_a_features_object_takes_the_place_of_the_bases(tmp_path: Path):
    options = mesh_folder(tmp_path / "tiny")
    without, with_it = render("tiny", options=options), render("tiny+mtls", options=options)
    assert find(without, "Realm", "trial")["spec"] == {}
    assert find(with_it, "Realm", "trial")["spec"] == {"mtls": True}
    # In its place: what leans on it comes behind it, and it is applied once.
    assert [o["kind"] for o in with_it.objects][:3] == ["Realm", "Route", "Other"]


def test_run_time_values_reach_the_objects_that_are_named(tmp_path: Path):
    settings = [
        {"kind": "Route", "name": "app", "path": "spec.to", "value": "service"},
        {"kind": "Route", "name": "app", "path": "spec.port", "value": "http_port"},
        {"kind": "Route", "name": "app", "path": "metadata.name", "value": "service_account"},
    ]
    route = find(render("tiny", options=mesh_folder(tmp_path / "tiny", settings=settings)), "Route", "echo")
    assert route["spec"] == {"to": "echo", "port": 8080}
    wrong = mesh_folder(tmp_path / "wrong", settings=[{**settings[0], "name": "gone"}])
    with refused(UsageError, "mesh tiny: there is no Route gone to set service in"):
        render("tiny", options=wrong)


def test_a_sidecar_that_signs_on_gets_its_accounts_token(tmp_path: Path):
    plain = render("tiny", options=mesh_folder(tmp_path / "plain"))
    signing = render("tiny", options=mesh_folder(tmp_path / "signing", enrol={"service_account_token": True}))
    for name in ("echo", "load"):
        assert find(plain, "Deployment", name)["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
        assert find(signing, "Deployment", name)["spec"]["template"]["spec"]["automountServiceAccountToken"] is True


@pytest.mark.parametrize(
    ("protocol", "wanted"), [("http1", ["http", "grpc"]), ("h2", ["http2", "grpc"]), ("grpc", ["http", "grpc"])]
)
def test_ports_say_what_they_carry(protocol: str, wanted: list[str], tmp_path: Path):
    load = carrying(protocol)
    ports = find(render("none", load=load), "Service", "echo")["spec"]["ports"]
    assert [port["appProtocol"] for port in ports] == wanted
    quiet = mesh_folder(tmp_path / "quiet", app_protocols={"http1": "", "h2": "kubernetes.io/h2c"})
    ports = find(render("tiny", load=load, options=quiet), "Service", "echo")["spec"]["ports"]
    first = {"http1": None, "h2": "kubernetes.io/h2c", "grpc": None}[protocol]
    assert [port.get("appProtocol") for port in ports] == [first, "grpc"]


def test_a_protocol_that_a_mesh_does_not_carry_is_refused(tmp_path: Path):
    with refused(UsageError, "treatment tiny: tiny carries http1, h2 here, not grpc"):
        render("tiny", load=carrying("grpc"), options=mesh_folder(tmp_path / "tiny", protocols=["http1", "h2"]))


def test_what_nothing_can_prove_on_an_app_is_refused_before_the_study(tmp_path: Path):
    blind = {"mtls": {"manifests": ["mtls.yaml"], "proofs": ["peer-identity"], "expect": {"header": "x"}}}
    options = mesh_folder(tmp_path / "blind", features=blind)
    assert render("tiny+mtls", options=options)
    words = "nothing can prove that it is {} mtls on the app details; take the app echo, which answers with the "
    words += "request's headers"
    with refused(UsageError, f"treatment tiny+mtls: {words.format('with')}"):
        render("tiny+mtls", app="details", options=options)
    off = {"mtls": {**blind["mtls"], "absent": ["base.yaml"], "absent_proofs": ["no-peer-identity"]}}
    options = mesh_folder(tmp_path / "off", features=off)
    with refused(UsageError, f"treatment tiny: {words.format('without')}"):
        render("tiny", app="details", options=options)


@pytest.mark.parametrize("path", sorted((KubernetesOptions().folder / "apps").glob("*.yaml")), ids=lambda p: p.stem)
def test_no_probe_asks_the_path_that_is_measured(path: Path):
    objects = manifests.read(path)
    asked = {
        c["readinessProbe"]["httpGet"]["path"]
        for o in objects
        for c in manifests.containers(o)
        if "httpGet" in c.get("readinessProbe", {})
    }
    (entry,) = [o for o in objects if note(o, "entry") == "true"]
    assert not asked & {note(entry, "path"), note(entry, "headers-path"), "/echo"}


# The runner stands in a namespace of its own, which no mesh enrols.
DEPLOYED = [p for p in sorted(KubernetesOptions().folder.glob("*/*.yaml")) if p.parent.name != "runner"]


@pytest.mark.parametrize("path", DEPLOYED, ids=lambda p: p.stem)
def test_a_meshs_init_container_may_be_root(path: Path):
    for item in manifests.read(path):
        pod = manifests.template(item)
        if pod is not None:
            assert "runAsNonRoot" not in pod["spec"].get("securityContext", {})
