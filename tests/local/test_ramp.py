"""A rising rate on real processes: every step is sent, read and drawn."""

from dataclasses import replace

from local.studies import PATIENT, recorded, study_of, without_twin

from meshtrial.report import figures


def test_a_rate_rises_to_what_a_delay_of_known_size_lets_through():
    # Four connections that each wait 20 ms for an answer carry at most 200 per second.
    slow = "relay+delay-20000us"
    given = {"treatments": f"none,{slow}", "rps": 800, "ramp": 4, "duration_s": 4, "warmup_s": 0.1, "connections": 4}
    data = recorded(without_twin(study_of("ambient_vs_no_mesh", given, replace(PATIENT, rate_tolerance=0.4), blocks=1)))
    runs = {run.treatment: run for run in data.runs}
    assert all(run.valid for run in data.runs), [run.reasons for run in data.runs]
    steps = {treatment: run.extra["ramp"] for treatment, run in runs.items()}
    assert [step["asked_rps"] for step in steps["none"]] == [200, 400, 600, 800]
    # A step ends one request per connection too early or too late.
    assert all(step["achieved_rps"] < 220 for step in steps[slow])
    assert runs[slow].responses["ramp_kept_rps"] <= 200
    assert runs["none"].responses["ramp_kept_rps"] > 200
    drawn = figures.ramp(data)
    assert drawn.table.height == 8
    assert set(drawn.table["treatment"]) == set(runs)
    assert "<figure" in drawn._repr_html_()
