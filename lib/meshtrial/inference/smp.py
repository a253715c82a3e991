"""A study in the messages of the Service Mesh Performance specification (SMP): what was asked, and what each run gave.

Field names, types and units are those of protos/service_mesh_performance.proto and protos/service_mesh.proto in
service-mesh-performance/service-mesh-performance, as of their last commit, 69125ea of July 2023 (earlier ones say
``actual_QPS`` and ``testId``). The specification has messages and no file, so the file is ours: a list of each.
Enumerations are written as numbers, which readers of protobuf's JSON take, and those of plain JSON or YAML too.

Opinion: a result of SMP is one run. Percentiles of several runs are not averaged into one, and no field is filled with
something that it does not mean. Limits: :data:`LIMITS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

from meshtrial.design.shares import protocol_of, split_connections, split_rate
from meshtrial.design.study import Load, Treatment
from meshtrial.errors import RecordError
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord

# What every configuration in the documentation of SMP's own implementation says.
VERSION = "v0.0.1"
LIMITS = (
    "SMP has no field for verdicts, intervals, failed requests, percentiles from the schedule, and CPU and memory of a "
    "run: they are not in smp.json (study.json has them). A latency that is left out was not measured or had too few "
    "requests; readers of protobuf show it as 0. mtls_enabled is set where mTLS was chosen as a feature, not where a "
    "mesh always has it."
)
_PROTOCOLS = {"http1": 1, "h2": 1, "tcp": 2, "grpc": 4}  # PROTOCOL_HTTP, _TCP, _GRPC
_MESHES = {"consul": 2, "istio": 3, "istio-ambient": 3, "kuma": 4, "linkerd": 5}  # ServiceMesh.Type
_LATENCIES = {"average": "mean", "p50": "p50", "p90": "p90", "p99": "p99", "max": "max"}


def document(data: StudyData) -> dict[str, Any]:
    """The messages of a study, a list of each."""
    study = data.plan.study
    included = {(run.run_id, run.attempt) for run in data.included_runs()}
    ordered = sorted(data.runs, key=lambda run: (run.sequence, run.attempt))
    return {
        "performance_test_configs": [_test(data, load) for load in study.loads],
        "service_mesh_configs": [_mesh(data, treatment) for treatment in study.treatments],
        "environment_configs": [_environment(data)],
        "performance_test_results": [_result(data, run, (run.run_id, run.attempt) in included) for run in ordered],
    }


def _named(data: StudyData, name: str, labels: Mapping[str, object]) -> dict[str, Any]:
    """What every message begins with; identifiers are unique among plans."""
    texts = {"study": data.plan.study.name} | {key: str(value) for key, value in labels.items() if value != ""}
    return {"smp_version": VERSION, "id": f"{data.plan.sha256[:12]}-{name}", "labels": texts}


def _test(data: StudyData, load: Load) -> dict[str, Any]:
    clients = []
    for number, connections in enumerate(split_connections(load), start=1):
        rate = split_rate(load, connections, load.duration_s)
        client = {"internal": True, "load_generator": "fortio", "protocol": _PROTOCOLS[protocol_of(load, number)]}
        # Whole numbers only: another rate stands in the labels alone.
        whole = {"rps": int(rate)} if rate > 0 and rate.is_integer() and not load.ramp else {}
        clients.append(client | {"connections": connections} | whole)
    rate_said = "searched" if load.search else "closed loop" if load.closed_loop else f"{load.rps:g}"
    labels = {
        "load": load.label,
        "rps": f"rising to {rate_said}" if load.ramp else rate_said,
        "payload_bytes": load.payload_bytes,
        "keepalive": str(load.keepalive).lower(),
    }
    return _named(data, load.label, labels) | {
        "name": f"{data.plan.study.name}, {load.label}",
        "clients": clients,
        "duration": f"{load.duration_s:g}s",
    }


def _mesh(data: StudyData, treatment: Treatment) -> dict[str, Any]:
    study, testbed = data.plan.study, _mapping(data.environment, "testbed")
    kind = _MESHES.get(treatment.dataplane) if study.backend == "kubernetes" else None
    labels = {
        "treatment": treatment.name,
        "data_plane": treatment.dataplane,
        "is": "a mesh" if kind else "a reference data plane, no mesh" if treatment.dataplane != "none" else "no proxy",
        "features": ",".join(treatment.features),
        "role": "baseline" if treatment.name == study.baseline.name else "A/A twin" if treatment.twin else "",
    }
    found = _named(data, treatment.name, labels)
    found |= {"mtls_enabled": True} if treatment.has("mtls") else {}
    found |= {"mesh_telemetry_enabled": True} if treatment.has("observability") else {}
    found |= {"mesh_policy_enabled": True} if treatment.has("opa") or treatment.has("jwt") else {}
    version = treatment.version or _mapping(testbed, "meshes").get(treatment.dataplane, "")
    if kind:
        found["mesh_type"] = {"type": kind} | ({"version": str(version)} if version else {})
    return found


def _environment(data: StudyData) -> dict[str, Any]:
    testbed = _mapping(data.environment, "testbed")
    listed = testbed.get("nodes")
    nodes = [node for node in listed if isinstance(node, Mapping)] if isinstance(listed, list) else []
    labels = {"backend": data.plan.study.backend} | {
        name: testbed.get(name, "") for name in ("system", "kernel", "machine")
    }
    found = _named(data, "environment", labels)
    if nodes:
        found["nodes"] = [_node(node) for node in nodes]
    else:
        memory = testbed.get("memory_bytes")
        cores = testbed.get("cpus")
        found["nodes"] = [
            {"type": str(testbed.get("cpu_model", ""))}
            | ({"cores": cores} if isinstance(cores, int) else {})
            | ({"mem_mb": round(memory / 1e6)} if isinstance(memory, int) else {})
        ]
    if isinstance(testbed.get("kubernetes"), str):
        found["kubernetes_version"] = testbed["kubernetes"]
    return found


def _node(node: Mapping[str, Any]) -> dict[str, Any]:
    capacity = _mapping(node, "capacity")
    memory = re.fullmatch(r"(\d{1,15})Ki", str(capacity.get("memory", "")))
    cores = re.fullmatch(r"\d{1,5}", str(capacity.get("cpu", "")))
    return (
        {"type": str(node.get("instance_type") or node.get("architecture") or "")}
        | ({"cores": int(cores[0])} if cores else {})
        | ({"mem_mb": round(int(memory[1]) * 1024 / 1e6)} if memory else {})
    )


def _result(data: StudyData, run: RunRecord, included: bool) -> dict[str, Any]:
    sha = data.plan.sha256[:12]
    labels = {
        "treatment": run.treatment,
        "load": run.load,
        "block": run.repetition,
        "position": run.position,
        "attempt": run.attempt,
        "valid": str(run.valid).lower(),
        "included": str(included).lower(),
        "reasons": "; ".join(run.reasons),
    }
    name = run.run_id if run.attempt == 1 else f"{run.run_id}-attempt{run.attempt}"
    begin = min((call.start_unix_s for call in run.generators), default=run.start_unix_s)
    end = max((call.start_unix_s + call.duration_s for call in run.generators), default=begin)
    found = _named(data, name, labels) | {"start_time": _time(begin), "end_time": _time(end)}
    latencies = _latencies_ms(data, run)
    found |= {"latencies_ms": latencies} if latencies else {}
    if "achieved_rps" in run.responses:
        found["actual_qps"] = float(run.responses["achieved_rps"])
    return found | {
        "test_id": f"{sha}-{run.load}",
        "mesh_config_id": f"{sha}-{run.treatment}",
        "env_id": f"{sha}-environment",
    }


def _latencies_ms(data: StudyData, run: RunRecord) -> dict[str, float]:
    """Of the good requests, from the send on, as the run's responses have them; the smallest from its requests."""
    named = {field: f"latency_{part}_s" for field, part in _LATENCIES.items()}
    found = {field: run.responses[name] * 1e3 for field, name in named.items() if name in run.responses}
    try:
        least = data.latency(run).filter(pl.col("ok"))["latency_s"].min()
    except (RecordError, pl.exceptions.PolarsError):  # packed without its requests
        least = None
    return {"min": least * 1e3} | found if isinstance(least, float) and found else found


def _time(unix_s: float) -> str:
    """RFC 3339 in UTC, as protobuf's JSON has it."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}
