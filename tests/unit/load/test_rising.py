"""A rate that rises in steps: what is asked of the generators, and which step was the last that was kept."""

import pytest
from refused import refused

from meshtrial.design.load import FixedRate, Ramp
from meshtrial.design.shares import require_possible
from meshtrial.design.study import Gates
from meshtrial.errors import UsageError
from meshtrial.load import fortio as arguments_of
from meshtrial.load import ingest, rising
from meshtrial.load.rising import RampStep

RAMP = Ramp(400, 4, 4.0, steps=4, generators=2)


def test_the_steps_rise_to_the_rate_and_fill_the_duration():
    parts = [RAMP.part(index) for index in range(RAMP.parts)]
    assert [part.rps for part in parts] == [100, 200, 300, 400]
    assert {part.duration_s for part in parts} == {1.0}
    assert RAMP.mean_rps == 250
    assert RAMP.label == "400rps-in-4-steps-4c"
    assert FixedRate(400, 4, 4.0).part(0) == FixedRate(400, 4, 4.0)


def test_each_step_is_asked_of_every_generator_under_a_name_of_its_own():
    calls = [call for index in range(4) for call in arguments_of.calls(RAMP, "measure", slice_index=index)]
    assert len({call.name for call in calls}) == 8
    rates = [float(call.arguments[call.arguments.index("-qps") + 1]) for call in calls]
    assert rates == [50, 50, 100, 100, 150, 150, 200, 200]


@pytest.mark.parametrize(("rps", "steps"), [(100, 1), (0, 3)])
def test_what_cannot_rise_is_refused(rps, steps):
    with refused(UsageError):
        Ramp(rps, 4, 4.0, steps=steps)


def test_the_lowest_step_must_use_every_connection():
    with refused(UsageError, names=["rps", "duration_s", "connections"]):  # the words: test_fortio
        require_possible(Ramp(40, 10, 4.0, steps=4))


def step(asked: float, achieved: float, failed: int = 0) -> RampStep:
    return RampStep(asked, achieved, 1000, failed, None, None)


def test_the_last_step_before_the_first_that_was_not_kept_counts():
    kept = [step(100, 100), step(200, 199), step(300, 250), step(400, 400)]
    assert rising.responses(kept, Gates()) == {"ramp_kept_rps": 200}
    assert rising.responses(kept[:2], Gates()) == {"ramp_kept_rps": 200}
    # What failed was not served.
    assert rising.responses([step(100, 100), step(200, 200, failed=100)], Gates()) == {"ramp_kept_rps": 100}
    assert rising.responses([step(100, 50)], Gates()) == {"ramp_kept_rps": 50}
    assert rising.responses([], Gates()) == {}


def test_a_run_is_read_step_by_step(fortio):
    load = Ramp(40, 2, 2.0, steps=2)
    slices = []
    for index in range(2):
        part = load.part(index)
        sent = fortio.run(part.rps, 2, part.duration_s, lambda thread, i, n=index: 0.001 * (n + 1))
        slices.append([fortio.output(sent, part.rps, 2, part.duration_s, name=f"measure-{index + 1}-g1")])
    measured = ingest.ingest_slices(slices, load, 1)
    first, second = rising.steps(measured, load)
    assert (first.asked_rps, second.asked_rps) == (20, 40)
    assert first.achieved_rps == pytest.approx(20, rel=0.02)
    assert second.achieved_rps == pytest.approx(40, rel=0.02)
    assert second.p50_s == pytest.approx(0.002, rel=0.1)
    assert measured.responses["achieved_ratio"] == pytest.approx(1, abs=0.02)
