import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from meshtrial.design.load import ClosedLoop, FixedRate, Load
from meshtrial.errors import UsageError
from meshtrial.load import fortio
from meshtrial.load.generators import Target
from meshtrial.load.schedule import argument


def only(load: Load, phase: str = "measure", **more):
    (call,) = fortio.calls(load, phase, **more)
    return call


def test_the_whole_command_of_a_plain_load():
    call = only(FixedRate(rps=500, connections=10, duration_s=2.5), resolution_s=1e-6)
    assert call.name == "measure-g1"
    assert " ".join(call.arguments) == (
        "-qps 500 -c 10 -t 2.5s -uniform -r 0.000001 -timeout 5s "
        "-allow-initial-errors -log-errors=false -loglevel Error -labels measure-g1"
    )


def test_the_warm_up_is_short_and_says_why_a_target_fails():
    call = only(FixedRate(rps=500, connections=10, duration_s=2.5, warmup_s=1.5), "warmup")
    assert argument(call.arguments, "-t") == "1.5s"
    assert argument(call.arguments, "-loglevel") == "Warning"
    assert fortio.calls(FixedRate(rps=500, connections=10, duration_s=2.5, warmup_s=0), "warmup") == ()


@pytest.mark.parametrize(
    ("load", "level"),
    [
        (FixedRate(1000, 10, 100), "Error"),
        (FixedRate(1000, 10, 101), "Critical"),  # 101,000 lines if all requests fail
        (ClosedLoop(10, 1), "Critical"),  # nobody knows how many
    ],
)
def test_failures_are_logged_where_so_many_lines_can_be_kept(load, level):
    assert argument(only(load).arguments, "-loglevel") == level


@pytest.mark.parametrize(
    ("load", "present", "absent"),
    [
        (ClosedLoop(4, 1), ("-qps 0 ",), ("-uniform", "-nocatchup")),
        (ClosedLoop(4, 1, catchup=False), (), ("-nocatchup",)),
        (FixedRate(10, 1, 1, catchup=False), ("-uniform -nocatchup ",), ()),
        (FixedRate(10, 1, 1), ("-uniform ",), ("-jitter",)),
        (FixedRate(10, 1, 1, arrivals="jitter"), ("-uniform -jitter ",), ()),
        (FixedRate(10, 1, 1, response_bytes=262_144), ("-httpbufferkb 320 ",), ("-payload-size",)),
        (FixedRate(10, 1, 1, headers=2), (f"-H x-meshtrial-001:{48 * 'm'} ", "-H x-meshtrial-002:mmm"), ("-003",)),
        (FixedRate(10, 1, 1, timeout_s=0.5), ("-timeout 0.5s ",), ()),
        (FixedRate(10, 1, 1, keepalive=False), ("-keepalive=false ",), ()),
        (FixedRate(10, 1, 1, protocol="h2"), ("-h2 -stdclient ",), ("-grpc",)),
        (FixedRate(10, 1, 1, protocol="grpc"), ("-grpc -ping ",), ("-h2",)),
        (FixedRate(10, 1, 1, payload_bytes=1024), ("-payload-size 1024 ",), ("-httpbufferkb",)),
        # 262144 B = 256 KiB, and 64 KiB for headers: the fast client's default of 128 KiB would truncate the response.
        (FixedRate(10, 1, 1, payload_bytes=262_144), ("-payload-size 262144 -httpbufferkb 320 ",), ()),
        (FixedRate(10, 1, 1, payload_bytes=262_144, protocol="h2"), (), ("-httpbufferkb",)),
    ],
)
def test_factors_become_flags(load, present, absent):
    text = " ".join(only(load).arguments)
    assert all(part in text for part in present)
    assert not any(part in text for part in absent)


def test_idle_connections_are_opened_one_by_one_and_wait_longer_than_any_run():
    assert fortio.idle(FixedRate(100, 4, 2)) is None
    call = fortio.idle(FixedRate(100, 4, 2, idle_connections=1000, keepalive=False))
    assert "-sequential-warmup" in call.arguments
    assert "-keepalive=false" not in call.arguments
    assert argument(call.arguments, "-c") == "1000"
    calls = float(argument(call.arguments, "-qps")) * float(argument(call.arguments, "-t").removesuffix("s"))
    assert int(calls) >= 2 * 1000  # with fewer, fortio would use fewer connections
    assert 1 / float(argument(call.arguments, "-qps")) > 3600  # between two requests over all of them


def test_connections_and_rate_are_split_in_proportion():
    # 10 connections over 3: 4 + 3 + 3; 1000 rps in the same proportion: 400 + 300 + 300.
    calls = fortio.calls(FixedRate(1000, 10, 2, generators=3), "measure")
    assert [argument(c.arguments, "-c") for c in calls] == ["4", "3", "3"]
    assert [argument(c.arguments, "-qps") for c in calls] == ["400", "300", "300"]
    assert [c.name for c in calls] == ["measure-g1", "measure-g2", "measure-g3"]


def test_a_slice_has_a_name_of_its_own_and_includes_its_warm_up():
    load = FixedRate(100, 4, 2, slices=3, slice_warmup_s=0.5)
    slices = [only(load, slice_index=i) for i in range(3)]
    assert [call.name for call in slices] == ["measure-1-g1", "measure-2-g1", "measure-3-g1"]
    assert {argument(call.arguments, "-t") for call in slices} == {"2.5s"}


def test_generators_of_a_mixed_load_alternate_and_answers_have_the_declared_size():
    calls = fortio.calls(FixedRate(100, 5, 2, protocol="mixed", generators=3), "measure")
    assert [("-ping" in call.arguments, call.grpc) for call in calls] == [(False, False), (True, True), (False, False)]
    target = Target("http://127.0.0.1:1/echo", (("a", "b"),), "127.0.0.1:2")
    assert [target.arguments(call) for call in calls[:2]] == [("-H", "a:b", target.url), ("-H", "a:b", "127.0.0.1:2")]
    sized = Target("http://a/echo", copies=("http://b/echo",)).asking(1000)
    assert (sized.url, sized.copies) == ("http://a/echo?size=1000", ("http://b/echo?size=1000",))
    assert Target("http://a/echo").asking(0).url == "http://a/echo"


@given(st.floats(1e-6, 1e5))
def test_numbers_are_exact_and_without_exponent(value):
    text = fortio.plain(value)
    assert float(text) == value
    assert "e" not in text


MIXED = {"connections": 4, "duration_s": 2, "protocol": "mixed"}


@pytest.mark.parametrize(
    "asked",
    [
        # One request per connection; fortio would otherwise use 5 connections.
        {"connections": 10},
        *({"keepalive": False, "protocol": one} for one in ("h2", "grpc")),
        MIXED | {"generators": 1},
        MIXED | {"generators": 2, "payload_bytes": 9},
        {"protocol": "tcp", "payload_bytes": 31},
        {"response_bytes": 10, "protocol": "grpc"},
    ],
)
def test_what_fortio_cannot_do_is_refused(asked):
    with refused(UsageError):
        fortio.calls(FixedRate(**{"rps": 10, "connections": 1, "duration_s": 1} | asked), "measure")


def test_connections_without_any_bytes_to_send_are_a_load():
    (call,) = fortio.calls(FixedRate(10, 1, 1, protocol="tcp", keepalive=False), "measure")
    assert "-keepalive=false" in call.arguments
    assert "-payload-size" not in call.arguments
    (call,) = fortio.calls(FixedRate(10, 1, 1, protocol="tcp", keepalive=False, payload_bytes=262_144), "measure")
    assert "-httpbufferkb" in call.arguments


@pytest.mark.parametrize(
    ("p999", "expected"),
    [
        (0.0002, 1e-6),  # the access log's own resolution is the floor
        (0.00099, 1e-6),  # below 1000 x 1 us
        (0.001, 1e-5),  # not below
        (0.482, 1e-3),
        (30.0, 1e-1),
        (1e6, 1.0),
        (float("nan"), fortio.DEFAULT_RESOLUTION_S),  # no warm-up
    ],
)
def test_resolution_is_the_smallest_power_of_ten_that_holds_the_tail(p999, expected):
    assert fortio.resolution_for([p999] * 3) == expected


def test_what_keeps_a_deployment_warm_goes_on_over_one_connection():
    assert fortio.trickle(FixedRate(100, 4, 2)) is None
    call = fortio.trickle(FixedRate(100, 8, 2, trickle_rps=5, generators=2, protocol="mixed", headers=1))
    assert call is not None
    shown = [argument(call.arguments, flag) for flag in ("-qps", "-c", "-t", "-labels")]
    assert shown == ["5", "1", "86400s", "trickle"]
    assert "-H" in call.arguments
    assert not call.grpc
