"""The arithmetic of ``meshtrial.load`` against what the real fortio does."""

import contextlib
import dataclasses
import json
import socket
import struct
import threading

import numpy as np
import polars as pl
import pytest

from meshtrial.design.responses import QUANTILES
from meshtrial.design.study import Gates, Load
from meshtrial.load import failures, fortio, histogram
from meshtrial.load.crosscheck import agrees_with
from meshtrial.load.gates import Machine, evaluate
from meshtrial.load.ingest import ingest
from meshtrial.load.result import read_result

pytestmark = pytest.mark.local


def logged(outputs, key="latency"):
    return np.array([json.loads(line)[key] for o in outputs for line in o.access_log_path.read_text().splitlines()])


def nearly_all(sent, load):
    """A machine that stalls at the end of the time costs fortio's connections sends that they do not make up."""
    return 0.9 * load.rps * load.duration_s <= sent <= load.rps * load.duration_s


def failed(measurement, load):
    found = evaluate(measurement, load, Gates(), Machine(None, load.duration_s, 2))
    return {gate.name for gate in found if not gate.passed}


def kinds(outputs, load):
    return failures.count(ingest(outputs, load, 0).requests)


def test_failures_by_kind_are_what_really_happened(fortio_server, generate):
    load = Load(rps=40, connections=4, duration_s=1, timeout_s=0.2)

    def called(target, name):
        (call,) = fortio.calls(load, "measure")
        return generate([dataclasses.replace(call, name=name)], target)

    assert kinds(called(fortio_server.refused, "refused"), load) == {"refused": 40}
    assert kinds(called(fortio_server.http + "?status=503", "status"), load) == {"503": 40}
    some = kinds(called(fortio_server.http + "?status=504:30,500:30", "some"), load)
    assert set(some) <= {"500", "504"}
    assert 2 <= sum(some.values()) < 40


def test_a_connection_that_breaks_before_its_answer_is_a_reset_and_silence_a_time_out(generate):
    load = Load(rps=20, connections=2, duration_s=1, timeout_s=0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        # The second half of the connections is never answered; both ends are closed when the test is over.
        kept = []

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.recv(4096)
                    if len(kept) >= 3:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        connection.close()
                    else:
                        kept.append(connection)

        serving = threading.Thread(target=answer, daemon=True)
        serving.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        found = kinds(generate(fortio.calls(load, "measure"), f"http://{address}/"), load)
        server.shutdown(socket.SHUT_RDWR)
        serving.join(5)
        for connection in kept:
            connection.close()
    # Two of the three that stayed silent are fortio's own calls before the first request.
    assert found["time-out"] == 1
    assert found["reset"] == sum(found.values()) - 1 > 5


def test_grpc_names_its_failures(fortio_server, generate):
    load = Load(rps=20, connections=2, duration_s=1, protocol="grpc", timeout_s=0.2)
    refused = fortio_server.refused.removeprefix("http://").rstrip("/")
    assert kinds(generate(fortio.calls(load, "measure"), refused), load) == {"refused": 20}


@pytest.mark.parametrize("catchup", [True, False])
def test_two_percent_of_stalls_hide_in_the_raw_numbers(fortio_server, generate, catchup):
    load = Load(rps=100, connections=2, duration_s=10, catchup=catchup)
    outputs = generate(fortio.calls(load, "measure"), fortio_server.http + "?delay=500ms:2")
    m = ingest(outputs, load, 10)
    # A hundredth of a stall. How fast an echo is otherwise is the machine's business on the day; the millisecond is
    # held on a recorded run in tests/unit/load/test_ingest.py.
    assert m.responses["latency_p90_s"] < 0.005
    # How often it stalls is up to chance. Each stall holds 20 sends up by more than a tenth of a second, but for a
    # connection's last, which the end of the run may cut short.
    stalls = int(((m.requests["latency_s"] > 0.4) & ~m.requests["imputed"]).sum())
    held = int((m.requests["corrected_latency_s"] > 0.1).sum())
    assert stalls > 3
    assert held >= 18 * (stalls - 2)
    assert m.responses["late_ratio"] > 0.015 * (stalls - 2)
    assert "late" in failed(m, load)
    if not catchup:
        assert m.requests["imputed"].sum() >= 18 * (stalls - 2)
        assert "rate" in failed(m, load)
    # Every send is there, sent or imputed, but for a connection's last when a stall runs over the end.
    assert 998 <= m.requests.height <= 1000
    assert not any("disagree" in note for note in m.notes)


def test_planned_offsets_are_those_of_the_real_scheduler(fortio_server, generate):
    load = Load(rps=80, connections=4, duration_s=3)
    m = ingest(generate(fortio.calls(load, "measure"), fortio_server.http), load, 10)
    behind = (m.requests["actual_start_s"] - m.requests["scheduled_start_s"]).to_numpy()
    assert m.generators[0].planned_requests == 240
    assert behind.min() > -1e-4  # never before its time
    # And where the machine lets it, at that time, from the first to the last send of every connection: an offset
    # that was wrong by a thread's turn would show 12 ms, one by a call 50.
    for thread in range(4):
        own = behind[m.requests["thread"].to_numpy() == thread]
        assert len(own) >= 54
        for part in np.array_split(own, 4):
            assert np.quantile(part, 0.25) < 0.003
    # The plan spans exactly the run: thread 3 starts 3/80 s later, and its sixtieth call is due 3 s after that.
    last = m.requests.filter(thread=3)["scheduled_start_s"].to_numpy()
    assert last[0] == pytest.approx(3 / 80, abs=1e-6)
    assert np.diff(last) == pytest.approx(3 / 59, abs=1e-6)
    assert m.responses["achieved_ratio"] == pytest.approx(1, abs=0.1)


def test_quantiles_are_numpys_and_the_histogram_is_fortios(fortio_server, generate):
    load = Load(rps=1000, connections=8, duration_s=3)
    (output,) = generate(fortio.calls(load, "measure", resolution_s=1e-6), fortio_server.http)
    m = ingest([output], load, 1)
    latencies = logged([output])
    assert len(latencies) == json.loads(output.json_path.read_text())["DurationHistogram"]["Count"]
    assert nearly_all(len(latencies), load)
    for name, q in QUANTILES.items():
        assert m.responses[f"latency_{name}_s"] == np.quantile(latencies, q)
    assert not any("disagree" in note or "could not be checked" in note for note in m.notes)
    # fortio's own percentiles, from its own JSON, by our reading of its interpolation.
    raw = json.loads(output.json_path.read_text())["DurationHistogram"]
    result = read_result(output.json_path)
    rebuilt = histogram.rebuild(result.latency, 1e-6)
    for item in raw["Percentiles"]:
        for data in (result.latency, rebuilt.export()):
            assert histogram.quantile(data, item["Percentile"] / 100).value_s == pytest.approx(item["Value"], rel=1e-9)
    assert 1e-6 in histogram.resolutions_of(result.latency)


def test_two_generators_are_their_concatenation(fortio_server, generate):
    load = Load(rps=500, connections=5, duration_s=3, generators=2)
    outputs = generate(fortio.calls(load, "measure", resolution_s=1e-6), fortio_server.http)
    m = ingest(outputs, load, 1)
    latencies = logged(outputs)
    for name, q in QUANTILES.items():
        assert m.responses[f"latency_{name}_s"] == np.quantile(latencies, q)
    assert m.requests["generator"].unique().sort().to_list() == [0, 1]
    assert [record.connections for record in m.generators] == [3, 2]
    assert nearly_all(len(latencies), load)
    results = [read_result(o.json_path) for o in outputs]
    merged = histogram.merge([r.latency for r in results], [r.resolution_s for r in results])
    assert agrees_with(merged, latencies) == ()
    assert failed(m, load) <= {"late", "rate"}


@pytest.mark.parametrize("keepalive", [True, False])
def test_closing_is_proven_by_the_socket_count(fortio_server, generate, keepalive):
    load = Load(rps=200, connections=4, duration_s=1, keepalive=keepalive)
    m = ingest(generate(fortio.calls(load, "measure"), fortio_server.http), load, 10)
    # One a request and fortio's warm-up call on each connection, or one a connection.
    sent = int(m.responses["requests"])
    assert nearly_all(sent, load)
    assert m.generators[0].sockets == (4 if keepalive else sent + 4)
    assert "sockets" not in failed(m, load)
    assert "sockets" in failed(m, Load(200, 4, 1, keepalive=not keepalive))


@pytest.mark.parametrize("protocol", ["http1", "h2", "grpc"])
def test_payloads_in_every_protocol(fortio_server, generate, protocol):
    load = Load(rps=50, connections=2, duration_s=1, payload_bytes=262_144, protocol=protocol)
    target = fortio_server.grpc if protocol == "grpc" else fortio_server.http
    m = ingest(generate(fortio.calls(load, "measure"), target), load, 10)
    assert m.responses["error_ratio"] == 0
    assert nearly_all(m.responses["requests"], load)
    assert not {"errors", "sockets", "connections"} & failed(m, load)


def test_a_closed_loop(fortio_server, generate):
    load = Load(rps=0, connections=2, duration_s=1)
    m = ingest(generate(fortio.calls(load, "measure"), fortio_server.http), load, 10)
    assert m.responses["achieved_rps"] > 200
    assert m.requests["scheduled_start_s"].null_count() == m.requests.height
    assert failed(m, load) == set()


def test_a_target_that_is_not_there_is_a_failed_gate_and_not_a_latency(fortio_server, generate):
    load = Load(rps=100, connections=2, duration_s=1)
    m = ingest(generate(fortio.calls(load, "measure"), fortio_server.refused), load, 1)
    assert m.responses["error_ratio"] == 1
    assert not any(name.startswith("latency") for name in m.responses)
    assert "errors" in failed(m, load)
    assert m.requests.select(pl.col("code").unique()).to_series().to_list() == ["refused"]


def test_the_warm_up_chooses_the_resolution_and_says_why_it_fails(fortio_server, generate):
    load = Load(rps=200, connections=2, duration_s=1, warmup_s=1)
    warm = ingest(generate(fortio.calls(load, "warmup"), fortio_server.http + "?delay=20ms"), load, 1)
    r = fortio.resolution_for(warm.requests["latency_s"].to_numpy())
    assert r in (1e-4, 1e-3)  # 20 ms: below 1000 x 0.1 ms; a neighbour may stretch it
    (output,) = generate(fortio.calls(load, "warmup"), fortio_server.refused)
    assert "connection refused" in output.text
