"""Readings from inside the cluster, from given pages."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import probing

BOTH = ["10.0.0.1", "10.0.0.2"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that advances only by waiting."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def total(monkeypatch: pytest.MonkeyPatch, page: Callable[[str], str]) -> float:
    def scrape(cluster: Any, probe: Any, urls: Sequence[str]) -> list[str]:
        return [page(url) for url in urls]

    monkeypatch.setattr(probing, "scrape", scrape)
    return probing.total(None, None, BOTH, "5670/metrics", r"(?m)^requests (\d+)")


def test_a_page_that_comes_late_is_asked_for_again_and_no_other(monkeypatch, clock):
    asked: list[str] = []

    def page(url: str) -> str:
        asked.append(url)
        return "requests 7\n" if BOTH[0] in url or asked.count(url) > 2 else "\n"

    assert total(monkeypatch, page) == 14
    first, second = (f"http://{address}:5670/metrics" for address in BOTH)
    assert asked == [first, second, second, second]


def test_a_page_that_never_comes_is_an_error_that_names_it(monkeypatch, clock):
    with refused(TestbedError, names=[f"{BOTH[1]}:5670/metrics"]):
        total(monkeypatch, lambda url: "requests 7\n" if BOTH[0] in url else "\n")
    assert 20 < clock.now < 60


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        ("one\n=====meshtrial=====\ntwo\n=====meshtrial=====\n", ["one\n", "two\n"]),
        ("one\n=====meshtrial=====\nhalf of tw", ["one\n", ""]),
        ("", ["", ""]),
    ],
)
def test_pages_that_were_cut_off_did_not_come(monkeypatch: pytest.MonkeyPatch, text: str, pages: list[str]):
    monkeypatch.setattr(probing, "run", lambda *_, **__: SimpleNamespace(text=text))
    assert probing.scrape(None, None, BOTH) == pages  # type: ignore[arg-type]


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
