import pytest

from meshtrial.compare.request import margins_for, metrics_of
from meshtrial.design.responses import PERCENTILES


def test_margins():
    metrics = metrics_of("p50,p99,p50")
    assert [metric.name for metric in metrics] == ["latency_p50_s", "latency_p99_s"]
    default = margins_for([], metrics)
    assert (default["latency_p50_s"].relative, default["latency_p50_s"].floor) == (0.05, 5e-5)
    given = margins_for(["p50=0.2ms", "p99=20%"], metrics)
    assert given["latency_p50_s"].floor == pytest.approx(2e-4)
    assert given["latency_p99_s"].relative == 0.2
    everywhere = margins_for(["3%"], metrics)
    assert {margin.relative for margin in everywhere.values()} == {0.03}


def test_every_percentile_of_the_registry_is_a_metric():
    assert [metric.name for metric in metrics_of("p95")] == ["latency_p95_s"]
    for key, found in PERCENTILES.items():
        assert metrics_of(key) == metrics_of(found.label)


def test_a_margin_of_its_own_for_what_is_not_registered():
    (metric,) = metrics_of("fps")
    assert margins_for([], [metric]) == {}
    assert margins_for(["fps=5%"], [metric])["fps"].relative == pytest.approx(0.05)
