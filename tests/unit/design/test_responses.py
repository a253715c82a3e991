"""The registry of responses, their names, and what a further percentile requires."""

import importlib.util
import sys
from pathlib import Path

import pytest
from building import built
from refused import refused

from meshtrial.design import responses
from meshtrial.design.responses import (
    PERCENTILES,
    REGISTRY,
    declared_margins,
    declared_scales,
    default_margins,
    default_scales,
    find_response,
    response,
)
from meshtrial.errors import UsageError
from meshtrial.margin import Margin


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
    with refused(UsageError):
        find_response("p50", "MB")


def test_a_percentile_is_registered_with_all_that_belongs_to_it():
    found = response("p99.9")
    assert (found.name, found.label, found.unit, found.kind) == ("latency_p999_s", "p99.9 latency", "ms", "latency")
    assert found.percentile is PERCENTILES["p999"]
    assert found.margin == Margin(0.20, 5e-5)
    assert REGISTRY["data_plane_cpu_cores"].part.role == "data plane"
    assert REGISTRY["data_plane_cpu_cores"].structural_zero
    assert REGISTRY["path_cpu_cores"].part.members == ("app", "data plane", "policy")
    assert REGISTRY["app_cpu_cores"].part.members == ("app",)


def test_a_further_percentile_is_one_line(tmp_path, monkeypatch):
    source = tmp_path / "more_responses.py"
    line = "        Percentile(0.99, 0.10, marked=True),\n"
    text = Path(responses.__file__).read_text()
    assert text.count(line) == 1
    source.write_text(text.replace(line, line + "        Percentile(0.995, 0.15),\n"))
    spec = importlib.util.spec_from_file_location("more_responses", source)
    more = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "more_responses", more)
    spec.loader.exec_module(more)
    assert more.QUANTILES["p995"] == 0.995
    for name in ("p99.5", "p995", "latency_p995_s", "p99.5_ms"):
        assert more.find_response(name)[0].label == "p99.5 latency"
    added = {"latency_p995_s", "latency_corrected_p995_s", "latency_net_p995_s", "event_gap_p995_s"}
    assert more.REGISTRY.keys() - REGISTRY.keys() == added | {
        f"latency_{where}_p995_s" for where in ("http", "grpc", "restart_window")
    }
    assert more.default_margins()["latency_p995_s"] == Margin(0.15, 5e-5)


def test_declared_margins_keep_what_they_do_not_give():
    found = declared_margins(["p50=3%", "p99 = 0.2ms"], default_margins())
    assert found["latency_p50_s"] == Margin(0.03, 5e-5)
    assert found["latency_p99_s"] == Margin(0.10, 2e-4)
    assert built("ambient_vs_no_mesh", margin="p50=3%, p99=0.2ms").margins == found


def test_a_margin_belongs_to_the_response_before_it_and_without_one_to_all():
    known = default_margins()
    found = declared_margins(["20%, 1ms, p50=5%,0.2ms"], known)
    assert found["latency_p50_s"] == Margin(0.05, 2e-4)
    assert found["latency_p99_s"] == Margin(0.2, 1e-3)
    assert found["path_memory_bytes"] == Margin(0.2, known["path_memory_bytes"].floor)
    assert built("ambient_vs_no_mesh", margin="20%,1ms,p50=5%,0.2ms").margins == found
    found = declared_margins(["5% of 2ms, 10% of 200us"], known)
    assert (found["latency_p99_s"].relative, found["latency_p99_s"].floor) == (0.0, pytest.approx(1e-4))
    assert found["path_cpu_s_per_request"].floor == pytest.approx(2e-5)
    assert found["path_memory_bytes"] == known["path_memory_bytes"]
    with refused(UsageError):
        declared_margins(["5%,1furlong"], known)


def test_effects_are_judged_by_ratio_unless_they_are_counts_or_a_plan_declares_otherwise():
    scales = default_scales()
    by_ratio = ("latency_p99_s", "latency_mean_s", "path_cpu_s_per_request", "path_memory_bytes", "capacity_rps")
    assert {scales[name] for name in by_ratio} == {"ratio"}
    assert {scales[name] for name in ("failed_requests", "propagation_all_deny_s")} == {"difference"}
    changed = declared_scales(["p99=difference", "path_memory_bytes=difference"], scales)
    assert changed == scales | {"latency_p99_s": "difference", "path_memory_bytes": "difference"}
    assert built("mesh_comparison", scale="p50=difference").scales == declared_scales(["p50=difference"], scales)


@pytest.mark.parametrize("item", ["p50", "p50=log", "achieved_rps=ratio", "failed_requests=ratio"])
def test_a_scale_that_cannot_be_used_is_refused(item):
    with refused(UsageError, names=["scale", item]):
        declared_scales([item], {})


@pytest.mark.parametrize(
    "item", ["p50", "5%,3%", "p50=5%,3%", "latency_max_s=5%", "path_cpu_cores=1ms", "p50=wide", "nothing=5%"]
)
def test_a_margin_that_cannot_be_used_is_refused(item):
    with pytest.raises(UsageError):
        declared_margins([item], default_margins())
