"""Parse the response of a real kubelet (1.34.4) for a node with an injected load pod and the probe."""

import json
from pathlib import Path

import pytest

from meshtrial.testbed.kubernetes.resources import parse_cadvisor, parse_node, parse_summary, parse_time

DATA = Path(__file__).parent / "data"
LOAD, PROXY = ("x", "load-86cfd769d-hsxn8", "fortio"), ("x", "load-86cfd769d-hsxn8", "istio-proxy")
PROBE = ("x-probe", "probe", "fortio")


def test_cadvisor_has_cpu_memory_and_throttling_with_the_time_of_the_reading():
    samples, throttled = parse_cadvisor((DATA / "cadvisor.txt").read_text())
    assert set(samples) == {LOAD, PROXY, PROBE}  # no pod sandboxes, no cgroups above
    assert samples[LOAD].cpu_s == pytest.approx(0.04070631)
    assert samples[LOAD].at == pytest.approx(1795234593.941)
    assert samples[LOAD].memory_bytes == 4341760
    # Only the proxy has a CPU limit, so only it can be throttled.
    assert throttled == {PROXY: 0.0}


def test_summary_has_the_native_sidecar_as_a_container_of_its_own():
    samples = parse_summary(json.loads((DATA / "summary.json").read_text()))
    assert set(samples) == {LOAD, PROXY, PROBE}
    assert samples[LOAD].cpu_s == pytest.approx(0.080019607)
    assert samples[LOAD].at == parse_time("2026-11-21T04:16:35Z")


def test_node():
    node = parse_node(json.loads((DATA / "summary.json").read_text()))
    assert node is not None
    assert node.cpu_s == pytest.approx(9771.960618226)
    assert node.cores_used == pytest.approx(2.000528135)
    assert parse_node({"node": {}}) is None


def test_a_container_without_a_sample_yet_is_left_out():
    container = {"name": "new", "cpu": {"time": None}}
    pod = {"podRef": {"namespace": "x", "name": "p"}, "containers": [container]}
    assert parse_summary({"pods": [pod]}) == {}
    assert parse_summary({}) == {}


def test_of_a_restarted_container_the_later_reading_counts():
    labels = 'container="c",namespace="n",pod="p",id="{}"'
    lines = [
        f"container_cpu_usage_seconds_total{{{labels.format('old')}}} 9 1000",
        f"container_cpu_usage_seconds_total{{{labels.format('new')}}} 0.5 2000",
    ]
    for text in ("\n".join(lines), "\n".join(reversed(lines))):
        samples, _ = parse_cadvisor(text)
        assert samples["n", "p", "c"].cpu_s == 0.5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T00:00:10.123456789Z", 10.123456789),
        ("1970-01-01T02:00:10+02:00", 10.0),
        ("1970-01-01T02:00:10.5+02:00", 10.5),
        ("1969-12-31T19:00:10.25-05:00", 10.25),
    ],
)
def test_times(text: str, seconds: float):
    assert parse_time(text) == pytest.approx(seconds)
