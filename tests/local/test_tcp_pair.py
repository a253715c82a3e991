"""Two proxies that pass bytes on: all protocols go through them, and a proof says so."""

from __future__ import annotations

import pytest

from meshtrial.design.study import Load, Treatment
from meshtrial.errors import UsageError
from meshtrial.load import fortio, ingest
from meshtrial.testbed.local import tcp_pair
from meshtrial.testbed.local.testbed import LocalTestbed

pytestmark = pytest.mark.beside


def exercise(folder, load: Load):
    deployment = LocalTestbed().deploy(Treatment.parse("tcp-pair"), load, "echo")
    try:
        proofs = list(deployment.prove("before", 0))
        measured = ingest.ingest(deployment.generate(fortio.calls(load, "measure"), folder, 30), load, 1)
        proofs += deployment.prove("after", int(measured.responses["requests"]))
        names = {watched.component for watched in deployment.watched}
        return {p.name for p in proofs if not p.passed}, names, measured
    finally:
        deployment.close()


@pytest.mark.parametrize("protocol", ["h2", "mixed"])
def test_bytes_of_every_protocol_go_through_both(protocol, tmp_path):
    load = Load(100, 4, 0.5, protocol=protocol, generators=1 + (protocol == "mixed"))
    failed, names, measured = exercise(tmp_path, load)
    assert failed == set()
    assert names == {"app", "client TCP proxy", "server TCP proxy"}
    assert measured.responses["error_ratio"] == 0


def test_a_way_around_it_is_found(tmp_path, monkeypatch):
    real = tcp_pair.LocalDeployment.set_target

    def around(self, entries, *more, **kinds):
        real(self, self.apps_of_test, *more, **kinds)

    spawn = tcp_pair.LocalDeployment.spawn_app

    def remembered(self, copy=0):
        self.apps_of_test = spawn(self, copy)
        return self.apps_of_test

    monkeypatch.setattr(tcp_pair.LocalDeployment, "spawn_app", remembered)
    monkeypatch.setattr(tcp_pair.LocalDeployment, "set_target", around)
    failed, _, _ = exercise(tmp_path, Load(100, 4, 0.5))
    assert failed == {"bytes through the client", "bytes through the server"}


def test_copies_are_refused():
    with pytest.raises(UsageError, match="it has one target for each protocol; leave replicas out"):
        LocalTestbed().deploy(Treatment.parse("tcp-pair"), Load(100, 4, 0.5, replicas=2, generators=2), "echo")


@pytest.mark.parametrize("name", ["none", "node-proxy", "tcp-pair"])
def test_bytes_are_a_load_of_their_own(name, tmp_path):
    load = Load(0, 2, 0.5, payload_bytes=16384, protocol="tcp")
    deployment = LocalTestbed().deploy(Treatment.parse(name), load, "echo")
    try:
        proofs = list(deployment.prove("before", 0))
        measured = ingest.ingest(deployment.generate(fortio.calls(load, "measure"), tmp_path, 30), load, 1)
        proofs += deployment.prove("after", int(measured.responses["requests"]))
    finally:
        deployment.close()
    assert [p for p in proofs if not p.passed] == []
    assert measured.responses["error_ratio"] == 0
    sent = measured.responses["requests"] * 16384
    assert measured.responses["throughput_bytes_s"] == pytest.approx(sent / 0.5, rel=0.2)
    assert deployment.target.url.startswith("tcp://127.")


def test_what_has_no_bytes_to_carry_is_refused():
    load = Load(100, 4, 0.5, payload_bytes=1000, protocol="tcp")
    with pytest.raises(UsageError, match="a sidecar here reads HTTP; bytes pass a tcp-pair or a node-proxy"):
        LocalTestbed().deploy(Treatment.parse("sidecar"), load, "echo")
