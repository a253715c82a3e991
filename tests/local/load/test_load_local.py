"""The arithmetic of ``meshtrial.load`` against real fortio."""

import contextlib
import dataclasses
import http.server
import itertools
import json
import socket
import struct
import threading
import time

import numpy as np
import polars as pl
import pytest
from local.studies import told

from meshtrial.design.load import ClosedLoop, FixedRate
from meshtrial.design.responses import QUANTILES
from meshtrial.design.study import Gates
from meshtrial.load import failures, fortio, histogram
from meshtrial.load.gates import Machine, evaluate
from meshtrial.load.ingest import ingest
from meshtrial.load.result import read_result

pytestmark = pytest.mark.local


def logged(outputs, key="latency"):
    return np.array([json.loads(line)[key] for o in outputs for line in o.access_log_path.read_text().splitlines()])


def counted(outputs, load):
    """Return the number of requests that fortio reports: at most the planned ones; fewer on a slow machine."""
    sent = sum(told(outputs))
    assert 0 < sent <= load.rps * load.duration_s
    return sent


def failed(measurement, load):
    found = evaluate(measurement, load, Gates(), Machine(None, load.duration_s, 2))
    return {gate.name for gate in found if not gate.passed}


def kinds(outputs, load):
    return failures.count(ingest(outputs, load, 0).requests)


def test_failures_by_kind_are_what_really_happened(fortio_server, generate):
    load = FixedRate(rps=40, connections=4, duration_s=1, timeout_s=0.2)

    def called(target, name):
        (call,) = fortio.calls(load, "measure")
        return generate([dataclasses.replace(call, name=name)], target)

    refused = called(fortio_server.refused, "refused")
    assert kinds(refused, load) == {"refused": counted(refused, load)}
    status = called(fortio_server.http + "?status=503", "status")
    assert kinds(status, load) == {"503": counted(status, load)}
    some = called(fortio_server.http + "?status=504:30,500:30", "some")
    assert set(kinds(some, load)) <= {"500", "504"}
    # fortio's own counts by code, without 200.
    codes = json.loads(some[0].json_path.read_text())["RetCodes"]
    assert kinds(some, load) == {code: number for code, number in codes.items() if code != "200"}


def test_a_connection_that_breaks_before_its_answer_is_a_reset_and_silence_a_time_out(generate):
    # Long compared with the time that this machine needs to break a connection.
    load = FixedRate(rps=20, connections=2, duration_s=1, timeout_s=1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        # The first three are never answered; two of them are fortio's own calls before the first request. All other
        # requests are broken, and both ends are closed after the test.
        silent = []

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.recv(4096)
                    if len(silent) < 3:
                        silent.append(connection)
                    else:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        connection.close()

        serving = threading.Thread(target=answer, daemon=True)
        serving.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        outputs = generate(fortio.calls(load, "measure"), f"http://{address}/")
        server.shutdown(socket.SHUT_RDWR)
        serving.join(5)
        for connection in silent:
            connection.close()
    assert kinds(outputs, load) == {"time-out": 1, "reset": counted(outputs, load) - 1}


def test_grpc_names_its_failures(fortio_server, generate):
    load = FixedRate(rps=20, connections=2, duration_s=1, protocol="grpc", timeout_s=0.2)
    refused = fortio_server.refused.removeprefix("http://").rstrip("/")
    outputs = generate(fortio.calls(load, "measure"), refused)
    assert kinds(outputs, load) == {"refused": counted(outputs, load)}


@contextlib.contextmanager
def stalling(every, stall_s):
    """Start a loopback server that delays every n-th answer; return its address and the count of delayed answers."""
    lock, seen, held = threading.Lock(), itertools.count(1), []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body are sent together, so no delayed acknowledgement comes between them.
        wbufsize = -1

        def do_GET(self):
            with lock:
                stalls = next(seen) % every == 0
                if stalls:
                    held.append(self.path)
            if stalls:
                time.sleep(stall_s)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", held
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize("catchup", [True, False])
def test_two_percent_of_stalls_hide_in_the_raw_numbers(generate, catchup):
    load = FixedRate(rps=100, connections=2, duration_s=6, catchup=catchup)
    with stalling(every=50, stall_s=0.5) as (address, held):
        outputs = generate(fortio.calls(load, "measure"), address)
    m = ingest(outputs, load, 10)
    assert len(held) > 3
    # Measured from the send, nine of ten latencies are far below a stall.
    assert m.responses["latency_p90_s"] < 0.25
    # One stall per delayed answer; this machine may add one of its own.
    stalls = int(((m.requests["latency_s"] > 0.45) & ~m.requests["imputed"]).sum())
    assert stalls >= len(held) - 2  # each connection's last send may be cut off by the end
    # Each stall delays 20 sends by more than a tenth of a second, except for a connection's last.
    late = int((m.requests["corrected_latency_s"] > 0.1).sum())
    assert late >= 18 * (len(held) - 2)
    assert m.responses["late_ratio"] > 15 * (len(held) - 2) / 600
    assert "late" in failed(m, load)
    if not catchup:
        assert m.requests["imputed"].sum() >= 18 * (len(held) - 2)
        assert "rate" in failed(m, load)
    # Every send is recorded or imputed, except for a connection's last if a stall exceeds the run.
    assert m.requests.height == counted(outputs, load) + m.requests["imputed"].sum()
    assert 598 <= m.requests.height <= 600
    assert not any("disagree" in note for note in m.notes)


def test_planned_offsets_are_those_of_the_real_scheduler(fortio_server, generate):
    # A slow rate: an error of the plan (62 ms per thread, 250 ms per call) exceeds any delay of the machine.
    load = FixedRate(rps=16, connections=4, duration_s=3)
    outputs = generate(fortio.calls(load, "measure"), fortio_server.http)
    m = ingest(outputs, load, 10)
    behind = (m.requests["actual_start_s"] - m.requests["scheduled_start_s"]).to_numpy()
    assert m.generators[0].planned_requests == 48
    assert behind.min() > -1e-4  # never before its time
    for thread in range(4):
        own = behind[m.requests["thread"].to_numpy() == thread]
        # The same holds from first to last send of every connection; the most punctual send proves it.
        for part in np.array_split(own, 3):
            assert part.min() < 0.03
    # The plan covers exactly the run: thread 3 starts 3/16 s later, and its twelfth call is due 3 s after that.
    last = m.requests.filter(thread=3)["scheduled_start_s"].to_numpy()
    assert last[0] == pytest.approx(3 / 16, abs=1e-6)
    assert np.diff(last) == pytest.approx(3 / 11, abs=1e-6)
    assert m.responses["achieved_ratio"] == pytest.approx(counted(outputs, load) / 48, abs=0.05)


def test_jittered_arrivals_lie_around_the_same_plan(fortio_server, generate):
    # Five calls per connection, half a second apart: a tenth of the wait, which is longer after an early send.
    even = FixedRate(rps=50, connections=20, duration_s=2)
    moved = {}
    for load in (even, dataclasses.replace(even, arrivals="jitter")):
        call = dataclasses.replace(fortio.calls(load, "measure")[0], name=load.arrivals)
        outputs = generate([call], fortio_server.http)
        assert read_result(outputs[0].json_path).jitter is (load.arrivals == "jitter")
        m = ingest(outputs, load, 10)
        later = m.requests.filter(pl.col("iter") > 0).select(pl.col("actual_start_s") - pl.col("scheduled_start_s"))
        moved[load.arrivals] = later.to_series().to_numpy()
    # Evenly spaced calls never leave early, however slow the machine is; jittered calls do, by a tenth at most.
    assert moved["uniform"].min() > -1e-4
    assert -0.5 / 9 - 1e-4 < moved["jitter"].min() < -1e-3


def test_quantiles_are_numpys_and_the_histogram_is_fortios(fortio_server, generate):
    load = FixedRate(rps=1000, connections=8, duration_s=3)
    (output,) = generate(fortio.calls(load, "measure", resolution_s=1e-6), fortio_server.http)
    m = ingest([output], load, 1)
    latencies = logged([output])
    assert len(latencies) == counted([output], load)
    for name, q in QUANTILES.items():
        assert m.responses[f"latency_{name}_s"] == np.quantile(latencies, q)
    assert not any("disagree" in note or "could not be checked" in note for note in m.notes)
    # fortio's own percentiles in its JSON, compared with our reading of its interpolation.
    raw = json.loads(output.json_path.read_text())["DurationHistogram"]
    result = read_result(output.json_path)
    rebuilt = histogram.rebuild(result.latency, 1e-6)
    for item in raw["Percentiles"]:
        for data in (result.latency, rebuilt.export()):
            assert histogram.quantile(data, item["Percentile"] / 100).value_s == pytest.approx(item["Value"], rel=1e-9)
    assert 1e-6 in histogram.resolutions_of(result.latency)


def test_two_generators_are_their_concatenation(fortio_server, generate):
    load = FixedRate(rps=500, connections=5, duration_s=3, generators=2)
    outputs = generate(fortio.calls(load, "measure", resolution_s=1e-6), fortio_server.http)
    m = ingest(outputs, load, 1)
    latencies = logged(outputs)
    for name, q in QUANTILES.items():
        assert m.responses[f"latency_{name}_s"] == np.quantile(latencies, q)
    assert m.requests["generator"].unique().sort().to_list() == [0, 1]
    assert [record.connections for record in m.generators] == [3, 2]
    assert len(latencies) == counted(outputs, load)
    results = [read_result(o.json_path) for o in outputs]
    merged = histogram.merge(results)
    assert histogram.agrees_with(merged, latencies) == ()
    assert failed(m, load) <= {"late", "generator late", "rate"}


@pytest.mark.parametrize("keepalive", [True, False])
def test_closing_is_proven_by_the_socket_count(fortio_server, generate, keepalive):
    load = FixedRate(rps=200, connections=4, duration_s=1, keepalive=keepalive)
    outputs = generate(fortio.calls(load, "measure"), fortio_server.http)
    m = ingest(outputs, load, 10)
    # One per request and one for fortio's warm-up call on each connection, or one per connection.
    sent = counted(outputs, load)
    assert m.generators[0].sockets == (4 if keepalive else sent + 4)
    assert "sockets" not in failed(m, load)
    assert "sockets" in failed(m, FixedRate(200, 4, 1, keepalive=not keepalive))


@pytest.mark.parametrize("protocol", ["http1", "h2", "grpc"])
def test_payloads_in_every_protocol(fortio_server, generate, protocol):
    load = FixedRate(rps=50, connections=2, duration_s=1, payload_bytes=262_144, protocol=protocol)
    target = fortio_server.grpc if protocol == "grpc" else fortio_server.http
    outputs = generate(fortio.calls(load, "measure"), target)
    m = ingest(outputs, load, 10)
    assert m.responses["error_ratio"] == 0
    assert m.responses["requests"] == counted(outputs, load)
    assert not {"errors", "sockets", "connections"} & failed(m, load)


def test_a_closed_loop(fortio_server, generate):
    load = ClosedLoop(connections=2, duration_s=1)
    outputs = generate(fortio.calls(load, "measure"), fortio_server.http)
    m = ingest(outputs, load, 10)
    assert m.responses["requests"] == sum(told(outputs)) > load.connections
    assert m.responses["achieved_rps"] == pytest.approx(sum(told(outputs)) / m.generators[0].duration_s)
    assert m.requests["scheduled_start_s"].null_count() == m.requests.height
    assert failed(m, load) == set()


def test_a_target_that_is_not_there_is_a_failed_gate_and_not_a_latency(fortio_server, generate):
    load = FixedRate(rps=100, connections=2, duration_s=1)
    m = ingest(generate(fortio.calls(load, "measure"), fortio_server.refused), load, 1)
    assert m.responses["error_ratio"] == 1
    assert not any(name.startswith("latency") for name in m.responses)
    assert "errors" in failed(m, load)
    assert m.requests.select(pl.col("code").unique()).to_series().to_list() == ["refused"]


def test_the_warm_up_chooses_the_resolution_and_says_why_it_fails(fortio_server, generate):
    load = FixedRate(rps=200, connections=2, duration_s=1, warmup_s=1)
    warm = ingest(generate(fortio.calls(load, "warmup"), fortio_server.http + "?delay=20ms"), load, 1)
    r = fortio.resolution_for(warm.requests["latency_s"].to_numpy())
    assert r in (1e-4, 1e-3)  # 20 ms is below 1000 x 0.1 ms; other programs may stretch it
    (output,) = generate(fortio.calls(load, "warmup"), fortio_server.refused)
    assert "connection refused" in output.text
