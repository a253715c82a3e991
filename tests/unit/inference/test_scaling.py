"""A recorded study with known growth: exponent, marginal cost and knee are found again within their intervals."""

import re
from dataclasses import replace

import numpy as np
import pytest
from refused import as_reviewed
from unit.inference.recorded import planned, study_of

from meshtrial.inference.scaling import (
    BODY,
    CONNECTIONS,
    ENDPOINTS,
    IDLE,
    UNUSED,
    compare,
    costs_of_both,
    exponent_verdict,
    growth,
    growths,
    ladder,
    limits,
    rates,
    varied,
)
from meshtrial.records.dataset import StudyData
from meshtrial.report import figures, tables

SIZES = (30, 90, 150, 300, 450, 600)
KNEE = 300


def cores(size: float, treatment: str) -> float:
    return 0.004 * size**1.3 if treatment == "sidecar+mtls" else 0.01 * size**0.5


def memory(size: float, treatment: str) -> float:
    return (40 + 16 * size) * 2**20 if treatment.startswith("sidecar") else 30 * 2**20


def latency(size: float, treatment: str) -> float:
    # flat at 3 ms, then 20 us more per endpoint beyond the knee
    return 0.003 + (2e-5 * max(0, size - KNEE) if treatment.startswith("sidecar") else 0)


TRUTH = {
    "data_plane_cpu_cores": cores,
    "data_plane_memory_bytes": memory,
    "latency_net_p50_s": latency,
}


def recorded(blocks: int = 10, noise: float = 0.03, seed: int = 3, drop=lambda run: False, rates: str = "200"):
    plan = planned("scale_out", sizes=",".join(map(str, SIZES)), blocks=blocks, rates=rates, duration_s=20)
    rng = np.random.default_rng(seed)

    def drawn(run):
        load, found = plan.load_of(run), {}
        for name, truth in TRUTH.items():
            value = truth(3 * load.replicas, run.treatment) * (load.rps / 200) ** (name == "data_plane_cpu_cores")
            found[name] = value * float(np.exp(rng.normal(0, noise)))
        return found

    return study_of(plan, drawn, lambda run: not drop(run))


@pytest.fixture(scope="module")
def data():
    return recorded()


def test_the_exponent_is_found_exponent_verdict_and_goes_on(data):
    found = growth(data, "sidecar+mtls", "data_plane_cpu_cores")
    assert found.ladder.sizes == SIZES
    assert found.ladder.blocks == tuple(range(1, 11))
    assert found.law.exponent.low <= 1.3 <= found.law.exponent.high
    assert found.law.exponent.high - found.law.exponent.low < 0.06
    assert exponent_verdict(found) == "superlinear"
    assert exponent_verdict(growth(data, "none", "data_plane_cpu_cores")) == "sublinear"
    # A bent curve is predicted by its power law.
    assert found.curve.form == "power law"
    assert found.predict(1200, 0.05).estimate / found.predict(300, 0.05).estimate == pytest.approx(4**1.3, rel=0.05)


def test_the_cost_of_an_endpoint_is_found_and_a_prediction_beyond_the_sizes_holds_the_truth(data):
    found = growth(data, "sidecar+mtls", "data_plane_memory_bytes")
    assert found.cost.low <= 16 * 2**20 <= found.cost.high
    assert exponent_verdict(found) == "about linear"
    at = found.predict(1200, 0.05)
    assert at.low <= memory(1200, "sidecar+mtls") <= at.high


def test_the_knee_is_found_and_a_flat_treatment_has_none(data):
    found = growth(data, "sidecar+mtls", "latency_net_p50_s")
    assert found.knee.found
    assert found.knee.low <= KNEE <= found.knee.high
    assert abs(found.knee.at - KNEE) < 40
    assert not growth(data, "none", "latency_net_p50_s").knee.found


def test_slopes_of_two_treatments_are_compared(data):
    found = compare(data, "sidecar+mtls", "none", "data_plane_cpu_cores")
    assert found.exponent.low <= 1.3 - 0.5 <= found.exponent.high
    assert found.exponent.p < 0.01


def test_costs_of_endpoints_and_of_rate_are_told_apart():
    found = costs_of_both(recorded(rates="100,200"), "sidecar+mtls", "data_plane_memory_bytes")
    assert set(found) == {"endpoint", "1000 rps"}
    assert found["endpoint"].low <= 16 * 2**20 <= found["endpoint"].high
    assert found["1000 rps"].low <= 0 <= found["1000 rps"].high
    assert costs_of_both(recorded(blocks=2), "sidecar+mtls", "data_plane_memory_bytes") == {}


def test_few_blocks_are_provisional():
    found = growth(recorded(blocks=3), "sidecar+mtls", "data_plane_cpu_cores")
    assert exponent_verdict(found) == "inconclusive: at least 6 blocks"
    assert "provisional" in found.law.exponent.method
    assert found.law.exponent.low <= 1.3 <= found.law.exponent.high


def test_a_size_set_aside_leaves_the_ladder_by_name():
    largest = recorded(drop=lambda run: run.load.endswith("200x") and run.treatment == "sidecar+mtls")
    found = growth(largest, "sidecar+mtls", "data_plane_cpu_cores")
    assert found.ladder.sizes == SIZES[:-1]
    assert found.why[0].startswith("not measured at 600 endpoints")


def test_a_block_with_a_hole_leaves_the_ladder():
    holed = recorded(drop=lambda run: run.repetition == 4 and run.load.endswith("50x"))
    assert 4 not in ladder(holed, "none", "data_plane_cpu_cores").blocks
    assert len(ladder(holed, "none", "data_plane_cpu_cores").blocks) == 9


def test_too_few_sizes_say_why_there_is_no_knee():
    small = recorded(drop=lambda run: run.load.split("-")[-1] in ("30x", "50x", "100x"))
    found = growth(small, "none", "latency_net_p50_s")
    assert found.knee is None
    assert any(line.startswith("knee: need 5 different sizes") for line in found.why)


def test_figures_are_drawn_from_records_alone(data):
    assert len(growths(data, ["data_plane_cpu_cores"])) == 2  # the twin is the baseline once more
    for make in (figures.exponents, figures.cost_by_size, figures.latency_against_endpoints):
        figure = make(data)
        assert "<svg" in figure.svg
        assert figure.table.height >= 2
    assert "Nothing" in figures.configuration_against_endpoints(data).svg
    assert limits(data) == []
    assert "No run" in figures.machine_limits(data).caption


def test_slopes_are_tabled_against_the_baseline_and_the_treatment_before(data):
    table = tables.growth_contrasts(data, ["data_plane_memory_bytes", "latency_net_p50_s"])
    assert "p50 latency beyond the holds" in table.text
    # 16 MiB an endpoint, and none in the baseline: 16 000 MiB for 1000 of them.
    cost = re.search(r"\+(1\d)\s?\d{3} \(.*\) MiB", table.text)
    assert cost is not None
    assert cost[1] in ("15", "16")


def unused_recorded(blocks: int = 8, sizes: str = "30,90") -> StudyData:
    """Every proxy holds 50 kB per service, except a scoped one; memory grows with endpoints too."""
    plan = planned(
        "scale_out",
        sizes=sizes,
        unused_services="0,200,1000",
        rates="200",
        blocks=blocks,
        treatments="none,sidecar+mtls,sidecar+mtls+scoped",
    )
    rng = np.random.default_rng(5)

    def drawn(run):
        load = plan.load_of(run)
        told = load.unused_services if run.treatment == "sidecar+mtls" else 0
        value = 3 * load.replicas * (20e6 + 50e3 * told) * float(np.exp(rng.normal(0, 0.01)))
        return {"data_plane_memory_bytes": value} if run.treatment.startswith("sidecar") else {}

    return study_of(plan, drawn)


def test_what_a_service_costs_that_nobody_calls_is_found_at_the_largest_size():
    data = unused_recorded()
    found = growth(data, "sidecar+mtls", "data_plane_memory_bytes", 200.0, UNUSED)
    assert found.ladder.sizes == (0, 200, 1000)
    assert found.cost.low <= 90 * 50e3 <= found.cost.high
    assert found.law is None  # there is no exponent from 0
    scoped = growth(data, "sidecar+mtls+scoped", "data_plane_memory_bytes", 200.0, UNUSED)
    assert scoped.cost.low <= 0 <= scoped.cost.high
    saved = compare(data, "sidecar+mtls+scoped", "sidecar+mtls", "data_plane_memory_bytes", UNUSED)
    assert saved.cost.high < 0
    assert saved.cost.low <= -90 * 50e3 <= saved.cost.high
    # Along the endpoints, services stay at their smallest number.
    assert rates(data) == (200.0,)
    endpoints = growth(data, "sidecar+mtls", "data_plane_memory_bytes", 200.0)
    assert endpoints.ladder.sizes == (30, 90)
    assert endpoints.cost.low <= 20e6 <= endpoints.cost.high


def test_services_that_nobody_calls_are_tabled_with_what_scoping_saves(data):
    text = tables.marginal_costs(unused_recorded()).text
    assert "through 0, 200 and 1000 unused services" in text
    assert "at 90 used endpoints" in text
    lines = [line for line in text.splitlines() if "memory (PSS), data plane" in line]
    assert len(lines) == 3  # each treatment, and what the second saves compared with the first
    # 50 kB of each of 1000 services in 90 proxies
    assert re.search(r"\+4\s?\d{3} \(.*\) MiB", lines[0])
    assert "alone: services, connections" in tables.marginal_costs(data).text


def test_where_an_interval_holds_no_cost_the_table_says_what_it_would_take():
    rows = tables.marginal_costs(unused_recorded()).text.splitlines()
    told, scoped, _ = (line for line in rows if "memory (PSS), data plane" in line)
    assert " blocks detect " not in told
    # Noise of 1 % on 1.8 GB, over a thousand services: about 14 MiB between runs of a block, 1.3 of that for 8 blocks.
    found = re.search(r"8 blocks detect ([\d.]+)\sMiB", scoped)
    assert 8 < float(found[1]) < 50


HELD, KEPT = 48e3, 12e3  # bytes of a busy and of an idle connection in all proxies
COST = 2e-9  # CPU seconds of a byte of body


@pytest.fixture(scope="module")
def single_hop() -> StudyData:
    """Rates crossed with nothing; at the second highest one, a larger body, more and idle connections, each alone."""
    given = {"rates": "10,500,2000", "connections": "10,100,1000", "idle_connections": "0,400,1600"}
    plan = planned("building_blocks", **given, duration_s=20, blocks=8)
    rng = np.random.default_rng(7)

    def drawn(run):
        load, meshed = plan.load_of(run), run.treatment == "sidecar+mtls"
        noise = float(np.exp(rng.normal(0, 0.01)))
        return {
            "data_plane_memory_bytes": meshed * noise * (30e6 + HELD * load.connections + KEPT * load.idle_connections),
            "path_cpu_s_per_request": noise * (1e-4 + meshed * (1e-4 + COST * load.payload_bytes)),
        }

    return study_of(plan, drawn)


def test_connections_and_bytes_have_slopes_where_loads_differ_in_them_alone(single_hop):
    assert varied(single_hop) == CONNECTIONS
    assert {load.label for load in CONNECTIONS.loads(single_hop)} == {"500rps-10c", "500rps-100c", "500rps-1000c"}
    assert [load.idle_connections for load in IDLE.loads(single_hop)] == [0, 400, 1600]
    assert {load.label for load in BODY.loads(single_hop)} == {"500rps-10c", "500rps-10c-16384B"}
    held = growth(single_hop, "sidecar+mtls", "data_plane_memory_bytes", axis=CONNECTIONS)
    assert held.cost.low <= HELD <= held.cost.high
    kept = growth(single_hop, "sidecar+mtls", "data_plane_memory_bytes", axis=IDLE)
    assert kept.cost.low <= KEPT <= kept.cost.high
    # Of the body, paired with no mesh in every block.
    sent = compare(single_hop, "sidecar+mtls", "none", "path_cpu_s_per_request", BODY)
    assert sent.cost.low <= COST <= sent.cost.high
    assert growths(single_hop, ["data_plane_memory_bytes"], ENDPOINTS) == []


def test_connections_and_bytes_are_tabled_by_the_amount_that_is_added(single_hop):
    lines = tables.marginal_costs(single_hop).text.splitlines()
    held = [line for line in lines if "memory (PSS), data plane" in line and "1000 connections" in line]
    assert re.search(r"\+4[4-7]\.?\d* \(.*\) MiB", held[0])  # 48 kB of each of a thousand
    sent = [line for line in lines if "CPU per request, app and data plane" in line and "1 KiB of body" in line]
    assert re.search(r"\+(1\.9|2\.)\d* \(.*\) µ?us/request", next(line for line in sent if "sidecar" in line))


def test_a_study_of_one_size_is_drawn_against_the_services_that_nobody_calls():
    figure = figures.cost_by_size(unused_recorded(sizes="30"))
    assert "against unused services" in figure.caption
    assert set(figure.table["sizes"]) == {"0 200 1000"}
    both = figures.cost_by_size(unused_recorded())
    assert "against endpoints" in both.caption
    assert set(both.table["sizes"]) == {"30 90"}


def test_endpoints_and_rate_are_tabled_where_they_were_crossed(data):
    assert "several rates" in tables.costs_of_endpoints_and_rate(data).text
    crossed = recorded(rates="100,200")
    text = tables.costs_of_endpoints_and_rate(crossed, ["data_plane_memory_bytes"]).text
    assert "1000 endpoints" in text
    assert "1000 requests per second" in text


def test_idle_share_gates_and_failures(make_record):
    plan = planned("scale_out", sizes="30,60", blocks=2, treatments="none,sidecar+mtls")
    runs = []
    for run in plan.runs:
        loaded = run.treatment == "sidecar+mtls" and plan.load_of(run).replicas == 20
        busy = 0.97 if loaded else 0.4
        made = make_record(
            plan,
            run,
            {"machine_busy": busy, "achieved_ratio": 0.9 if loaded else 1.0, "requests": 100.0},
            fail="rate" if loaded and run.repetition == 2 else "",
        )
        runs.append(replace(made, extra={"failures": {"5xx": 2 if loaded else 0, "time-out": 0}}))
    data = study_of(plan, lambda run: {}, runs=runs)
    found = {(one.treatment, one.endpoints): one for one in limits(data)}
    held = found["sidecar+mtls", 60]
    assert held.by_machine
    assert (held.runs, held.valid, held.failed["5xx"], held.gates) == (2, 1, 4, ("rate 1×",))
    assert held.sentence.startswith("3 % of the machine idle: the machine was the limit")
    assert [key for key, one in found.items() if one.by_machine] == [("sidecar+mtls", 60)]
    as_reviewed(found["none", 30].sentence)
    figure = figures.machine_limits(data)
    assert "The machine was the limit for sidecar+mtls at 60 endpoints." in figure.caption
