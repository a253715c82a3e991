"""Failed requests by kind: from the response's code, the generator's log, and the latency."""

import json

import polars as pl
import pytest

from meshtrial.load import failures


def line(thread: int, ts: float, msg: str, err: str = "", level: str = "err") -> str:
    return json.dumps({"ts": ts, "level": level, "msg": msg, "err": err, "thread": thread, "run": 0})


def log(*rows: tuple[int, bool, str, float]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["thread", "ok", "code", "latency_s"], orient="row")


REFUSED = ("Unable to connect", "dial tcp 127.0.0.1:9: connect: connection refused")
RESET = ("Read error", "read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer")
SLOW = ("Timeout error (incomplete/invalid response)", "read tcp: i/o timeout")


def test_each_thread_is_explained_by_its_own_lines_in_their_order():
    rows = log((0, False, "-1", 0.001), (0, True, "200", 0.002), (0, False, "-1", 0.002), (1, False, "-1", 0.5))
    text = "\n".join([line(0, 2.0, *RESET), "Fortio 1.68.1 running", line(1, 1.5, *SLOW), line(0, 1.0, *REFUSED), "{"])
    found = failures.explained(rows, text, 0.5)
    assert found["code"].to_list() == ["refused", "200", "reset", "time-out"]
    assert found["ok"].to_list() == [False, True, False, False]
    assert failures.count(found) == {"refused": 1, "reset": 1, "time-out": 1}


def test_the_call_before_the_first_request_is_not_taken_for_one():
    rows = log((0, False, "-1", 0.001), (0, False, "-1", 0.001))
    text = "\n".join([line(0, 1, *REFUSED), line(0, 2, *RESET), line(0, 3, *REFUSED)])
    assert failures.explained(rows, text, 5)["code"].to_list() == ["reset", "refused"]


@pytest.mark.parametrize("text", ["", line(0, 1, *REFUSED), line(0, 1, *REFUSED, level="info")])
def test_what_nobody_logged_is_what_its_latency_says(text: str):
    rows = log((0, False, "-1", 0.001), (0, False, "-1", 5.0), (0, False, "503", 5.0))
    assert failures.explained(rows, text, 5)["code"].to_list() == ["no answer", "time-out", "503"]


def test_an_answer_after_the_time_out_is_a_failure_although_the_second_try_was_good():
    found = failures.explained(log((0, True, "200", 0.51), (0, True, "200", 0.49)), "", 0.5)
    assert found["ok"].to_list() == [False, True]
    assert found["code"].to_list() == ["time-out", "200"]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('rpc error: code = Unavailable desc = connection error: desc = "dial tcp: connection refused"', "refused"),
        ("rpc error: code = DeadlineExceeded desc = context deadline exceeded", "time-out"),
        ("rpc error: code = Unavailable desc = error reading from server: EOF", "reset"),
        ("rpc error: code = PermissionDenied desc = RBAC: access denied", "PermissionDenied"),
        ("short read", "reset"),  # of fortio's TCP client
        ("NOT_SERVING", "no answer"),
        ("Unable to resolve hostname: no such host", "no answer"),
    ],
)
def test_errors_in_words(said: str, kind: str):
    assert failures.kind_of(said) == kind
    assert failures.explained(log((3, False, said, 0.1)), "", 5)["code"].to_list() == [kind]


def test_a_statuss_number_stays():
    rows = log((0, False, "503", 0.1), (0, False, "503", 0.1), (0, False, "404", 0.1), (0, True, "200", 0.1))
    found = failures.explained(rows, "", 5)
    assert found.equals(rows)
    assert failures.count(found) == {"503": 2, "404": 1}
    assert failures.in_words(failures.count(found)) == "503: 2, 404: 1"
