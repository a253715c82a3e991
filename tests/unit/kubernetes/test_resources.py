"""A meter over scripted readings, one kubelet response after the other."""

import json
from pathlib import Path

import pytest
from refused import refused
from unit.kubernetes.rendering import our_meshes

from meshtrial.errors import TestbedError
from meshtrial.testbed.base import usage_between
from meshtrial.testbed.kubernetes.resources import (
    ContainerSample,
    Meter,
    MonitoredContainer,
    Reading,
    parse_cadvisor,
    parse_node,
    parse_summary,
    parse_time,
    parts_of,
)

pytestmark = pytest.mark.usefixtures("clock")  # nobody waits for real

APP, PROXY = ("trial", "echo-1", "echo"), ("trial", "echo-1", "istio-proxy")
PARTS = (
    MonitoredContainer(APP, "n1", "server", "app"),
    MonitoredContainer(PROXY, "n1", "server sidecar", "data plane"),
)


def reading(at: float, app: float, proxy: float, throttled: float = 0.0) -> Reading:
    return Reading({APP: ContainerSample(at, app, 1000, throttled), PROXY: ContainerSample(at + 0.5, proxy, 2000)})


def meter(*script: Reading, patience_s: float = 5.0) -> Meter:
    left = list(script)

    def read(_cluster: object, _nodes: object) -> Reading:
        return left.pop(0) if len(left) > 1 else left[0]

    return Meter(None, PARTS, patience_s, read)  # type: ignore[arg-type]


def test_a_snapshot_waits_for_the_next_reading_and_says_its_window():
    found = meter(
        reading(100, 1.0, 2.0),  # known when the snapshot was requested
        reading(100, 1.0, 2.0),  # nothing new yet
        reading(110, 1.5, 2.5, 0.25),  # the next reading: the snapshot
        reading(120, 2.0, 3.0, 0.5),  # known when the second one was requested
        reading(140, 4.5, 8.5, 0.75),
    )
    before, after = found.snapshot(), found.snapshot()
    usage = {u.component: u for u in usage_between(before, after)}
    # 30 s between the readings; 4.5 - 1.5 = 3 s of CPU; 8.5 - 2.5 = 6 s.
    assert usage["server"].window_s == pytest.approx(30)
    assert usage["server"].cpu_s == pytest.approx(3.0)
    assert usage["server"].throttled_s == pytest.approx(0.5)
    assert usage["server"].pss_bytes == 1000
    assert usage["server sidecar"].cpu_s == pytest.approx(6.0)
    assert usage["server sidecar"].throttled_s is None
    assert found.windows[0]["n1"] == {"first_unix_s": 110, "last_unix_s": 110.5}
    assert found.notes == []


APP_ALONE = Reading({APP: ContainerSample(110, 1.5, 1000, 0.0)})
SILENT = Reading({}, silent=("n1",))
STALE = "; ".join(f"{'/'.join(key)}: no fresh CPU sample within 0.4 s" for key in (APP, PROXY))
UNREAD = "node n1: its kubelet's metrics cannot be read (rights nodes/metrics and nodes/stats?)"


@pytest.mark.parametrize(
    ("later", "said"),
    [(reading(100, 1, 2), STALE), (APP_ALONE, "trial/echo-1/istio-proxy: no CPU sample"), (SILENT, UNREAD)],
)
def test_a_reading_that_does_not_come_spoils_the_run_but_not_where_no_cpu_is_taken_from_it(later, said):
    script = reading(100, 1, 2), *[later] * 2
    with refused(TestbedError):
        meter(*script, patience_s=0.4).snapshot()
    found = meter(*script, patience_s=0.4)
    found.needed = False
    assert found.snapshot().keys() == ({"server"} if later is APP_ALONE else set())
    assert "; ".join(found.notes) == said


def test_a_restarted_container_spoils_the_run():
    found = meter(
        reading(100, 9, 9), reading(110, 9, 9), reading(110, 9, 9), reading(110, 9, 9), reading(120, 0.1, 9.5)
    )
    found.snapshot()
    with refused(TestbedError):
        found.snapshot()


def pod(name: str, labels: dict, containers: list[str], node: str, namespace: str = "trial", init: tuple = ()) -> dict:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "nodeName": node,
            "containers": [{"name": c} for c in containers],
            "initContainers": [{"name": c, "restartPolicy": "Always"} for c in init] + [{"name": "istio-init"}],
        },
    }


def test_roles_by_selectors():
    app = pod(
        "echo-1",
        {"meshtrial.dev/part": "app", "meshtrial.dev/component": "server"},
        ["echo", "opa"],
        "n1",
        init=("istio-proxy",),
    )
    load = pod(
        "load-1",
        {"meshtrial.dev/part": "load", "meshtrial.dev/component": "client"},
        ["fortio"],
        "n2",
        init=("istio-proxy",),
    )
    agents = [pod(f"ztunnel-{n}", {}, ["ztunnel"], n, "istio-system") for n in ("n1", "n2", "n3")]
    control = [pod("istiod-1", {}, ["discovery"], "n3", "istio-system")]
    parts = parts_of(our_meshes()["istio"], [app, load], (), {"ztunnel": agents}, {"istiod": control})
    found = {(p.component, p.role, p.key[1], p.key[2]) for p in parts}
    assert found == {
        ("server", "app", "echo-1", "echo"),
        ("server opa", "policy", "echo-1", "opa"),
        ("server sidecar", "data plane", "echo-1", "istio-proxy"),
        # fortio itself is metered by its own process, or it would be counted twice
        ("client sidecar", "data plane", "load-1", "istio-proxy"),
        # n3 carries none of our pods: its agent is not on the path
        ("ztunnel", "data plane", "ztunnel-n1", "ztunnel"),
        ("ztunnel", "data plane", "ztunnel-n2", "ztunnel"),
        ("istiod", "control plane", "istiod-1", "discovery"),
    }


# --- kubelets ---------------------------------------------------------------------------------------------------------

DATA = Path(__file__).parent / "data"
LOAD, LOAD_PROXY = ("x", "load-86cfd769d-hsxn8", "fortio"), ("x", "load-86cfd769d-hsxn8", "istio-proxy")
PROBE = ("x-probe", "probe", "fortio")


def test_cadvisor_has_cpu_memory_and_throttling_with_the_time_of_the_reading():
    samples = parse_cadvisor((DATA / "cadvisor.txt").read_text())
    assert set(samples) == {LOAD, LOAD_PROXY, PROBE}  # no pod sandboxes, no cgroups above
    assert samples[LOAD].cpu_s == pytest.approx(0.04070631)
    assert samples[LOAD].at == pytest.approx(1795234593.941)
    assert samples[LOAD].memory_bytes == 4341760
    # Only the proxy has a CPU limit, so only it can be throttled.
    assert {key: samples[key].throttled_s for key in samples} == {LOAD: None, LOAD_PROXY: 0.0, PROBE: None}


def test_summary_has_the_native_sidecar_as_a_container_of_its_own():
    samples = parse_summary(json.loads((DATA / "summary.json").read_text()))
    assert set(samples) == {LOAD, LOAD_PROXY, PROBE}
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
        assert parse_cadvisor(text)["n", "p", "c"].cpu_s == 0.5


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
