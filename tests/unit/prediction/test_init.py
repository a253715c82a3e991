"""A treatment adds to a system the sum of its single hops' costs at the proxies' own rates."""

from dataclasses import replace

import numpy as np
import pytest
from unit.prediction.single_hops import (
    APP_US,
    CALLEE_US,
    CALLER_US,
    MIB,
    loads,
    node_proxy,
    recorded,
    sidecars,
    usage,
    write_latencies,
)

from meshtrial import prediction
from meshtrial.design.system import Call, CallStep, Parallel, Service, System
from meshtrial.errors import UsageError
from meshtrial.inference.money import HOURS_A_MONTH
from meshtrial.prediction import Options, predict
from meshtrial.prediction.blocks import PROBABILITIES
from meshtrial.prediction.latency import Hop, quantiles_of_path
from meshtrial.prediction.ranges import CPU_ERROR, OWN_EXPONENTS

US = 1e-6
EXACT = Options(model_error=0.0)


def chain(*rps: float, **services: Service) -> System:
    """a calls b, b calls c and so on, at these rates."""
    names = "abcdefg"
    return System(services, tuple(Call(names[i], names[i + 1], rate) for i, rate in enumerate(rps)))


def test_one_hop_costs_what_was_measured():
    found = predict(chain(100), [recorded({"sidecar": sidecars})], "sidecar", options=EXACT)
    assert found.services["a"].cores.value == pytest.approx(100 * CALLER_US[100] * US)
    assert found.services["b"].cores.value == pytest.approx(100 * CALLEE_US[100] * US)
    assert found.cores.value == pytest.approx(100 * 500 * US)
    assert found.cores.low == pytest.approx(found.cores.high)  # without noise
    assert (found.baseline, found.proxies, found.nodes, found.blocks, found.left_out) == ("none", 2, 0, 6, ())


def test_a_proxy_costs_what_its_own_rate_costs():
    # b's proxy carries 200 + 800 requests per second, those of a and c a number between two rates.
    found = predict(chain(200, 800), [recorded({"sidecar": sidecars})], "sidecar")
    assert found.services["b"].cores.value == pytest.approx((200 * CALLEE_US[1000] + 800 * CALLER_US[1000]) * US)
    # log10(200) is 2.301: 30.1 % of the way from 300 to 200 us.
    assert found.services["a"].cores.value == pytest.approx(200 * (300 - 30.103) * US)


def test_replicas_share_the_rate_and_hold_a_proxy_each():
    data = [recorded({"sidecar": sidecars})]
    found = predict(chain(200, b=Service("b", replicas=2), a=Service("a", replicas=2)), data, "sidecar")
    assert found.services["b"].cores.value == pytest.approx(200 * CALLEE_US[100] * US)
    assert found.memory_bytes.value == pytest.approx(4 * 40 * MIB)
    assert found.proxies == 4


def test_a_service_outside_has_no_proxy():
    found = predict(chain(100, a=Service("a", outside=True)), [recorded({"sidecar": sidecars})], "sidecar")
    assert found.services["a"].cores.value == 0
    assert found.cores.value == pytest.approx(100 * CALLEE_US[100] * US)
    assert found.memory_bytes.value == pytest.approx(40 * MIB)


@pytest.mark.parametrize("backend", OWN_EXPONENTS)
@pytest.mark.parametrize(("nodes", "machine_rps"), [(0, 100), (1, 500), (2, 250), (50, 100)])
def test_a_call_costs_less_on_a_busy_node(nodes, machine_rps, backend):
    local = recorded({"sidecar": sidecars})
    data = [replace(local, plan=replace(local.plan, study=replace(local.plan.study, backend=backend)))]
    # The calls have 500 rps in all, and both proxies of a call are on one machine.
    found = predict(chain(100, 200, 200), data, "sidecar", options=Options(nodes=nodes))
    own_exponent = OWN_EXPONENTS[backend]
    read_at = 100**own_exponent * machine_rps ** (1 - own_exponent)
    cost_us = np.interp(np.log(read_at), np.log([100, 1000]), [CALLER_US[100], CALLER_US[1000]])
    assert found.services["a"].cores.value == pytest.approx(100 * cost_us * US)


def test_a_study_with_two_applications_is_no_single_hop():
    data = recorded({"sidecar": lambda load, noise: [*sidecars(load), usage("other", "app", 10.0, load.rps)]})
    with pytest.raises(UsageError, match="complete blocks of sidecar and none"):
        predict(chain(100), [data], "sidecar")


def test_a_rate_below_the_measured_ones_has_an_envelope():
    found = predict(chain(10), [recorded({"sidecar": sidecars})], "sidecar", options=EXACT)
    cores = found.services["a"].cores
    assert cores.value is None
    # A request costs at least what it costs at 100 rps, and a second at most.
    assert cores.low == pytest.approx(10 * CALLER_US[100] * US)
    assert cores.high == pytest.approx(100 * CALLER_US[100] * US)


def test_a_rate_above_has_an_envelope_up_to_twice_the_highest_and_then_no_number():
    data = [recorded({"sidecar": sidecars})]
    cores = predict(chain(1600), data, "sidecar", options=EXACT).services["a"].cores
    assert cores.low == pytest.approx(1000 * CALLER_US[1000] * US)
    assert cores.high == pytest.approx(1600 * CALLER_US[1000] * US)
    found = predict(chain(100, 3000), data, "sidecar", options=EXACT)
    assert set(found.left_out) == {"b", "c"}
    assert "highest measured, 1000 rps" in found.services["b"].reason
    assert found.cores.value == pytest.approx(100 * CALLER_US[100] * US)
    assert found.month is None


def test_the_difference_of_two_treatments_is_taken_within_blocks():
    half = {100: 250.0, 1000: 150.0}

    def cheaper(load, noise):
        return [usage("client sidecar", "data plane", half[int(load.rps)] + noise, load.rps, 30.0)]

    data = recorded({"sidecar": sidecars, "sidecar+mtls": cheaper})
    found = predict(chain(100), [data], "sidecar", "sidecar+mtls", options=EXACT)
    assert found.cores.value == pytest.approx(100 * (500 - 250) * US)
    # Outside the measured rates each treatment has its own bounds.
    below = predict(chain(10), [data], "sidecar", "sidecar+mtls", options=EXACT).services["a"].cores
    assert below.low == pytest.approx((10 * 300 - 100 * 250) * US)
    assert below.high == pytest.approx((100 * 300 - 10 * 250) * US)


def test_a_call_passes_the_proxies_of_two_nodes():
    found = predict(chain(100, 100), [recorded({"node-proxy": node_proxy})], "node-proxy", options=Options(nodes=2))
    assert found.cores.value == pytest.approx(200 * 80 * US)
    assert found.services["b"].cores.value == pytest.approx(100 * 80 * US)
    assert (found.proxies, found.nodes) == (0, 2)
    assert found.memory_bytes.value == pytest.approx(2 * 10 * MIB)
    # On 20 nodes each proxy has a tenth of the rate, which is below the measured ones.
    spread = predict(chain(100, 100), [recorded({"node-proxy": node_proxy})], "node-proxy", options=Options(nodes=20))
    assert spread.cores.value is None


def test_proxies_of_nodes_on_one_machine_are_two_components():
    def local(load, noise):
        return [usage(f"{end} node proxy", "data plane", 40.0, load.rps, 10.0) for end in ("client", "server")]

    found = predict(chain(100), [recorded({"node-proxy": local})], "node-proxy")
    assert found.cores.value == pytest.approx(100 * 80 * US)
    assert (found.proxies, found.nodes) == (0, 2)
    assert found.memory_bytes.value == pytest.approx(2 * 10 * MIB)


def test_sidecars_are_compared_with_proxies_of_nodes():
    data = recorded({"sidecar": sidecars, "node-proxy": node_proxy})
    found = predict(chain(100), [data], "node-proxy", "sidecar", Options(core_hour=0.04, request_cores=0.1))
    assert found.cores.value == pytest.approx(100 * (80 - 500) * US)
    assert (found.proxies, found.nodes) == (0, 2)
    assert found.memory_bytes.value == pytest.approx((2 * 10 - 2 * 40) * MIB)
    assert found.month_requested == 0  # two proxies of nodes instead of two sidecars


def test_memory_includes_the_configuration_where_a_study_measured_it(monkeypatch):
    monkeypatch.setattr(prediction, "configuration_slopes", lambda *_: ([np.full(6, 0.01 * MIB)], 10))
    data = [recorded({"sidecar": sidecars})]
    # Each of the three proxies knows three services.
    assert predict(chain(100, 100), data, "sidecar").memory_bytes.value == pytest.approx((120 + 9 * 0.01) * MIB)
    far = System({}, tuple(Call("hub", f"s{i}", 10) for i in range(30)))
    assert any("does not include" in line for line in predict(far, data, "sidecar").assumptions)


def test_studies_of_different_machines_are_not_used_together():
    one = recorded({"sidecar": sidecars})
    other = replace(one, environment={"testbed": {"cpu_model": "other", "cpus": 64}})
    with pytest.raises(UsageError, match=r"differ in machine: .*other with 64 CPUs"):
        predict(chain(100), [one, other], "sidecar")


def test_larger_bodies_cost_their_slope_and_none_beyond_the_largest():
    data = recorded({"sidecar": sidecars}, (*loads(100, 1000), *loads(100, payload_bytes=10_000)))
    call = Call("a", "b", 100, request_bytes=4_000, response_bytes=8_000)
    found = predict(System({}, (call,)), [data], "sidecar")
    # 12,000 bytes at 1 ns at each of two proxies.
    assert found.cores.value == pytest.approx(100 * (500 + 2 * 12) * US)
    huge = System({}, (Call("a", "b", 100, request_bytes=50_000),))
    assert "bodies of http1 were measured up to 20,000 bytes" in predict(huge, [data], "sidecar").services["a"].reason
    without = predict(System({}, (call,)), [recorded({"sidecar": sidecars})], "sidecar")
    assert without.left_out == ("a", "b")
    assert without.cores is None


def test_idle_connections_are_open_ones():
    def holding(load, noise):
        return [replace(one, pss_bytes=one.pss_bytes + load.idle_connections * MIB // 20) for one in sidecars(load)]

    at = (*loads(100, 1000), *loads(1000, idle_connections=100))
    data = recorded({"sidecar": holding}, at)
    found = predict(System({}, (Call("a", "b", 100, connections=54),)), [data], "sidecar")
    # Two proxies with 50 connections more than the usual 4, of which each holds 0.05 MiB.
    assert found.memory_bytes.value == pytest.approx(2 * (40 + 50 * 0.05) * MIB, rel=1e-3)


def test_memory_grows_with_connections_up_to_the_most_measured():
    at = (*loads(100, 1000), *(load for load in [loads(100)[0].like(loads(100)[0], connections=104)]))
    data = recorded({"sidecar": sidecars}, at)
    found = predict(System({}, (Call("a", "b", 100, connections=54),)), [data], "sidecar")
    assert found.memory_bytes.value == pytest.approx(2 * (40 + 0.1 * 50) * MIB)
    assert predict(System({}, (Call("a", "b", 100, connections=500),)), [data], "sidecar").memory_bytes is None


def test_protocols_that_were_not_measured_have_no_number():
    found = predict(System({}, (Call("a", "b", 100, "grpc"),)), [recorded({"sidecar": sidecars})], "sidecar")
    assert found.services["a"].reason == "no study measured grpc"


def test_money_is_cores_and_memory_times_prices():
    found = predict(
        chain(100),
        [recorded({"sidecar": sidecars})],
        "sidecar",
        options=Options(core_hour=0.04, gib_hour=0.005, request_cores=0.1, request_gib=0.125),
    )
    assert found.month.value == pytest.approx(HOURS_A_MONTH * (0.04 * 100 * 500 * US + 0.005 * 80 / 1024))
    assert found.month_requested == pytest.approx(HOURS_A_MONTH * 2 * (0.04 * 0.1 + 0.005 * 0.125))


def test_another_machine_is_reached_through_the_applications_cpu():
    found = predict(chain(100), [recorded({"sidecar": sidecars})], "sidecar", options=Options(app_cpu_us=2 * APP_US))
    assert found.cores.value == pytest.approx(2 * 100 * 500 * US)
    assert any("multiplied by 2" in line for line in found.assumptions)


def test_a_services_own_cpu_gives_a_share_and_does_not_scale():
    found = predict(chain(100, b=Service("b", cpu_us=400)), [recorded({"sidecar": sidecars})], "sidecar")
    assert found.services["b"].share == pytest.approx(CALLEE_US[100] / 400)


def test_three_equal_studies_give_the_interval_of_another_session():
    def study(shift):
        return recorded(
            {"sidecar": lambda load, noise: sidecars(load, shift + noise)}, noise_us=1.0, seed=int(shift) + 5
        )

    sessions = [study(shift) for shift in (0.0, 30.0, 60.0)]
    one, three = (predict(chain(100), studies, "sidecar", options=EXACT) for studies in (sessions[:1], sessions))
    assert three.is_between_sessions
    assert not one.is_between_sessions
    # Sessions at about 50, 53 and 56 mcores: mean 53, t(2) = 4.303, standard deviation 3, times root of 4/3.
    assert (three.cores.high - three.cores.low) / 2 == pytest.approx(4.303 * 3e-3 * np.sqrt(4 / 3), rel=0.1)
    assert three.cores.value == pytest.approx(53e-3, rel=0.02)


def test_the_models_own_error_widens_every_interval():
    data = [recorded({"sidecar": sidecars})]
    found = predict(chain(100), data, "sidecar", options=Options(model_error=0.1))
    assert found.cores.high - found.cores.value == pytest.approx(0.1 * 1.96 * found.cores.value, rel=1e-3)
    assert not any("own error" in line for line in found.assumptions)
    by_default = predict(chain(100), data, "sidecar")
    assert by_default.cores.high - by_default.cores.value == pytest.approx(
        CPU_ERROR * 1.96 * found.cores.value, rel=1e-3
    )
    assert any("own error" in line for line in by_default.assumptions)


def test_paths_add_the_quantiles_of_sums(tmp_path):
    data = recorded({"sidecar": sidecars}, folder=tmp_path)
    rng = np.random.default_rng(3)
    # Exponential hops: 1 ms without, 3 ms with. The sum of two is a gamma distribution.
    write_latencies(data, lambda name: rng.exponential(3e-3 if name == "sidecar" else 1e-3, 100_000))
    calls = tuple(Call(caller, callee, 100) for caller, callee in ("ab", "bc", "bd"))
    hop, next_hop, other = (CallStep(*call.pair) for call in calls)
    paths = {"two": (hop, next_hop), "both": (Parallel(((next_hop,), (other,))),)}
    found = predict(System({}, calls, paths), [data], "sidecar")
    # Medians of gamma(2): 1.67835, of the larger of two: -ln(1 - sqrt(0.5)) = 1.22795; both times 3 - 1 ms.
    assert found.paths["two"].added["p50"].value == pytest.approx(2 * 1.67835e-3, rel=0.02)
    # The proxy of b, at 300 rps, takes half of 252 us for the first request before it sends the other.
    assert found.paths["both"].added["p50"].value == pytest.approx(2 * 1.22795e-3 + 126e-6, rel=0.02)
    assert found.paths["two"].added["p99"].value == pytest.approx(2 * 6.63835e-3, rel=0.03)


def test_requests_that_are_made_at_once_wait_for_their_callers_proxy():
    hop = Hop(np.full((1, len(PROBABILITIES)), 1e-3), np.full(1, 2e-4))
    calls = [CallStep("a", name) for name in "bcd"]
    steps = (Parallel(tuple((call,) for call in calls)),)
    (median,) = quantiles_of_path(steps, dict.fromkeys(calls, hop), [0.5])
    assert median == pytest.approx(1e-3 + 2 * 2e-4, rel=1e-2)


def test_a_percentile_needs_enough_requests(tmp_path):
    data = recorded({"sidecar": sidecars}, loads(100), folder=tmp_path, requests=2_000)
    write_latencies(data, lambda name: np.full(2_000, 1e-3))
    found = predict(System({}, (Call("a", "b", 100),), {"p": (CallStep("a", "b"),)}), [data], "sidecar").paths["p"]
    assert set(found.added) == {"p50", "p90"}
    assert "p99" in found.reason


def test_studies_of_different_rates_complete_each_other(tmp_path):
    studies = []
    for rate, latency_s in ((100, 4e-3), (1000, 2e-3)):
        data = recorded({"sidecar": sidecars}, loads(rate), folder=tmp_path / str(rate), blocks=rate // 100 + 5)
        write_latencies(data, lambda name, latency_s=latency_s: np.full(100, latency_s if name == "sidecar" else 1e-3))
        studies.append(data)
    # Half-way between the logarithms of both rates.
    system = System({}, (Call("a", "b", 10**2.5),), {"p": (CallStep("a", "b"),)})
    found = predict(system, studies, "sidecar")
    assert found.paths["p"].added["p50"].value == pytest.approx(2e-3, rel=1e-3)
    assert found.services["a"].cores.value == pytest.approx(10**2.5 * 250 * US)
    assert not found.is_between_sessions


def test_paths_without_a_distribution_say_why():
    system = System({}, (Call("a", "b", 100),), {"p": (CallStep("a", "b"),)})
    found = predict(system, [recorded({"sidecar": sidecars})], "sidecar").paths["p"]
    assert not found.added
    assert "no distribution" in found.reason


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"treatment": "linkerd"}, "no study has complete blocks of linkerd and none"),
        ({"treatment": "none"}, "compared with itself"),
        ({"treatment": "sidecar", "records": []}, "no study is given"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_one_line(given, part):
    with pytest.raises(UsageError, match=part):
        predict(**{"system": chain(100), "records": [recorded({"sidecar": sidecars})]} | given)


@pytest.mark.parametrize("given", [{"nodes": -1}, {"app_cpu_us": -1.0}, {"model_error": 8.0}, {"request_cores": 0.1}])
def test_impossible_options_are_refused_in_one_line(given):
    with pytest.raises(UsageError):
        Options(**given)
