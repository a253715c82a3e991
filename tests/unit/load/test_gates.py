import dataclasses

import pytest
from refused import as_reviewed

from meshtrial.design.load import ClosedLoop, FixedRate
from meshtrial.design.study import Gates
from meshtrial.load.gates import Machine, evaluate
from meshtrial.load.ingest import ingest

LOAD = FixedRate(rps=100, connections=2, duration_s=10)


def fast(thread, i):
    return 0.001


@pytest.fixture
def judge(fortio):
    def judge(
        sent, load=LOAD, *, cpu_s=1.0, cpus=2.0, throttled_s=0.0, foreign=0.01, exit_code=0, disturbed=False, **changes
    ):
        changes = {"SocketCount": load.connections} | changes
        output = fortio.output(sent, load.asked_rps, load.connections, load.duration_s, exit_code=exit_code, **changes)
        m = ingest([output], load, 10)
        found = evaluate(
            m, load, Gates(), Machine(cpu_s, load.duration_s, cpus, throttled_s, foreign), disturbed=disturbed
        )
        return {gate.name: gate for gate in found}

    return judge


def failed(gates):
    return {name for name, gate in gates.items() if not gate.passed}


def test_a_good_run_passes_every_gate_without_words(judge, fortio):
    gates = judge(fortio.run(100, 2, 10, fast))
    assert failed(gates) == set()
    assert [g.message for g in gates.values()] == [""] * len(gates)
    assert list(gates) == [
        *("rate", "late", "generator late", "errors", "generator CPU", "foreign load", "throttling"),
        *("generator ended well", "connections", "sockets"),
    ]
    assert gates["generator CPU"].value == 0.05  # 1 s of 2 cores for 10 s


def test_late_sends_on_free_connections_are_the_generators_fault(judge, fortio):
    # Each connection sends every 20 ms; one send in ten is 25 ms late, and the next one waits for it.
    put_off = {5: 25_000_000, 6: 6_500_000}
    sent = [
        dataclasses.replace(send, start_ns=send.start_ns + put_off.get(send.iteration % 10, 0))
        for send in fortio.run(100, 2, 10, fast)
    ]
    gates = judge(sent)
    assert failed(gates) == {"generator late"}
    as_reviewed(gates["generator late"].message)
    # After late responses only the treatment's check fails.
    assert "generator late" not in failed(judge(fortio.run(20, 1, 10, lambda thread, i: 0.1), FixedRate(20, 1, 10)))


@pytest.mark.parametrize(
    ("changed", "gate", "passes"),
    [
        ({"foreign": 0.10}, "foreign load", True),
        ({"foreign": 0.11}, "foreign load", False),
        ({"foreign": None}, "foreign load", True),
        ({"cpu_s": 13.9}, "generator CPU", True),
        ({"cpu_s": 14.0}, "generator CPU", False),
        ({"cpu_s": None}, "generator CPU", True),
        ({"throttled_s": 0.2}, "throttling", False),
        ({"throttled_s": None}, "throttling", True),
        ({"SocketCount": 5}, "sockets", False),
        ({"SocketCount": None}, "sockets", True),
        ({"exit_code": 2}, "generator ended well", False),
    ],
)
def test_a_problem_outside_the_load_fails_its_check_alone_or_is_reported(judge, fortio, changed, gate, passes):
    gates = judge(fortio.run(100, 2, 10, fast), **changed)
    assert failed(gates) == (set() if passes else {gate})
    unmeasured = None in changed.values()
    assert (gates[gate].value is None) == unmeasured
    # A check that failed, or could not be made, has a message.
    assert bool(gates[gate].message) == (unmeasured or not passes)
    if changed == {"SocketCount": 5}:
        assert (gates[gate].value, gates[gate].threshold) == (3, 0)


def test_a_plan_from_before_the_gate_has_none(fortio):
    load = FixedRate(100, 2, 10)
    m = ingest([fortio.output(fortio.run(100, 2, 10, fast), 100, 2, 10, exit_code=0, SocketCount=2)], load, 10)
    found = evaluate(m, load, Gates(foreign_load=None), Machine(1.0, 10.0, 2.0, 0.0, 0.9))
    assert "foreign load" not in {gate.name for gate in found}


def test_saturation_fails_the_rate(judge, fortio):
    gates = judge(fortio.run(20, 1, 10, lambda thread, i: 0.1), FixedRate(20, 1, 10))
    assert {"rate", "late"} <= failed(gates)
    assert gates["rate"].value == pytest.approx(0.5, abs=0.02)
    as_reviewed(gates["rate"].message)


def test_stalls_fail_the_late_gate_alone(judge, fortio):
    sent = fortio.run(100, 2, 10, lambda thread, i: 0.5 if i % 100 == 50 else 0.0003)
    assert failed(judge(sent)) == {"late"}


@pytest.mark.parametrize(("bad", "expected"), [(10, set()), (11, {"errors"})])
def test_one_percent_of_errors_is_allowed(judge, fortio, bad, expected):
    sent = [
        dataclasses.replace(s, ok=n >= bad, code="200" if n >= bad else "503")
        for n, s in enumerate(fortio.run(100, 2, 10, fast))
    ]
    gates = judge(sent)
    assert failed(gates) == expected
    if expected:
        as_reviewed(gates["errors"].message)


def test_fewer_connections_than_asked(judge, fortio):
    assert "connections" in failed(judge(fortio.run(100, 1, 10, fast), NumThreads=1))


def test_reconnecting_after_a_failure_is_allowed(judge, fortio):
    sent = fortio.run(100, 2, 10, fast)
    sent[:3] = [dataclasses.replace(s, ok=False, code="-1") for s in sent[:3]]
    assert failed(judge(sent, SocketCount=5)) == set()


def test_really_closing_is_proven_by_the_socket_count(judge, fortio):
    load = dataclasses.replace(LOAD, keepalive=False)
    sent = fortio.run(100, 2, 10, fast)
    # 1000 requests and fortio's warm-up call on each of 2 connections.
    assert failed(judge(sent, load, SocketCount=1002)) == set()
    gates = judge(sent, load, SocketCount=2)
    assert failed(gates) == {"sockets"}
    as_reviewed(gates["sockets"].message)


def test_a_closed_loop_that_was_stopped(judge, fortio):
    sent = [fortio.Sent(0, i, fortio.START_NS + i * 10**7, 0.01) for i in range(100)]
    gates = judge(sent, ClosedLoop(1, 2))
    assert failed(gates) == {"generator ended well"}
    as_reviewed(gates["generator ended well"].message)


def test_a_closed_loop_has_no_rate_and_no_lateness(judge, fortio):
    sent = [fortio.Sent(t, i, fortio.START_NS + i * 10**7, 0.01) for t in (0, 1) for i in range(200)]
    gates = judge(sent, ClosedLoop(2, 2))
    assert not {"rate", "late"} & set(gates)
    assert failed(gates) == set()


def test_what_a_restart_does_to_its_requests_takes_no_run_away(judge, fortio):
    # A tenth of a second after every response: late, and slower than requested.
    sent = fortio.run(20, 1, 10, lambda thread, i: 0.1)
    assert "late" in failed(judge(sent, FixedRate(20, 1, 10)))
    calm = judge(sent, FixedRate(20, 1, 10), SocketCount=50, disturbed=True)
    assert list(calm) == ["generator CPU", "foreign load", "throttling", "generator ended well", "connections"]
    assert failed(calm) == set()
