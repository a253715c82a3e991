from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from refused import refused
from unit.kubernetes.rendering import carrying, find, images_of, kinds, render, write_mesh

from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import manifests, workload
from meshtrial.testbed.kubernetes.apps import note
from meshtrial.testbed.kubernetes.meshdata import find_meshes
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
    # In both directions, because a scheduler does not recheck for the other's rule alone.
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


@pytest.mark.parametrize("in_version", [False, True])
def test_the_users_labels_enrol_a_namespace_instead_of_the_meshs(in_version: bool):
    override: dict[str, object] = {"namespace_labels": {"istio.io/rev": "asm-1-29"}}
    meshes = {"istio": {"versions": {"1.29": override}} if in_version else override}
    name = "istio@1.29" if in_version else "istio"
    mesh = find_meshes(KubernetesOptions(meshes=meshes, mesh_install="existing"))[name]
    setup = render("istio").setup
    assert workload.render(replace(setup, mesh=mesh)).namespace_labels == {"istio.io/rev": "asm-1-29"}


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


def test_the_policy_is_the_one_of_the_local_backend():
    policy = find(render("istio+mtls+opa"), "ConfigMap", "opa-policy")["data"]["policy.rego"]
    folder = KubernetesOptions().folder.parent / "lib" / "native" / "opa-extauthz"
    local = (folder / "policy.rego").read_text()
    assert policy.strip() == local[local.index("package") :].strip()


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


def test_generators_stay_on_their_hosts():
    nodes = workload.NodeAssignment(("n1", "n2"))
    rendered = workload.render(replace(render("none").setup, nodes=nodes))
    term = find(rendered, "Deployment", "load")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (one,) = term["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert one["matchExpressions"][0]["values"] == ["n1", "n2"]
    assert "nodeAffinity" not in str(find(rendered, "Deployment", "echo"))


@pytest.mark.parametrize("app", ["echo", "tiers", "details", "bookinfo", "emojivoto", "counter-api", "two-versions"])
def test_every_app_renders_for_every_mesh(app: str):
    for name, mesh in find_meshes(KubernetesOptions()).items():
        if not mesh.reference:
            assert render(name, app=app).target.url.startswith("http://")


@pytest.mark.parametrize(
    ("text", "app", "protocol"),
    [
        ("none+mtls", "echo", "http1"),
        ("sidecar", "bookinfo", "http1"),
        ("istio+mtls+scoped", "echo", "http1"),
        ("consul+l7", "bookinfo", "http1"),
        ("linkerd+authz+authz-route", "echo", "http1"),
        ("none", "details", "grpc"),
        ("none", "details", "mixed"),
        ("none", "shop", "http1"),
    ],
)
def test_what_does_not_go_together_is_refused(text: str, app: str, protocol: str):
    with refused(UsageError):
        render(text, app, carrying(protocol))


def test_images_are_replaced_everywhere():
    options = KubernetesOptions(images={"fortio": "r.test/f:1", "busybox": "r.test/b:1"}, image_pull_policy="Never")
    rendered = render("none", options=options)
    assert images_of(rendered) == {"r.test/b:1", "r.test/f:1"}


def mesh_folder(folder: Path, **changed: object) -> KubernetesOptions:
    return KubernetesOptions(mesh_folders=(str(write_mesh(folder, **changed)),))


def test_a_features_object_takes_the_place_of_the_bases(tmp_path: Path):
    options = mesh_folder(tmp_path / "tiny")
    without, with_it = render("tiny", options=options), render("tiny+mtls", options=options)
    assert find(without, "Realm", "trial")["spec"] == {}
    assert find(with_it, "Realm", "trial")["spec"] == {"mtls": True}
    # In its position: dependent objects follow it, and it is applied once.
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
    with refused(UsageError):
        render("tiny", options=wrong)


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
    with refused(UsageError):
        render("tiny", load=carrying("grpc"), options=mesh_folder(tmp_path / "tiny", protocols=["http1", "h2"]))


def test_new_connections_are_http_on_a_port_that_says_bytes():
    load = replace(carrying("tcp"), keepalive=False)
    for treatment in ("none", "istio+mtls"):
        rendered = render(treatment, load=load)
        assert {rendered.target.url, rendered.direct, rendered.inside} == {"http://echo.trial.svc.cluster.local:8078"}
        (port,) = find(rendered, "Service", "echo")["spec"]["ports"]
        assert (port["name"], port["appProtocol"]) == ("tcp", "tcp")
        (container,) = find(rendered, "Deployment", "echo")["spec"]["template"]["spec"]["containers"]
        assert container["args"][:3] == ["server", "-http-port=8078", "-grpc-port=disabled"]
        assert "-ui-path=" in container["args"]
    assert rendered.setup.mesh is not None
    assert rendered.setup.mesh.counters == render("istio+mtls", load=carrying("tcp")).setup.mesh.counters
    bare = {"kind": "Pod", "metadata": {"name": "mine"}, "spec": {"containers": [{"name": "mine"}]}}
    with refused(UsageError):
        manifests.patched([bare], manifests.started_with("connections"))


@pytest.mark.parametrize(
    ("treatment", "app"),
    [
        ("istio+mtls+jwt", "echo"),
        ("istio+opa", "echo"),
        ("linkerd+access-log", "echo"),
        ("consul+l7", "echo"),
        ("kuma+mtls", "echo"),
        ("istio", "details"),
    ],
)
def test_what_is_for_requests_is_refused_where_bytes_are_sent(treatment: str, app: str):
    with refused(UsageError):
        render(treatment, app=app, load=carrying("tcp"))


def test_of_a_feature_that_is_absent_bytes_show_that_it_is(tmp_path: Path):
    def counter(name: str, growth: str) -> dict[str, str]:
        return {"name": name, "pods": "app", "url": "1/metrics", "pattern": "x (1)", "growth": growth}

    mtls = {"manifests": ["features/mtls.yaml"], "counters": [counter("calls", "some")]}
    shown = {"counters": [counter("hands shaken", "some")], "absent_counters": [counter("no hand shaken", "none")]}
    options = mesh_folder(
        tmp_path / "tiny",
        counters=[counter("requests", "requests")],
        enrol={"pod_annotations": {"a": "1", "b": "1"}},
        tcp={"counters": [counter("bytes", "requests")], "pod_annotations": {"b": "2"}},
        features={"mtls": {**mtls, "tcp": shown}, "jwt": {"proofs": ["jwt"]}},
        not_toggles={},
    )

    def counters(treatment: str, protocol: str) -> list[str]:
        setup = render(treatment, load=carrying(protocol), options=options).setup
        assert setup.mesh is not None
        return [c.name for c in (*setup.mesh.counters, *(c for f in setup.features for c in f.counters))]

    assert counters("tiny+mtls", "http1") == ["requests", "calls"]
    assert counters("tiny", "http1") == ["requests"]
    assert counters("tiny+mtls", "tcp") == ["bytes", "hands shaken"]
    assert counters("tiny", "tcp") == ["bytes", "no hand shaken"]
    pod = find(render("tiny", load=carrying("tcp"), options=options), "Deployment", "echo")["spec"]["template"]
    assert {name: pod["metadata"]["annotations"].get(name) for name in "ab"} == {"a": "1", "b": "2"}


def test_what_nothing_can_prove_on_an_app_is_refused_before_the_study(tmp_path: Path):
    blind = {"mtls": {"manifests": ["features/mtls.yaml"], "proofs": ["peer-identity"], "expect": {"header": "x"}}}
    options = mesh_folder(tmp_path / "blind", features=blind)
    assert render("tiny+mtls", options=options)
    with refused(UsageError):
        render("tiny+mtls", app="details", options=options)
    off = {"mtls": {**blind["mtls"], "absent": ["base.yaml"], "absent_proofs": ["no-peer-identity"]}}
    options = mesh_folder(tmp_path / "off", features=off)
    with refused(UsageError):
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


# --- our own Envoys: the reference sidecars, and the collectors of the meshes -----------------------------------------


@pytest.mark.parametrize(
    ("treatment", "config", "build"),
    [
        # The build of a measured data plane is queried too.
        *(("sidecar", "envoy-client", ["/server_info"]), ("sidecar+mtls", "envoy-server", ["/server_info"])),
        *((f"{mesh}+observability", "collector", []) for mesh in ("istio", "istio-ambient+waypoint", "kuma")),
        *(
            (f"{mesh}+metrics", "scraper", [])
            for mesh in ("istio", "istio-ambient+waypoint", "linkerd", "kuma", "consul")
        ),
    ],
)
def test_admin_listens_on_loopback_and_others_read_what_they_must_alone(treatment: str, config: str, build: list[str]):
    bootstrap = yaml.safe_load(find(render(treatment), "ConfigMap", config)["data"]["envoy.yaml"])
    assert bootstrap["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 9902}
    listeners = {
        one["address"]["socket_address"]["port_value"]: one for one in bootstrap["static_resources"]["listeners"]
    }
    managers = {
        port: one["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
        for port, one in listeners.items()
    }
    to_admin = [
        (port, route["match"])
        for port, hosts in managers.items()
        for host in hosts
        for route in host["routes"]
        if route.get("route", {}).get("cluster") == "admin"
    ]
    assert to_admin == [(9901, {"path": path}) for path in ("/ready", *build, "/stats/prometheus")]
