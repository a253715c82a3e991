import json

import pytest
from refused import refused

from meshtrial.design.study import Contrast, Load, Margin, Objective, Study, Treatment
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
    with refused(UsageError, "treatment 'istio@1.30-aa': the twin of a version is written istio-aa@1.30"):
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
    ("field", "value", "allowed"),
    [
        ("rps", -1, "must be 0 to 1000000"),
        ("connections", 0, "must be 1 to 20000"),
        ("duration_s", 0, "must be more than 0, at most 86400"),
        ("protocol", "h3", "must be 'http1' or 'h2' or 'grpc' or 'mixed' or 'tcp'"),
        ("payload_bytes", 10**6, "must be 0 to 262144"),
        ("generators", 5, "must be 1 to the number of connections"),
        ("unused_services", 10_001, "must be 0 to 10000"),
    ],
)
def test_an_impossible_load_names_the_field(field, value, allowed):
    good = {"rps": 10, "connections": 4, "duration_s": 1}
    with refused(UsageError, f"{field} = {value!r}: {allowed}"):
        Load(**(good | {field: value}))


def test_load_labels_tell_loads_apart():
    assert Load(500, 8, 2).label == "500rps-8c"
    assert Load(0, 8, 2, payload_bytes=100, keepalive=False, protocol="h2").label == "max-8c-100B-close-h2"
    assert Load(500, 8, 2, unused_services=200).label == "500rps-8c-200unused"
    assert Load(500, 8, 2, arrivals="jitter", replicas=2).label == "500rps-8c-jitter-2x"


def test_a_study_survives_json(make_study):
    study = make_study(contrasts=(Contrast("node-proxy", "none"),), stopping={"rule": "fixed"})
    again = Study.from_dict(json.loads(json.dumps(study.to_dict())))
    assert again == study


def test_by_default_every_treatment_but_the_twin_is_compared_with_the_baseline(make_study):
    assert make_study().all_contrasts() == (Contrast("node-proxy", "none"),)


def test_a_study_refuses_what_does_not_fit(make_study):
    with refused(UsageError, "study ambient_vs_no_mesh: a treatment is listed twice in none, none"):
        make_study(treatments=("none", "none"))
    with refused(UsageError, "study ambient_vs_no_mesh: at most three primary responses, not 4"):
        make_study(primary=("a", "b", "c", "d"))
    with refused(UsageError, "contrast istio against none: istio is not a treatment"):
        make_study(contrasts=(Contrast("istio", "none"),))
    with refused(UsageError, "study ambient_vs_no_mesh: the loads must be distinct and at least one: 1rps-2c, 1rps-2c"):
        make_study(loads=(Load(1, 2, 3), Load(1, 2, 4)))
    with refused(
        UsageError,
        "margin 0, floor 0: a margin is a positive fraction below 10, or a positive floor in the response's "
        "unit, or both",
    ):
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
    with refused(UsageError, f"objective = {text!r}: must be a percentile from p50 below a time, e.g. p99<10ms"):
        Objective.parse(text)


def test_a_search_carries_an_objective_and_nothing_else_can():
    load = Load(0, 4, 1, search=True, objective="p99 < 10ms")
    assert load.objective == "p99<10ms"
    assert load.label == "capacity-p99-under-10ms-4c"
    assert wording.load_text(load) == (
        "the highest rate kept with p99 below 10\N{NO-BREAK SPACE}ms, searched over 4 connections"
    )
    with refused(UsageError, "objective = 'p99<10ms': is for a capacity search"):
        Load(100, 4, 1, objective="p99<10ms")


@pytest.mark.parametrize(
    ("backend", "standing", "slices", "turns"),
    [
        # Sealed before it was declared: on one machine slices took turns, on a cluster they did not.
        ("local", "", 4, True),
        ("kubernetes", "", 4, False),
        ("kubernetes", "block", 4, True),
        ("kubernetes", "block", 1, False),
        ("local", "run", 4, False),
    ],
)
def test_whether_slices_go_round_is_the_plans(make_study, backend, standing, slices, turns):
    load = Load(100, 4, 2, slices=slices)
    assert make_study(backend=backend, standing=standing, loads=(load,)).take_turns(load) == turns


def test_a_plan_without_the_words_of_standing_blocks_keeps_its_rule(make_study):
    data = make_study().to_dict()
    del data["standing"]
    for load in data["loads"]:
        del load["slice_warmup_s"], load["trickle_rps"], load["arrivals"]
    again = Study.from_dict(json.loads(json.dumps(data)))
    assert again.standing == ""
    assert {(load.slice_warmup_s, load.trickle_rps, load.arrivals) for load in again.loads} == {(0.0, 0.0, "uniform")}
    with refused(UsageError, "standing = 'all': must be , block or run"):
        make_study(standing="all")
