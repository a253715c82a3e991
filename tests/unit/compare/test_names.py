import pytest

from meshtrial.compare.names import find_response, margins_for, metrics_of
from meshtrial.errors import UsageError


@pytest.mark.parametrize(
    ("name", "unit", "found", "factor"),
    [
        ("p50", "ms", "latency_p50_s", 1e-3),
        ("p99.9_ms", "", "latency_p999_s", 1e-3),
        ("average", "us", "latency_mean_s", 1e-6),
        ("latency_p99_s", "", "latency_p99_s", 1.0),
        ("p50", "", "latency_p50_s", None),
        ("path_cpu_cores", "", "path_cpu_cores", 1.0),
        ("cores", "cores", "cores", 1.0),
    ],
)
def test_responses_by_any_name(name, unit, found, factor):
    response, scale = find_response(name, unit)
    assert (response.name, scale) == (found, factor)


def test_a_unit_that_is_no_time():
    with pytest.raises(UsageError, match="'MB' is no time"):
        find_response("p50", "MB")


def test_margins():
    metrics = metrics_of("p50,p99,p50")
    assert [metric.name for metric in metrics] == ["latency_p50_s", "latency_p99_s"]
    default = margins_for([], metrics)
    assert (default["latency_p50_s"].relative, default["latency_p50_s"].floor) == (0.05, 1e-4)
    given = margins_for(["p50=0.2ms", "p99=20%"], metrics)
    assert given["latency_p50_s"].floor == pytest.approx(2e-4)
    assert given["latency_p99_s"].relative == 0.2
    everywhere = margins_for(["3%"], metrics)
    assert {margin.relative for margin in everywhere.values()} == {0.03}
