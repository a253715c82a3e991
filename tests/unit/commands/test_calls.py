"""``meshtrial calls``: from a Prometheus and a cluster to a system file that ``predict`` reads."""

import json

import pytest
import yaml
from answering import answering, recorded
from commandline import meshtrial

from meshtrial.design.system import read_system


def kubeconfig(folder, server: str) -> str:
    named = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "shop-cluster", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "shop-cluster", **named}))
    return str(path)


def pods(path: str, _: object) -> tuple[int, bytes]:
    """Two pods of the service cart, in one namespace."""
    metadata = {"namespace": "shop", "labels": {"app": "cart"}}
    items = [
        {"metadata": metadata | {"name": name}, "status": {"phase": "Running"}}
        for name in ("a", "b")
        if "/shop/" in path
    ]
    return 200, json.dumps({"items": items}).encode()


@pytest.fixture(autouse=True)
def without_a_cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def test_a_system_file_with_replicas_of_the_cluster(tmp_path):
    with answering(recorded("istio")) as prometheus, answering(pods) as cluster:
        code, out, err = meshtrial(
            "calls", "--prometheus", prometheus, "--namespace", "shop", "--kubeconfig", kubeconfig(tmp_path, cluster)
        )
    assert (code, err) == (0, "")
    path = tmp_path / "system.yaml"
    path.write_text(out)
    assert read_system(path).services["cart"].replicas == 2
    notes = [line for line in out.splitlines() if line.startswith("#")]
    assert "shop-cluster" in notes[-1]
    assert "frontend" in notes[-1]  # without a pod there


def test_without_a_cluster_replicas_are_one_and_the_file_says_so(tmp_path):
    with answering(recorded("linkerd")) as prometheus:
        code, out, _ = meshtrial("calls", "--prometheus", prometheus)
    assert code == 0
    assert "# Replicas are 1" in out
    assert "replicas:" not in out


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (("--range", "1 hour"), "range"),
        (("--timeout", "0"), "timeout"),
        (("--token-file", "none"), "none: cannot be read"),
        (("--kubeconfig", "none"), "kubeconfig"),
        (("--namespace", "none"), "no call from or to none"),
    ],
)
def test_what_is_wrong_is_one_line(more, part):
    with answering(recorded("istio")) as prometheus:
        code, out, err = meshtrial("calls", "--prometheus", prometheus, *more)
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1
