"""Changes followed by real requests behind real proxies: the injected delay is measured again, and no more.

The machine determines how long an answer takes. If a control plane delays every change by a known time, no
request follows earlier, and until then every request is answered as before.
"""

from __future__ import annotations

import functools

import pytest
from commandline import meshtrial
from local.studies import executed, study_of, without_twin

from meshtrial.inference import analyse
from meshtrial.report import tables

DELAY_S = 0.3
# A turn must cover the delay and the time that a tenth of a machine needs.
GIVEN = {"change_every_s": 1.5, "cycles": 1, "rps": 200, "connections": 4, "warmup_s": 0.1, "churn_per_min": "0"}
DELAYED = f"xds+push-delay-{1e3 * DELAY_S:.0f}ms"
NAMES = ("deny", "allow", "weight", "endpoints")

measured = functools.partial(study_of, "propagation")


def test_a_known_delay_is_found_again_and_changes_happen_without_it():
    given = {**GIVEN, "treatments": f"xds,{DELAYED}"}
    store = executed(without_twin(measured(given, blocks=1)))
    data = analyse(store)
    code, _, err = meshtrial("verify", store.path)
    assert (code, err) == (0, "")
    runs = {run.treatment: run for run in data.runs}
    assert set(runs) == {"xds", DELAYED}
    for run in runs.values():
        assert run.valid, run.reasons
        changes = run.extra["changes"]
        assert [one["name"] for one in changes] == ["deny", "allow", "weight", "weight", "endpoints", "endpoints"]
        for one in changes:
            assert 0 <= one["first_s"] <= one["all_s"] < GIVEN["change_every_s"]
            # A denial refuses requests; no other change loses one.
            assert set(one["failed"]) <= ({"403"} if one["name"] in ("deny", "allow") else set())
        assert changes[0]["failed"]["403"] > 0
        assert run.responses["failed_requests"] == 0
        assert {"rate", "late", "errors"}.isdisjoint(gate.name for gate in run.gates)
    for name in NAMES:
        for which in ("first", "all"):
            response = f"propagation_{which}_{name}_s"
            assert runs[DELAYED].responses[response] >= DELAY_S
            assert runs["xds"].responses[response] >= 0
    # The test waits for the delay, not for requests: those sent meanwhile were answered as before.
    assert all(one["as_before"] > 0 for one in runs[DELAYED].extra["changes"])
    shown = tables.changes(data).text
    assert "exchanged endpoint" in shown
    assert "403, as requested" in shown


def test_a_change_that_changes_nothing_is_never_obeyed_and_has_no_time():
    given = {**GIVEN, "change_every_s": 1.0, "treatments": "xds,xds+unchanged"}
    data = analyse(executed(without_twin(measured(given, blocks=1))))
    (control,) = [run for run in data.runs if run.treatment == "xds+unchanged"]
    # It is not repeated: only the requested failures occurred.
    assert control.attempt == 1
    assert not control.valid
    assert len(control.extra["changes"]) == 6
    assert {(one["first_s"], one["all_s"]) for one in control.extra["changes"]} == {(None, None)}
    assert not [name for name in control.responses if name.startswith("propagation_")]
    (reason,) = control.reasons
    assert reason.startswith(
        "check obeyed: denial never obeyed within 1 s (by all requests in 0 of 1 changes, by any in 0)"
    )
    (row,) = [
        row for row in data.verdicts if row.response == "propagation_all_deny_s" and row.treatment == control.treatment
    ]
    assert (row.difference, row.treatment_value) == (None, None)


def test_other_changes_and_services_that_nobody_calls_stand_beside_what_is_measured():
    given = {**GIVEN, "changes": "weight", "churn_per_min": "600", "unused_services": "20", "treatments": "xds"}
    data = analyse(executed(without_twin(measured(given, blocks=1))))
    (run,) = data.runs
    assert run.valid, run.reasons
    assert run.load.endswith("20unused-churn600")
    assert [one["name"] for one in run.extra["changes"]] == ["weight", "weight"]
    # Every sidecar received each of them: at least half of 10 per second, for four and a half seconds.
    assert run.extra["pushed"]["eds"] >= 22
    known = {proof.expected for proof in run.proofs if proof.name.startswith("services known")}
    assert known == {f"{own + 4 + 20} clusters" for own in (1, 2)}


@pytest.mark.parametrize("keepalive", [True, False])
def test_kept_connections_obey_too_where_requests_are_carried(keepalive):
    given = {**GIVEN, "changes": "authorization,endpoints", "keepalive": keepalive, "treatments": "xds"}
    data = analyse(executed(without_twin(measured(given, blocks=1))))
    (run,) = data.runs
    assert run.valid, run.reasons
