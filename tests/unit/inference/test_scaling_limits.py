"""Where the machine was the limit: by its idle share, not by the mesh's outcome."""

from dataclasses import replace

from refused import as_reviewed
from unit.inference.recorded import planned, study_of

from meshtrial.inference.scaling_limits import limits
from meshtrial.report import figures


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
