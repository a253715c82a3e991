"""Every treatment is deployed, verified with real requests, and removed without a trace."""

import contextlib
import json
import os
import signal
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from local.studies import PATIENCE_S, exercise, study_of
from waiting import wait_for

from meshtrial.design.load import FixedRate
from meshtrial.design.plan import make_plan
from meshtrial.design.study import Treatment
from meshtrial.errors import TestbedError
from meshtrial.load import fortio
from meshtrial.records.store import StudyStore, check_checksums
from meshtrial.run.measured import carry_out
from meshtrial.testbed.local import proc, proofs, sidecar
from meshtrial.testbed.local.dataplanes import DataPlane
from meshtrial.testbed.local.deployment import LocalDeployment
from meshtrial.testbed.local.testbed import LocalTestbed

LOAD = FixedRate(100, 4, 0.6)
# Traces of 1 %: with 24 expected spans, none at all practically never happens by chance.
ENOUGH = FixedRate(800, 8, 3)
FILE_LOG = sidecar.file_log
TREATMENTS = [
    "none",
    "relay+delay-200us",
    "node-proxy",
    "sidecar",
    "sidecar+mtls",
    "sidecar+mtls+x25519",
    "sidecar+mtls+pqc",
    "sidecar+mtls+observability",
    "sidecar+mtls+jwt",
    "sidecar+mtls+access-log+metrics+tracing",
    "sidecar+mtls+jwt-cache",
    "sidecar+mtls+opa",
    "sidecar+mtls+opa-log",
]


@pytest.mark.parametrize("name", TREATMENTS)
def test_a_treatment_proves_itself_under_load(name, tmp_path):
    done = exercise(name, tmp_path, LOAD)
    assert done.failed == {}
    assert {p.phase for p in done.proofs} == {"before", "after"}
    assert done.measured.responses["error_ratio"] == 0
    roles = {u.role for u in done.usage}
    assert "app" in roles
    assert ("data plane" in roles) == (name != "none")
    assert all(u.cpu_s > 0 and u.pss_bytes and u.pss_bytes > 2**20 for u in done.usage)
    assert not any(b"Bearer ey" in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())


def test_no_proxy_is_proven_not_assumed(tmp_path, monkeypatch):
    """A treatment labelled none that has a sidecar in its path is detected."""

    def disguised(spec, fleet):
        started = sidecar.start(spec, fleet)
        host, port = started.target.url.split("/")[2].split(":")
        at = [(host, int(port))]
        return replace(started, provers=[proofs.direct_prover(spec, fleet, "app", at)])

    monkeypatch.setattr("meshtrial.testbed.local.testbed.data_plane", lambda *_: DataPlane(disguised))
    assert set(exercise("none", tmp_path, LOAD).failed) == {"no proxy in the path", "no proxy headers"}


@pytest.mark.parametrize(
    ("name", "break_it", "expected"),
    [
        ("sidecar+mtls+jwt", lambda m: m.setattr(sidecar, "jwt_filters", lambda *_, **__: []), "JWT without a token"),
        ("sidecar+mtls+observability", lambda m: m.setattr(sidecar, "SAMPLING_PERCENT", 0.0), "client spans"),
        (
            "sidecar+access-log",
            lambda m: m.setattr(sidecar, "file_log", lambda _, log=FILE_LOG: log(Path("/dev/null"))),
            "server log lines",
        ),
        ("sidecar+metrics", lambda m: m.setattr(sidecar, "SCRAPE_INTERVAL_S", 3600.0), "client scrapes"),
        (
            "sidecar+tracing",
            lambda m: m.setattr(sidecar, "tracer", lambda *_: None),
            "exports at the collector",
        ),
        ("sidecar+mtls", lambda m: m.setattr(sidecar.envoy, "tls_context", lambda *_, **__: None), "peer certificate"),
    ],
    ids=["JWT filter removed", "traces sampled 0 %", "log elsewhere", "nobody scrapes", "no traces", "mTLS off"],
)
def test_a_broken_toggle_is_found_by_its_proof(name, break_it, expected, tmp_path, monkeypatch):
    break_it(monkeypatch)
    assert expected in exercise(name, tmp_path, LOAD).failed


@pytest.mark.parametrize("group", [(), ("X25519",), ("P-256",)], ids=lambda group: "".join(group) or "Envoy's choice")
def test_another_key_exchange_is_found_by_its_proof(group, tmp_path, monkeypatch):
    real = sidecar.envoy.tls_context
    monkeypatch.setattr(sidecar.envoy, "tls_context", lambda *a, groups, **kw: real(*a, groups=group, **kw))
    failed = exercise("sidecar+mtls+pqc", tmp_path, LOAD).failed
    assert set(failed) == ({"key exchange"} if group else set())


def test_a_new_connection_of_a_client_is_a_new_handshake_where_none_is_pooled(tmp_path):
    load = replace(LOAD, keepalive=False)
    done = exercise("sidecar+mtls+pqc+unpooled", tmp_path, load)
    assert done.failed == {}
    (opened,) = [proof for proof in done.proofs if proof.name == "own connections"]
    (agreed,) = [proof for proof in done.proofs if (proof.name, proof.phase) == ("key exchange", "after")]
    requests = done.measured.responses["requests"]
    assert int(opened.observed) >= requests
    assert int(agreed.observed.split()[1]) >= requests


def test_a_pool_of_connections_is_found_by_its_proof(tmp_path, monkeypatch):
    forgotten = [sidecar.unpooled, lambda pair: pair.upstream.clear()]
    monkeypatch.setitem(sidecar.FEATURES, "unpooled", forgotten)
    assert set(exercise("sidecar+unpooled", tmp_path, replace(LOAD, keepalive=False)).failed) == {"own connections"}


def test_one_request_in_a_hundred_is_traced_and_the_same_on_both_sides(tmp_path):
    done = exercise("sidecar+mtls+tracing-1pct", tmp_path, ENOUGH)
    assert done.failed == {}
    spans = {proof.name: int(proof.observed) for proof in done.proofs if proof.name.endswith(" spans")}
    assert set(spans) == {"client spans", "server spans"}
    assert 0 < spans["client spans"] < done.measured.responses["requests"] / 10
    assert "exports at the collector" in done.names


@pytest.mark.parametrize("rate", [0.0, 10.0, 100.0])
def test_another_rate_of_traces_is_found_by_its_proof(rate, tmp_path, monkeypatch):
    real = sidecar.tracer
    monkeypatch.setattr(sidecar, "tracer", lambda service, _: real(service, rate))
    failed = set(exercise("sidecar+tracing-1pct", tmp_path, ENOUGH).failed)
    assert failed == {"client spans", "server spans"} | ({"exports at the collector"} if rate == 0 else set())


def test_a_policy_that_allows_everything_is_found_by_its_proof(tmp_path, monkeypatch):
    policy = tmp_path / "allow.rego"
    policy.write_text("package meshtrial\n\ndefault allow := true\n")
    monkeypatch.setattr(sidecar, "OPA_POLICY", policy)
    failed = exercise("sidecar+mtls+opa", tmp_path, LOAD).failed
    assert {"OPA without a token", "OPA with a method that is not allowed"} <= set(failed)


def test_keys_are_private_and_go_with_the_deployment():
    deployment = LocalTestbed().deploy(Treatment.parse("sidecar+mtls"), LOAD, "echo")
    try:
        keys = list((deployment.folder / "keys").iterdir())
        assert keys
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in keys)
        assert stat.S_IMODE((deployment.folder / "keys").stat().st_mode) == 0o700
    finally:
        deployment.close()
    assert not any(path.exists() for path in keys)


def test_a_component_that_dies_fails_the_run(tmp_path):
    deployment = LocalTestbed().deploy(Treatment.parse("node-proxy"), LOAD, "echo")
    try:
        deployment.child("client node proxy").stop()
        (proof,) = deployment.prove("after", 1)
        assert (proof.name, proof.passed) == ("client node proxy alive", False)
        assert proof.observed.startswith("ended ")
    finally:
        deployment.close()


@pytest.fixture
def no_envoy(tmp_path, monkeypatch):
    """An Envoy that reports its version and, when it should serve, prints two lines and ends."""
    foreign = tmp_path / "foreign"
    foreign.write_text(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'x version: a/1.40.0/Clean/RELEASE/Y'; exit; fi\n"
        "echo warming up; echo no such filter >&2; exit 3\n"
    )
    foreign.chmod(0o755)
    monkeypatch.setenv("MESHTRIAL_ENVOY", str(foreign))


def test_a_deployment_that_cannot_start_leaves_nothing_and_says_why(no_envoy):
    said = r"sidecar: ended with code 3 before it served: warming up \| no such filter$"
    with pytest.raises(TestbedError, match=said) as caught:
        LocalTestbed().deploy(Treatment.parse("sidecar"), LOAD, "echo")
    (sidecar,) = [text for name, text in caught.value.evidence.items() if name.endswith("sidecar.log")]
    assert sidecar == "warming up\nno such filter\n"
    states = caught.value.evidence["failed-components.txt"].splitlines()
    assert "app: running" in states
    assert any(line.endswith("sidecar: ended with code 3") for line in states)


def run_a_sidecar(folder: Path, bed: LocalTestbed) -> Path:
    """Make one run of a short study, which must fail; return the folder of its logs."""
    given = {"treatments": "none,sidecar", "rps": 100, "connections": 4, "duration_s": 1.5, "warmup_s": 0.1}
    plan = make_plan(study_of("ambient_vs_no_mesh", given))
    store = StudyStore.create(folder, plan, {})
    planned = next(run for run in plan.runs if run.treatment == "sidecar")
    (record,) = carry_out(store, bed, [planned], 1)
    assert not record.valid
    run = store.folder(planned.run_id, 1)
    assert check_checksums(run) == []
    return run / "logs"


def test_a_run_that_could_not_be_deployed_keeps_what_its_components_wrote(no_envoy, tmp_path):
    logs = run_a_sidecar(tmp_path / "studies", LocalTestbed())
    assert "ended with code 3" in (logs / "failed-components.txt").read_text()
    assert [path.read_text() for path in logs.glob("failed-*-sidecar.log")] == ["warming up\nno such filter\n"]


def test_a_component_that_is_killed_under_load_is_named_with_its_signal(tmp_path, monkeypatch):
    really = LocalDeployment.generate

    def killed_amid(deployment, calls, folder, timeout_s):
        victim = deployment.child("server sidecar").pid
        with ThreadPoolExecutor(1) as pool:
            killed = pool.submit(kill_once_written, folder, victim)
            try:
                return really(deployment, calls, folder, timeout_s)
            finally:
                killed.result()

    monkeypatch.setattr(LocalDeployment, "generate", killed_amid)
    states = (run_a_sidecar(tmp_path / "studies", LocalTestbed()) / "failed-components.txt").read_text()
    assert "server sidecar: ended by signal 9, Killed" in states.splitlines()
    assert "app: running" in states.splitlines()


def kill_once_written(folder: Path, pid: int) -> None:
    """Kill it when a request is logged in the folder."""
    wait_for(lambda: any(path.stat().st_size for path in folder.glob("*.log")), PATIENCE_S)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_requests_and_answers_have_sizes_of_their_own_and_many_headers(tmp_path):
    load = FixedRate(50, 2, 0.6, payload_bytes=100, response_bytes=200_000, headers=30)
    done = exercise("sidecar+mtls", tmp_path, load)
    assert done.failed == {}
    assert done.measured.responses["error_ratio"] == 0
    result = json.loads(done.outputs[0].json_path.read_text())
    assert result["Sizes"]["Min"] > 200_000
    assert result["Payload"]


@pytest.mark.parametrize(
    ("name", "sidecars", "proof"),
    [
        ("sidecar+client-only+observability", {"client sidecar"}, "no proxy at the server"),
        ("sidecar+server-only+jwt", {"server sidecar"}, "JWT without a token"),
    ],
)
def test_one_of_the_two_sidecars_alone(name, sidecars, proof, tmp_path):
    done = exercise(name, tmp_path, LOAD)
    assert done.failed == {}
    assert proof in done.names
    assert {u.component for u in done.usage if u.role == "data plane"} == sidecars
    assert done.measured.responses["error_ratio"] == 0


def test_what_stands_idle_is_kept_warm_and_nothing_of_it_stays(tmp_path):
    load = replace(LOAD, trickle_rps=20, slices=2)
    deployment = LocalTestbed().deploy(Treatment.parse("sidecar"), load, "echo")
    try:
        deployment.keep_warm(fortio.trickle(load))
        pid = deployment.child("app").pid
        before = proc.sample((pid,))[0]
        wait_for(lambda: proc.sample((pid,))[0] > before)
        deployment.keep_warm(None)
        assert running(deployment.folder, "trickle") == []
        deployment.keep_warm(fortio.trickle(load))
        assert len(running(deployment.folder, "trickle")) == 1
    finally:
        folder = deployment.folder
        deployment.close()
    assert running(folder, "trickle") == []


def running(folder: Path, word: str) -> list[int]:
    """Return processes that work in a folder and have a word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if word.encode() in words and (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
    return found
