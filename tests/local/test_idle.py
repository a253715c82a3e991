"""Idle connections: the proxies count them, and they end with the process that holds them."""

from urllib.parse import urlsplit

import pytest
from local.studies import PATIENCE_S, recorded, study_of, without_twin
from waiting import wait_for

from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.inference import scaling
from meshtrial.load import fortio
from meshtrial.testbed.local import sockets
from meshtrial.testbed.local.deployment import IDLE, LocalDeployment
from meshtrial.testbed.local.sockets import Endpoint
from meshtrial.testbed.local.testbed import LocalTestbed

HELD = 60
LOAD = FixedRate(100, 4, 0.6, idle_connections=HELD)


def entry(deployment: LocalDeployment) -> Endpoint:
    parts = urlsplit(deployment.target.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def at_the_app(deployment: LocalDeployment) -> int:
    """The connections that the application itself has accepted."""
    argv = deployment.child("app").argv
    address, _, port = argv[argv.index("-http-port") + 1].partition(":")
    return sockets.established((address, int(port)))


@pytest.mark.parametrize("name", ["none", "sidecar+mtls", "node-proxy"])
def test_they_are_open_from_before_the_load_until_after_it(name, tmp_path):
    deployment = LocalTestbed().deploy(Treatment.parse(name), LOAD, "echo")
    try:
        at = entry(deployment)
        proofs = [*deployment.prove("before", 0)]
        wait_for(lambda: deployment.connections_at(at) == HELD)  # those that proofs opened end a moment later
        # A sidecar ends connections and a node proxy passes each of them on.
        assert (at_the_app(deployment) >= HELD) == (name != "sidecar+mtls")
        (output,) = deployment.generate(fortio.calls(LOAD, "measure"), tmp_path, LOAD.duration_s + PATIENCE_S)
        assert output.exit_code == 0
        proofs += deployment.prove("after", 1)
        assert [proof for proof in proofs if not proof.passed] == []
        assert {proof.phase for proof in proofs if proof.name == IDLE} == {"before", "after"}
        deployment.child(IDLE).stop()
        wait_for(lambda: deployment.connections_at(at) == 0)
        (proof,) = deployment.prove("after", 1)
        assert (proof.name, proof.passed) == (f"{IDLE} alive", False)
    finally:
        deployment.close()


def test_the_proxies_own_gauge_says_the_same():
    deployment = LocalTestbed().deploy(Treatment.parse("sidecar"), LOAD, "echo")
    try:
        proxy = deployment.proxy_at(entry(deployment))
        assert proxy is not None
        # One request opened each of them, and the generator sends a second one over the first.
        expected = {"http.outbound.downstream_cx_active": HELD, "http.outbound.downstream_rq_total": HELD + 1}
        wait_for(lambda: proxy.stats("^http.outbound.downstream_(cx_active|rq_total)$") == expected)
    finally:
        deployment.close()


def test_their_memory_is_recorded_under_load_and_after_it():
    given = {
        "treatments": "none,sidecar+mtls",
        "rates": "100",
        "connections": "4",
        "idle_connections": "0,400",
        "capacity": False,
        "duration_s": 1,
        "warmup_s": 0.2,
        "after_s": 1,
    }
    data = recorded(without_twin(study_of("mesh_comparison", given, blocks=2)))
    assert all(run.valid for run in data.runs), [run.reasons for run in data.runs]
    after = {run.treatment: run.responses["data_plane_memory_after_bytes"] for run in data.runs}
    assert after["none"] == 0 < after["sidecar+mtls"]
    for response in ("data_plane_memory_bytes", "data_plane_memory_after_bytes"):
        slope = scaling.growth(data, "sidecar+mtls", response, axis=scaling.IDLE).cost
        # Other Envoys on the machine share its pages, so only their number is fixed here.
        assert slope is not None
        assert slope.n == 2
