"""The end of the session's cluster. conftest.py moves this behind every other test, of whatever file."""

from __future__ import annotations

from clusterenv import Cluster, snapshot


def test_down_leaves_nothing(cluster: Cluster, before_cluster: snapshot.Snapshot) -> None:
    cluster.stop()
    assert cluster.leftovers() == []
    assert before_cluster.added(snapshot.take()) == {}
    assert not cluster.layout.run.exists()
