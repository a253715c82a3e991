"""A control plane's histogram of pushes: read, subtracted, described."""

import pytest

from meshtrial.testbed.kubernetes import probing

PAGE = """# HELP pilot_proxy_convergence_time Delay between config change and a proxy receiving it.
# TYPE pilot_proxy_convergence_time histogram
pilot_proxy_convergence_time_bucket{le="0.1"} 90
pilot_proxy_convergence_time_bucket{le="0.5"} 99
pilot_proxy_convergence_time_bucket{le="+Inf"} 100
pilot_proxy_convergence_time_sum 7.5
pilot_proxy_convergence_time_count 100
pilot_proxy_convergence_time_other_count 7
"""
NAME = "pilot_proxy_convergence_time"


def test_a_page_is_read():
    found = probing.parse_histogram(PAGE, NAME)
    assert (found.count, found.total_s) == (100, 7.5)
    assert found.buckets == {0.1: 90, 0.5: 99}
    assert probing.parse_histogram("", NAME) == probing.Histogram()


def test_what_lies_between_two_readings_is_described():
    later = PAGE.replace("} 90", "} 100").replace("} 99", "} 119").replace("_count 100", "_count 120")
    later = later.replace("_sum 7.5", "_sum 11.5")
    found = probing.describe_pushes(probing.parse_histogram(later, NAME).since(probing.parse_histogram(PAGE, NAME)))
    assert found == {"count": 20, "mean_s": pytest.approx(0.2), "p99_at_most_s": 0.5}
    assert probing.describe_pushes(probing.parse_histogram(PAGE, NAME).since(probing.parse_histogram(PAGE, NAME))) == {}


def test_a_control_plane_that_began_anew_is_read_from_its_start():
    fresh = probing.Histogram(3, 0.3, {0.1: 3})
    assert fresh.since(probing.parse_histogram(PAGE, NAME)) == fresh


def test_pods_of_several_replicas_add_up():
    labelled = PAGE.replace("_sum ", '_sum{pod="a"} ').replace("_count ", '_count{pod="a"} ')
    assert probing.parse_histogram(labelled + PAGE, NAME).count == 200
