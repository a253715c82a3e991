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
