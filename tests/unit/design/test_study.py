import json

import pytest
from refused import refused

from meshtrial.design.load import CapacitySearch, ClosedLoop, FixedRate, Objective
from meshtrial.design.study import Contrast, Margin, Study, Treatment
from meshtrial.errors import UsageError
from meshtrial.report import wording


@pytest.mark.parametrize(
    "text",
    [
        *("none", "none-aa", "sidecar+mtls+jwt", "none@details", "relay-aa+delay-50us", "node-proxy"),
        *("istio@1.30", "istio-aa@1.30", "istio@1.31-dev.eed5+mtls+restart-app", "istio@1.30@details", "none@@mine"),
        "istio@1.30+mtls@mine",
    ],
)
def test_a_treatment_is_read_back_as_it_was_written(text):
    assert Treatment.parse(text).name == text


def test_a_version_is_told_from_features_and_application():
    parsed = Treatment.parse("istio-aa@1.30+mtls@mine")
    assert (parsed.version, parsed.features, parsed.app, parsed.twin) == ("1.30", ("mtls",), "mine", True)
    assert parsed.versioned == "istio@1.30"
    assert Treatment.parse("none@details").versioned == "none"


def test_the_twin_of_a_version_is_written_before_it():
    with refused(UsageError):
        Treatment.parse("istio@1.30-aa")


def test_the_twin_is_the_baseline_but_for_its_name():
    twin = Treatment.parse("none-aa")
    assert twin.twin
    assert twin == Treatment.parse("none").as_twin()


@pytest.mark.parametrize("text", ["", "None", "sidecar+", "a b", "sidecar+mtls+mtls", "x@"])
def test_a_malformed_treatment_is_refused(text):
    with refused(UsageError, names=["treatment", *repr(text).split()]):
        Treatment.parse(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rps", -1),
        ("connections", 0),
        ("duration_s", 0),
        ("protocol", "h3"),
        ("payload_bytes", 10**6),
        ("generators", 5),
        ("unused_services", 10_001),
        ("idle_connections", 20_001),
    ],
)
def test_an_impossible_load_names_the_field(field, value):
    good = {"rps": 10, "connections": 4, "duration_s": 1}
    with refused(UsageError):
        FixedRate(**(good | {field: value}))


def test_load_labels_tell_loads_apart():
    assert FixedRate(500, 8, 2).label == "500rps-8c"
    assert ClosedLoop(8, 2, payload_bytes=100, keepalive=False, protocol="h2").label == "max-8c-100B-close-h2"
    assert FixedRate(500, 8, 2, unused_services=200).label == "500rps-8c-200unused"
    assert FixedRate(500, 8, 2, idle_connections=200, after_s=10).label == "500rps-8c-200idle-after10s"
    assert FixedRate(500, 8, 2, arrivals="jitter", replicas=2).label == "500rps-8c-jitter-2x"


def test_a_study_survives_json(make_study):
    study = make_study(contrasts=(Contrast("node-proxy", "none"),), stopping={"rule": "fixed"})
    again = Study.from_dict(json.loads(json.dumps(study.to_dict())))
    assert again == study


def test_by_default_every_treatment_but_the_twin_is_compared_with_the_baseline(make_study):
    assert make_study().all_contrasts() == (Contrast("node-proxy", "none"),)


def test_a_study_refuses_what_does_not_fit(make_study):
    with refused(UsageError):
        make_study(treatments=("none", "none"))
    with refused(UsageError):
        make_study(primary=("a", "b", "c", "d"))
    with refused(UsageError):
        make_study(contrasts=(Contrast("istio", "none"),))
    with refused(UsageError):
        make_study(loads=(FixedRate(1, 2, 3), FixedRate(1, 2, 4)))
    with refused(UsageError):
        Margin(0)


@pytest.mark.parametrize(
    ("text", "q", "limit_s", "again"),
    [
        ("p99<10ms", 0.99, 0.010, "p99<10ms"),
        (" p99.9 < 0.5 s", 0.999, 0.5, "p99.9<500ms"),
        ("p50<250us", 0.5, 0.00025, "p50<0.25ms"),
    ],
)
def test_an_objective_is_read_and_written(text, q, limit_s, again):
    found = Objective.parse(text)
    assert (round(found.q, 9), round(found.limit_s, 12)) == (q, limit_s)
    assert found.text == again
    assert Objective.parse(again) == found


@pytest.mark.parametrize("text", ["p99", "p99<10", "p99>10ms", "p100<1ms", "p10<1ms", "p99<0ms", "mean<1ms", ""])
def test_what_is_no_objective_is_refused(text):
    with refused(UsageError):
        Objective.parse(text)


def test_a_search_carries_an_objective():
    load = CapacitySearch(4, 1, objective="p99 < 10ms")
    assert load.objective == "p99<10ms"
    assert load.label == "capacity-p99-under-10ms-4c"
    assert wording.load_text(load) == (
        "the highest sustained rate with p99 below 10\N{NO-BREAK SPACE}ms, found by a search over 4 connections"
    )


@pytest.mark.parametrize(
    ("mode", "slices", "turns"), [("concurrent", 4, True), ("concurrent", 1, False), ("sequential", 4, False)]
)
def test_concurrent_deployments_take_turns_in_slices(make_study, mode, slices, turns):
    load = FixedRate(100, 4, 2, slices=slices)
    assert make_study(deployment_mode=mode, loads=(load,)).take_turns(load) == turns


def test_a_mode_that_is_not_known_is_refused(make_study):
    with refused(UsageError):
        make_study(deployment_mode="all")
