"""Two proxies that pass bytes: all protocols pass them, as a proof shows."""

import pytest
from local.studies import exercise

from meshtrial.design.load import ClosedLoop, FixedRate
from meshtrial.testbed.local.deployment import Spec


@pytest.mark.parametrize("protocol", ["h2", "mixed"])
def test_bytes_of_every_protocol_go_through_both(protocol, tmp_path):
    load = FixedRate(100, 4, 0.5, protocol=protocol, generators=1 + (protocol == "mixed"))
    done = exercise("tcp-pair", tmp_path, load)
    assert done.failed == {}
    assert {used.component for used in done.usage} == {"app", "client TCP proxy", "server TCP proxy"}
    assert done.measured.responses["error_ratio"] == 0


def test_a_way_around_it_is_found(tmp_path, monkeypatch):
    apps = []
    start, target = Spec.start_app, Spec.target

    def remembered(spec, fleet):
        apps[:] = start(spec, fleet)
        return tuple(apps)

    monkeypatch.setattr(Spec, "start_app", remembered)
    monkeypatch.setattr(Spec, "target", lambda spec, _: target(spec, apps))
    assert set(exercise("tcp-pair", tmp_path, FixedRate(100, 4, 0.5)).failed) == {
        "bytes through the client",
        "bytes through the server",
    }


@pytest.mark.parametrize("name", ["none", "node-proxy", "tcp-pair"])
def test_bytes_are_a_load_of_their_own(name, tmp_path):
    done = exercise(name, tmp_path, ClosedLoop(2, 0.5, payload_bytes=16384, protocol="tcp"))
    assert done.failed == {}
    assert done.measured.responses["error_ratio"] == 0
    (generator,) = done.measured.generators
    passed = generator.requests * 16384 / generator.duration_s
    assert done.measured.responses["throughput_bytes_s"] == pytest.approx(passed, rel=1e-6)
    assert done.outputs[0].argv[-1].startswith("tcp://127.")


@pytest.mark.parametrize("name", ["none", "node-proxy", "tcp-pair"])
def test_connections_are_a_load_of_their_own(name, tmp_path):
    done = exercise(name, tmp_path, FixedRate(100, 2, 1, protocol="tcp", keepalive=False))
    assert done.failed == {}
    (generator,) = done.measured.generators
    # One per request, and one for fortio's warm-up call on each of the two.
    assert generator.sockets == generator.requests + 2
    assert 0 < done.measured.responses["connect_mean_s"] <= done.measured.responses["latency_mean_s"]
    assert "throughput_bytes_s" not in done.measured.responses
