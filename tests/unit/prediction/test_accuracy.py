"""Measured over predicted amounts of generated systems, the model's own error, and deviating systems."""

import math
from dataclasses import replace

import numpy as np
import pytest
from unit.inference.recorded import planned, rows_of, study_of
from unit.prediction.single_hops import loads, recorded, sidecars, write_latencies

from meshtrial.design.generated import systems_of
from meshtrial.design.study import Treatment
from meshtrial.prediction import Options, predict
from meshtrial.prediction.accuracy import (
    CPU,
    LATENCY,
    Compared,
    accuracy,
    accuracy_figure,
    accuracy_table,
    model_error,
    sentences,
)
from meshtrial.prediction.ranges import Estimate

RPS = 100
# Each system's CPU is this multiple of the prediction; the third also has a delay in one hop.
FACTORS = {"system-1": 1.1, "system-2": 0.9, "system-3": 1.0}
DELAY_S = 0.003
DELAYED = f"sidecar+delay-{DELAY_S * 1e6:.0f}us"


@pytest.fixture(scope="module")
def single_hop(tmp_path_factory):
    """Single hops from 25 to 4,000 requests per second, of 2 ms with sidecars and 1 ms without."""
    rungs = loads(25, 100, 1000, 4000)
    known = recorded({"sidecar": lambda load, noise: sidecars(replace(load, rps=100), noise)}, rungs, noise_us=5.0)
    data = replace(known, path=tmp_path_factory.mktemp("hop"))
    rng = np.random.default_rng(1)
    write_latencies(data, lambda name: rng.normal(2e-3 if name == "sidecar" else 1e-3, 2e-5, 2000))
    return data


@pytest.fixture(scope="module")
def measured(single_hop):
    """A study of three systems whose amounts are known multiples of their predictions."""
    plan = planned("prediction", systems="1,2,3", rps=RPS, treatments=f"none,sidecar,{DELAYED}", seed=1)
    rng = np.random.default_rng(2)
    predicted = {
        name: predict(system, [single_hop], "sidecar", options=Options(nodes=1))
        for name, system in systems_of(plan.study.options).items()
    }

    def responses(run):
        treatment = Treatment.parse(run.treatment)
        added = predicted[treatment.app]
        has_mesh, noise = treatment.dataplane == "sidecar", rng.normal(0, 1e-6, 2)
        cpu_s = has_mesh * FACTORS[treatment.app] * added.cores.value / RPS
        latency_s = has_mesh * added.paths["request"].added["p50"].value + DELAY_S * (len(treatment.features) > 0)
        return {CPU: 1e-3 + cpu_s + noise[0], LATENCY: 1e-3 + latency_s + noise[1]}

    data = study_of(plan, responses)
    return replace(data, verdicts=tuple(rows_of(data)))


def test_errors_are_those_of_the_systems(measured, single_hop):
    found = {(one.system, one.response, one.has_delay): one for one in accuracy(measured, [single_hop])}
    assert len(found) == 12
    for system, factor in FACTORS.items():
        assert found[system, CPU, False].error == pytest.approx(factor - 1, abs=2e-3)
        assert found[system, LATENCY, False].error == pytest.approx(0, abs=2e-3)
        assert found[system, CPU, False].treatment == found[system, CPU, True].treatment == "sidecar"
    # Ten percent off, while the two others give a model error of 0.1 / sqrt(2) = 7 %: within 1.96 times that.
    assert found["system-1", CPU, False].is_inside
    # A system's own deviation does not widen its interval: without error elsewhere it is that of the blocks.
    assert found["system-3", LATENCY, False].predicted.high < found["system-3", LATENCY, True].measured.low


def test_a_delay_that_is_hidden_in_a_hop_deviates_in_latency_alone(measured, single_hop):
    rows = accuracy(measured, [single_hop])
    assert [one.deviates for one in rows if one.has_delay and one.response == LATENCY] == [True] * 3
    assert not any(one.deviates for one in rows if one.has_delay and one.response == CPU)
    assert not any(one.deviates for one in rows if not one.has_delay)


def test_table_figure_and_sentences_say_the_same(measured, single_hop):
    rows = accuracy(measured, [single_hop])
    cpu = next(line for line in sentences(rows) if line.startswith("CPU per request, app and data plane"))
    assert "3 of 3 systems" in cpu
    assert "".join(cpu.split()) in "".join(accuracy_table(measured, [single_hop]).text.split())
    figure = accuracy_figure(measured, [single_hop])
    assert figure.table.height == len(rows) == 12
    assert figure.table["predicted"][0] == pytest.approx(
        rows[0].predicted.value * 1e6 if rows[0].response == CPU else rows[0].predicted.value * 1e3
    )


def test_nothing_is_predicted_without_studies_of_a_single_hop(measured):
    assert accuracy(measured, []) == ()
    assert accuracy_figure(measured, []).nothing
    assert "single hop" in accuracy_table(measured, []).text


def test_the_model_error_is_the_root_mean_square_without_negative_controls():
    def compared(value: float, has_delay: bool = False) -> Compared:
        measured = Estimate(value, value, value)
        return Compared("s", "sidecar", "none", CPU, 3, Estimate(1.0, 1.0, 1.0), measured, has_delay)

    assert model_error([compared(1.3), compared(0.9), compared(9.0, True)]) == pytest.approx(
        math.sqrt((0.09 + 0.01) / 2)
    )
    assert model_error([compared(9.0, True)]) is None
