"""Nine endpoints end to end: mutual TLS between the tiers, traffic at every endpoint, and nothing left afterwards."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from local.studies import PATIENCE_S
from waiting import wait_for

from meshtrial import native
from meshtrial.design.load import FixedRate, Load
from meshtrial.design.study import Gates, Treatment
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.errors import TestbedError
from meshtrial.load import failures
from meshtrial.run import stage
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.controlplane import ControlPlane
from meshtrial.testbed.local.deployment import LocalDeployment
from meshtrial.testbed.local.fleet import envoy_command
from meshtrial.testbed.local.testbed import LocalTestbed
from meshtrial.testbed.local.tiers import ADMIN, APPLICATION, INBOUND, OUTBOUND, Layout, inbound_counts

LOAD = FixedRate(12, 6, 2, warmup_s=1, replicas=3)


def made(treatment: str, load: Load = LOAD, **options: object) -> LocalDeployment:
    testbed = LocalTestbed({"parameters": {"hold_ms": 20, **options}})
    return testbed.deploy(Treatment.parse(treatment), load, "tiers")


def layout_of(deployment: LocalDeployment) -> Layout:
    """Read from the address of its servers."""
    argv = deployment.child("server-app").argv
    (own,) = [part for part in argv if part.endswith(f":{APPLICATION}")]
    return Layout(deployment.spec.load.replicas, own.rpartition(".")[0].rpartition(".")[0])


def measured(deployment: LocalDeployment, folder: Path) -> tuple[int, stage.Stage]:
    sent, resolution = stage.warm_up(deployment, deployment.spec.load, folder)
    found = stage.measure(deployment, LocalTestbed(), deployment.spec.load, Gates(), folder, resolution)
    return sent + found.sent, found


@pytest.mark.parametrize(("treatment", "spread"), [("sidecar+mtls", 2), ("sidecar+mtls+scoped", 0)])
def test_a_mesh_end_to_end(treatment, spread, tmp_path):
    deployment = made(treatment, spread=spread)
    try:
        before = deployment.prove("before", 0)
        sent, found = measured(deployment, tmp_path)
        after = deployment.prove("after", sent)
        extra = deployment.facts().to_dict()
        folder, launcher = deployment.folder, deployment.batches[0].launcher.pid
    finally:
        deployment.close()
    assert [proof for proof in (*before, *after) if not proof.passed] == []
    names = {proof.name for proof in before}
    assert {"peer certificate, client 1", "plaintext refused, server 3", "wrong identity refused, client 3"} <= names
    seen = {proof.name: proof.observed for proof in after}
    assert seen["traffic at every server endpoint"] == "3 of 3"
    # All of the warm-up and of the measured time; requests that this machine delays past the end are not sent.
    assert int(seen["requests through the server sidecars"]) >= sent > 0
    assert sent <= 12 + 24
    assert found.measurement.responses["error_ratio"] == 0
    assert failures.count(found.measurement.requests) == {}
    assert (extra["hold_s"], extra["endpoints"], extra["proxies"]) == (0.04, 9, 9)
    assert found.measurement.requests["latency_s"].min() > 0.04
    used = {u.component: u for u in found.usage}
    for tier in ("load-generator", "client", "server"):
        sidecars = used[f"{tier} sidecars"]
        assert (sidecars.role, sidecars.count) == ("data plane", 3)
        assert 3 * 5 * 2**20 < sidecars.pss_bytes < 3 * 100 * 2**20
        assert sidecars.cpu_s > 0
    assert used["control-plane"].role == "control plane"
    assert [push["proxies"] for push in extra["pushes"]] == [9 if treatment.endswith("mtls") else 3] * 3
    assert all(push["last_s"] > 0 and push["bytes"] > 0 for push in extra["pushes"])
    assert extra["responses"]["config_bytes"] > 9 * 1000
    assert not folder.exists()
    assert not Path(f"/proc/{launcher}").exists()


def sent(deployment: LocalDeployment, requests: int) -> dict[str, int]:
    """Return the codes of n requests to the first endpoint of the first tier."""
    entry = "http://{}:{}/".format(*layout_of(deployment).all("load-generator", OUTBOUND)[0])
    asked = ("-quiet", "-qps", "100", "-c", "2", "-n", str(requests), "-json", "-")
    command = (native.find("fortio"), "load", *asked, entry)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)
    codes: dict[str, int] = json.loads(done.stdout)["RetCodes"]
    return codes


@pytest.mark.parametrize(("treatment", "spread", "concerned"), [("sidecar+mtls", 2, 9), ("sidecar+mtls+scoped", 0, 3)])
def test_an_added_endpoint_reaches_all_and_takes_traffic(treatment, spread, concerned):
    deployment = made(treatment, spread=spread)
    try:
        host, port = deployment.child("control-plane").argv[-1].split(":")
        plane = ControlPlane((host, int(port)))
        stats = plane.stats()
        assert (stats["connected"], stats["configured"], stats["nacks"]) == (9, 9, 0)
        # Round robin over both hops: every replica gets its share, and no request fails.
        assert sent(deployment, 90) == {"200": 90}
        for tier in ("client", "server"):
            shares = inbound_counts(layout_of(deployment), tier)
            # one more than was counted: fortio's first request of each connection is a trial
            assert 90 <= sum(shares) <= 92
            assert min(shares) >= 25
        deployment.prove("before", 0)  # a member of the mesh other than the caller was refused by name
        first = (layout_of(deployment).address("server", 1), ADMIN)
        refused = Proxy("server sidecar", first).stats(f"^listener.{first[0]}_{INBOUND}.ssl.fail_verify_san$")
        assert sum(refused.values()) >= 1

        # It is first only configured, so that nothing fails while its sidecar starts, then used.
        grown = Layout(4, layout_of(deployment).network)
        late = grown.nodes()[-1]
        added = plane.ask("/endpoints", "POST", late | {"no_traffic": True})
        assert (added["version"], added["awaited"], added["endpoints"]) == (2, concerned, 4)
        pushed = plane.ask("/converged?version=2&wait=30s")
        assert pushed["converged"]
        assert 0 < pushed["first_s"] <= pushed["median_s"] <= pushed["converged_s"]
        assert sent(deployment, 20) == {"200": 20}
        assert plane.ask(f"/endpoints?id={late['id']}", "DELETE")["endpoints"] == 3
        plane.ask("/endpoints", "POST", late)
        bootstrap = deployment.folder / "late.json"
        bootstrap.write_text(json.dumps(plane.ask(f"/bootstrap?node={late['id']}")))
        own = [(grown.address("server", 4), port) for port in (ADMIN, INBOUND)]
        deployment.start("late sidecar", "data plane", envoy_command(late["id"], bootstrap)[1:], own)
        assert plane.ask("/converged?version=4&wait=30s")["converged"]
        assert sent(deployment, 60) == {"200": 60}
        assert inbound_counts(grown, "server")[-1] >= 10
    finally:
        deployment.close()


def test_a_scoped_configuration_is_smaller(tmp_path):
    pushed = {}
    for treatment in ("sidecar+mtls", "sidecar+mtls+scoped"):
        deployment = made(treatment)
        pushed[treatment] = deployment.facts().responses["config_bytes"]
        deployment.close()
    assert pushed["sidecar+mtls+scoped"] < 0.8 * pushed["sidecar+mtls"]


def test_services_that_nobody_calls_are_known_unless_configuration_is_scoped(tmp_path):
    """Two hundred unused services: every proxy holds them, and scoping removes them."""
    held, pushed = {}, {}
    for treatment, unused in (("sidecar+mtls", 0), ("sidecar+mtls", 200), ("sidecar+mtls+scoped", 200)):
        deployment = made(treatment, replace(LOAD, unused_services=unused))
        try:
            proofs = {proof.name: proof for proof in deployment.prove("before", 0)}
            deployment.snapshot()
            memory = sum(used.pss_bytes or 0 for used in deployment.snapshot().values() if used.role == "data plane")
            held[treatment, unused] = memory / 9
            pushed[treatment, unused] = deployment.facts().responses["config_bytes"]
        finally:
            deployment.close()
        assert [proof for proof in proofs.values() if not proof.passed] == []
        if unused:
            known = {"load-generator": "204", "client": "205", "server": "205"}
            scoped = {"load-generator": "2", "client": "3", "server": "2"}
            wanted = scoped if treatment.endswith("scoped") else known
            assert {tier: proofs[f"services known to a {tier} sidecar"].observed for tier in wanted} == wanted
    full, more = held["sidecar+mtls", 0], held["sidecar+mtls", 200]
    assert more - full > 200 * 4096  # at least one page for each of them
    # Other Envoys of this machine share pages with these, so PSS varies: only the nearer value is checked.
    assert held["sidecar+mtls+scoped", 200] < (full + more) / 2
    assert pushed["sidecar+mtls", 200] > pushed["sidecar+mtls", 0] + 9 * 200 * 50
    assert pushed["sidecar+mtls+scoped", 200] < pushed["sidecar+mtls", 0]


def test_the_wire_between_the_tiers_is_tls_for_the_right_caller_only():
    deployment = made("sidecar+mtls")
    try:
        at = (layout_of(deployment).address("server", 2), INBOUND)
        before = inbound_counts(layout_of(deployment), "server")
        answer = wire.http_get(*deployment.target.url.removeprefix("http://").removesuffix("/").split(":"), "/")
        assert answer.status == 200
        assert sum(inbound_counts(layout_of(deployment), "server")) == sum(before) + 1
        assert not wire.speak_h2(*at).accepted  # plain text
    finally:
        deployment.close()


def test_without_a_mesh_the_path_has_no_proxy(tmp_path):
    deployment = made("none")
    try:
        before = deployment.prove("before", 0)
        sent, found = measured(deployment, tmp_path)
        after = deployment.prove("after", sent)
        extra = deployment.facts().to_dict()
    finally:
        deployment.close()
    assert [proof for proof in (*before, *after) if not proof.passed] == []
    # At the first and at the last address.
    assert sorted(proof.name for proof in before) == 2 * ["no proxy headers"] + 2 * ["no proxy in the path"]
    assert (extra["proxies"], found.responses["data_plane_cpu_cores"]) == (0, 0)
    assert found.measurement.requests["latency_s"].min() > 0.04


def test_a_sidecar_that_ends_is_noticed():
    deployment = made("sidecar+mtls")
    try:
        (batch,) = deployment.batches
        os.kill(batch.pids[4], signal.SIGKILL)
        batch.launcher.wait(PATIENCE_S)
        with pytest.raises(TestbedError, match="client-2 ended with code -9"):
            batch.require_alive()
        assert all(not Path(f"/proc/{pid}").exists() for pid in batch.pids)
        (proof,) = deployment.prove("after", 1)
        assert (proof.name, proof.passed) == ("sidecars alive", False)
    finally:
        deployment.close()


SCRIPT = """
import json, sys, time
from meshtrial.signals import interruptible
from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.testbed.local.testbed import LocalTestbed
with interruptible():
    made = LocalTestbed().deploy(Treatment.parse("sidecar+mtls"), FixedRate(12, 6, 2, replicas=3), "tiers")
    try:
        pids = [*made.batches[0].pids, *(child.pid for child in made.children)]
        print(json.dumps({"pids": pids, "folder": str(made.folder)}), flush=True)
        sys.stdin.read()
    finally:
        made.close()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interruption_leaves_no_process(number, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said = json.loads(process.stdout.readline())
        assert len(said["pids"]) == 9 + 5
        assert all(Path(f"/proc/{pid}").exists() for pid in said["pids"])
        process.send_signal(number)
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()
    wait_for(lambda: not any(map(_runs, said["pids"])), PATIENCE_S)
    if number == signal.SIGKILL:
        # nobody was left to remove it
        shutil.rmtree(said["folder"])


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
