"""A study as messages of SMP: only fields that its protobuf files declare, with their types, units and meaning."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from datetime import datetime

import pytest

from meshtrial import cli, paths
from meshtrial.design.study import Load, Treatment
from meshtrial.inference import read_study, smp
from meshtrial.records.store import StudyStore

SAMPLES = paths.CHECKOUT / "data" / "sample"
LOCAL = next(SAMPLES.glob("*/*/plan.json")).parent
CLUSTER = next(SAMPLES.glob("mesh_comparison*.zip"))

INT32 = 2**31 - 1
TEXTS = "map<string, string>"
TIME = "google.protobuf.Timestamp"
# Field to type, from protos/service_mesh_performance.proto, protos/service_mesh.proto of
# github.com/service-mesh-performance/service-mesh-performance at commit 69125ea.
MESSAGES = {
    "PerformanceTestConfig": {
        "smp_version": "string",
        "id": "string",
        "name": "string",
        "labels": TEXTS,
        "clients": "repeated Client",
        "duration": "string",
    },
    "Client": {
        "internal": "bool",
        "load_generator": "string",
        "protocol": "Protocol",
        "connections": "int32",
        "rps": "int64",
        "headers": TEXTS,
        "cookies": TEXTS,
        "body": "string",
        "content_type": "string",
        "endpoint_urls": "repeated string",
        "ssl_certificate": "string",
        "additional_options": "string",
    },
    "PerformanceTestResult": {
        "smp_version": "string",
        "id": "string",
        "labels": TEXTS,
        "start_time": TIME,
        "end_time": TIME,
        "latencies_ms": "Latency",
        "actual_qps": "double",
        "details_uri": "string",
        "test_id": "string",
        "mesh_config_id": "string",
        "env_id": "string",
    },
    "Latency": dict.fromkeys(("min", "average", "p50", "p90", "p99", "max"), "double"),
    "ServiceMeshConfig": {
        "smp_version": "string",
        "id": "string",
        "labels": TEXTS,
        "ingress_gateway": "IngressGateway",
        "sidecar": "Sidecar",
        "mesh_telemetry": "MeshTelemetry",
        "mesh_policy": "MeshPolicy",
        "mesh_control_plane": "MeshControlPlane",
        "mesh_policy_enabled": "bool",
        "mesh_telemetry_enabled": "bool",
        "mtls_enabled": "bool",
        "proxy_concurrency": "int32",
        "mesh_build": "string",
        "proxy_build": "string",
        "exp_group_uuid": "string",
        "exp_uuid": "string",
        "profile": "string",
        "mesh_type": "ServiceMesh",
        "application_metadata": "ApplicationMetadata",
    },
    "ServiceMesh": {"type": "Type", "version": "string", "labels": TEXTS, "annotations": TEXTS},
    "EnvironmentConfig": {
        "smp_version": "string",
        "id": "string",
        "labels": TEXTS,
        "kubernetes_version": "string",
        "nodes": "repeated Node",
        "individual_workloads": "repeated IndividualWorkload",
        "traffic_metadata": "TrafficMetadata",
    },
    "Node": {"type": "string", "cores": "int32", "mem_mb": "int64"},
}
ENUMS = {
    "Protocol": ("INVALID", "HTTP", "TCP", "UDP", "GRPC"),
    "Type": (
        *("INVALID", "APP_MESH", "CONSUL", "ISTIO", "KUMA", "LINKERD", "TRAEFIK_MESH", "OCTARINE"),
        *("NETWORK_SERVICE_MESH", "TANZU", "OPEN_SERVICE_MESH", "NGINX_SERVICE_MESH", "CILIUM_SERVICE_MESH"),
    ),
}
LISTS = {
    "performance_test_configs": "PerformanceTestConfig",
    "service_mesh_configs": "ServiceMeshConfig",
    "environment_configs": "EnvironmentConfig",
    "performance_test_results": "PerformanceTestResult",
}


def wrong(kind: str, value: object, where: str = "") -> list[str]:
    """Where a value is not what a field of that type may hold in protobuf's JSON."""
    if kind.startswith("repeated "):
        items = value if isinstance(value, list) else [None]
        return [found for item in items for found in wrong(kind.removeprefix("repeated "), item, where)]
    if kind in MESSAGES:
        if not isinstance(value, dict):
            return [f"{where} is no {kind}"]
        unknown = [f"{where}.{name} is not in {kind}" for name in value if name not in MESSAGES[kind]]
        known = {name: item for name, item in value.items() if name in MESSAGES[kind]}
        return unknown + [
            found for name, item in known.items() for found in wrong(MESSAGES[kind][name], item, f"{where}.{name}")
        ]
    good = {
        "string": lambda v: isinstance(v, str),
        "bool": lambda v: isinstance(v, bool),
        "double": lambda v: isinstance(v, float),
        "int32": lambda v: type(v) is int and 0 <= v <= INT32,
        "int64": lambda v: type(v) is int and 0 <= v < 2**63,
        TEXTS: lambda v: isinstance(v, dict) and all(isinstance(x, str) for x in (*v, *v.values())),
        TIME: lambda v: re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", v) is not None,
        "Protocol": lambda v: type(v) is int and 0 < v < len(ENUMS["Protocol"]),
        "Type": lambda v: type(v) is int and 0 < v < len(ENUMS["Type"]),
    }[kind](value)
    return [] if good else [f"{where} = {value!r} is no {kind}"]


@pytest.fixture(scope="module", params=[LOCAL, CLUSTER], ids=["local", "cluster"])
def data(request):
    return read_study(StudyStore.open(request.param))


@pytest.fixture(scope="module")
def whole(data):
    return smp.document(data)


def test_every_field_is_one_of_the_specification(whole):
    assert list(whole) == list(LISTS)
    found = [item for name, kind in LISTS.items() for item in wrong(f"repeated {kind}", whole[name], name)]
    assert found == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("PerformanceTestResult", {"actual_QPS": 1.0}),
        ("PerformanceTestResult", {"latencies_ms": {"p95": 1.0}}),
        ("PerformanceTestResult", {"start_time": "2026-11-21 21:17:20"}),
        ("Client", {"rps": 33.3}),
        ("Client", {"protocol": 0}),
        ("ServiceMeshConfig", {"labels": {"a": 1}}),
        ("ServiceMeshConfig", {"mesh_type": {"type": 13}}),
    ],
)
def test_what_is_not_of_the_specification_is_seen(kind, value):
    assert len(wrong(kind, value)) == 1


def test_a_result_is_one_run_in_milliseconds(data, whole):
    results = whole["performance_test_results"]
    assert len(results) == len(data.runs)
    by_id = {result["id"]: result for result in results}
    assert len(by_id) == len(results)
    for run in data.runs:
        result = by_id[f"{data.plan.sha256[:12]}-{run.run_id}" + (f"-attempt{run.attempt}" if run.attempt > 1 else "")]
        assert result["labels"]["treatment"] == run.treatment
        latencies = result["latencies_ms"]
        assert latencies["p50"] == run.responses["latency_p50_s"] * 1e3
        assert latencies["max"] == run.responses["latency_max_s"] * 1e3
        assert ("p99" in latencies) == ("latency_p99_s" in run.responses)
        assert result["actual_qps"] == run.responses["achieved_rps"]
        lasted = datetime.fromisoformat(result["end_time"]) - datetime.fromisoformat(result["start_time"])
        assert run.load_spec["duration_s"] * 0.9 < lasted.total_seconds() < run.load_spec["duration_s"] * 1.5


def test_results_name_messages_that_are_there(whole):
    ids = {name: {item["id"] for item in whole[name]} for name in LISTS}
    for result in whole["performance_test_results"]:
        assert result["test_id"] in ids["performance_test_configs"]
        assert result["mesh_config_id"] in ids["service_mesh_configs"]
        assert result["env_id"] in ids["environment_configs"]


def test_the_smallest_latency_is_of_the_requests():
    data = read_study(StudyStore.open(LOCAL))
    run = data.runs[0]
    first = next(
        result for result in smp.document(data)["performance_test_results"] if result["id"].endswith(run.run_id)
    )
    good = data.latency(run).filter(data.latency(run)["ok"])["latency_s"].to_list()
    assert first["latencies_ms"]["min"] == min(good) * 1e3


def test_a_reference_data_plane_is_never_called_a_mesh():
    configs = smp.document(read_study(StudyStore.open(LOCAL)))["service_mesh_configs"]
    assert {config["labels"]["data_plane"] for config in configs} >= {"none", "node-proxy"}
    assert all("mesh_type" not in config for config in configs)
    proxies = next(config for config in configs if config["labels"]["data_plane"] == "node-proxy")
    assert proxies["labels"]["is"] == "a reference data plane, no mesh"


def test_meshes_have_their_type_and_version():
    configs = {
        config["labels"]["treatment"]: config
        for config in smp.document(read_study(StudyStore.open(CLUSTER)))["service_mesh_configs"]
    }
    kinds = {name: ENUMS["Type"][c["mesh_type"]["type"]] for name, c in configs.items() if "mesh_type" in c}
    assert kinds == {
        "istio+mtls": "ISTIO",
        "istio-ambient": "ISTIO",
        "istio-ambient+waypoint": "ISTIO",
        "linkerd": "LINKERD",
        "kuma": "KUMA",
        "kuma+mtls": "KUMA",
    }
    assert configs["linkerd"]["mesh_type"]["version"] == "edge-26.6.3"
    assert [name for name, config in configs.items() if config.get("mtls_enabled")] == ["istio+mtls", "kuma+mtls"]


def test_nodes_of_a_cluster():
    (environment,) = smp.document(read_study(StudyStore.open(CLUSTER)))["environment_configs"]
    assert environment["kubernetes_version"] == "v1.34.4"
    assert environment["nodes"][0] == {"type": "amd64", "cores": 2, "mem_mb": 25277}  # 24684092 KiB


@pytest.mark.parametrize(
    ("load", "clients"),
    [
        (Load(rps=300, connections=4, duration_s=1), [(1, 4, 300)]),
        (Load(rps=300, connections=3, duration_s=10, generators=2), [(1, 2, 200), (1, 1, 100)]),
        (Load(rps=100, connections=3, duration_s=10, generators=2), [(1, 2, None), (1, 1, None)]),  # 66.7 and 33.3
        (Load(rps=100, connections=4, duration_s=10, generators=2, protocol="mixed"), [(1, 2, 50), (4, 2, 50)]),
        (Load(rps=0, connections=8, duration_s=10, protocol="grpc"), [(4, 8, None)]),
        (Load(rps=70, connections=8, duration_s=10, ramp=7), [(1, 8, None)]),
    ],
)
def test_clients_are_the_generators(load, clients):
    data = read_study(StudyStore.open(LOCAL))
    plan = replace(data.plan, study=replace(data.plan.study, loads=(load,)))
    (config,) = smp.document(replace(data, plan=plan, runs=()))["performance_test_configs"]
    assert wrong("PerformanceTestConfig", config) == []
    found = [(client["protocol"], client["connections"], client.get("rps")) for client in config["clients"]]
    assert found == clients


def test_an_environment_of_another_shape_is_left_out():
    data = read_study(StudyStore.open(LOCAL))
    for environment in (
        {},
        {"testbed": None},
        {"testbed": {"nodes": [{"capacity": {"cpu": "2500m"}}, 3], "cpus": "2"}},
    ):
        (found,) = smp.document(replace(data, environment=environment, runs=()))["environment_configs"]
        assert wrong("EnvironmentConfig", found) == []


def test_the_command_says_what_the_form_cannot_hold(tmp_path):
    out, err = io.StringIO(), io.StringIO()
    assert cli.main(["export", str(LOCAL), "--out", str(tmp_path), "--format", "smp"], out, err) == 0, err.getvalue()
    assert "smp: SMP has no field for verdicts, intervals" in out.getvalue()
    assert [path.name for path in tmp_path.iterdir()] == ["smp.json"]
    assert list(json.loads((tmp_path / "smp.json").read_text())) == list(LISTS)
    out = io.StringIO()
    assert cli.main(["export", str(LOCAL), "--out", str(tmp_path), "--format", "csv"], out, err) == 0
    assert "smp" not in out.getvalue()


def test_versions_and_features_of_a_treatment():
    data = read_study(StudyStore.open(CLUSTER))
    treatment = Treatment.parse("istio@1.30+mtls+opa+observability")
    study = replace(data.plan.study, treatments=(*data.plan.study.treatments, treatment))
    *_, config = smp.document(replace(data, plan=replace(data.plan, study=study), runs=()))["service_mesh_configs"]
    assert config["mesh_type"] == {"type": 3, "version": "1.30"}
    assert config["mtls_enabled"]
    assert config["mesh_policy_enabled"]
    assert config["mesh_telemetry_enabled"]
