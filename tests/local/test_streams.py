"""Held streams of events through the data planes, on real processes."""

import polars as pl
import pytest
from local.studies import PATIENCE_S, exercise, recorded, study_of, without_twin

from meshtrial import native
from meshtrial.design.load import FixedRate, Load
from meshtrial.load import fortio
from meshtrial.load.generators import Target
from meshtrial.load.ingest import Measurement, ingest
from meshtrial.testbed.local import sockets
from meshtrial.testbed.local.deployment import run_generators
from meshtrial.testbed.local.processes import Child

PROTOCOLS = ("sse", "grpc-stream")


def load(protocol: str) -> Load:
    return FixedRate(200, 4, 1, protocol=protocol, response_bytes=100, headers=1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["none", "node-proxy", "sidecar", "sidecar+mtls+jwt", "sidecar+mtls+observability"])
def test_a_treatment_carries_streams_and_proves_itself(name, protocol, tmp_path):
    done = exercise(name, tmp_path, load(protocol), app="event-streams")
    assert done.failed == {}
    found = done.measured.responses
    assert (found["requests"], found["error_ratio"], found["streams_lost"]) == (200, 0, 0)
    assert 0 < found["first_event_mean_s"] <= found["first_event_max_s"]
    assert {"latency_p50_s", "event_gap_p50_s"} <= set(found)
    (record,) = done.measured.generators
    assert (record.sockets, record.connections, set(record.return_codes)) == (
        4,
        4,
        {"200" if protocol == "sse" else "OK"},
    )


def test_two_hundred_streams_are_held_and_what_they_cost_is_known(tmp_path):
    wanted = FixedRate(10_000, 200, 1, protocol="sse")
    done = exercise("none", tmp_path, wanted, app="event-streams")
    assert (done.measured.responses["requests"], done.measured.responses["streams_lost"]) == (10_000, 0)
    assert done.outputs[0].usage.cpu_s > 0
    assert next(part for part in done.usage if part.role == "app").cpu_s > 0


def received(protocol: str, folder, *delays: str) -> Measurement:
    """Return what one load receives from a server of its own."""
    address = "127.0.0.1"
    http_port, grpc_port = sockets.free_ports(address, 2)
    listens = ("-listen", f"{address}:{http_port}", "-grpc", f"{address}:{grpc_port}")
    server = Child(
        "app", (str(native.find("event-streams")), "serve", *listens, *delays), folder / "server.txt", folder
    )
    try:
        sockets.wait_listening(server, [(address, http_port), (address, grpc_port)])
        target = f"http://{address}:{http_port}/events" if protocol == "sse" else f"{address}:{grpc_port}"
        wanted = load(protocol)
        return ingest(run_generators(fortio.calls(wanted, "measure"), Target(target), folder, PATIENCE_S), wanted, 1)
    finally:
        server.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_delay_of_every_tenth_event_is_found_again(protocol, tmp_path):
    delayed = received(protocol, tmp_path, "-delay", "5ms", "-delay-every", "10")
    is_tenth = pl.col("iter") % 10 == 9
    tenths, others = (delayed.requests.filter(which)["latency_s"] for which in (is_tenth, ~is_tenth))
    assert (tenths.len(), others.len()) == (20, 180)
    # The minimum of each has the least delay from a busy machine, which is never negative.
    assert tenths.min() >= 0.005
    assert tenths.min() - others.min() == pytest.approx(0.005, abs=0.002)
    # Of the 49 gaps of a stream 9 deviate by the delay: those before a delayed event and those after one.
    assert delayed.responses["event_gap_p90_s"] >= 0.004


def test_a_study_of_streams_is_run_and_analysed():
    given = {"protocol": "sse", "app": "event-streams", "treatments": "none,node-proxy", "rates": "200"}
    given |= {"connections": "4", "duration_s": 1, "warmup_s": 0.2, "capacity": False, "blocks": 2, "slices": 2}
    study = without_twin(study_of("mesh_comparison", given | {"primary": "p50,first_event_mean_s,event_gap_p90_s"}))
    data = recorded(study)
    assert all(run.valid for run in data.runs), [run.reasons for run in data.runs]
    assert {"latency_p50_s", "event_gap_p90_s", "first_event_mean_s"} <= {row.response for row in data.verdicts}
    for run in data.runs:
        # Two slices of half a second, each after a second of warm-up.
        assert (run.responses["requests"], run.responses["streams_lost"]) == (600, 0)
        assert {"streams", "order"} <= {gate.name for gate in run.gates}
        assert run.versions["event-streams"]
