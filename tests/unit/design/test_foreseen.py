"""Questions that a plan cannot answer are reported before its first run, with what would make them answerable."""

import json
from dataclasses import replace

import pytest
from building import built
from commandline import SAMPLE
from refused import as_reviewed

from meshtrial.design.foreseen import INSTEAD, Limit, Unheld, foreseen, instead_of
from meshtrial.design.load import CapacitySearch, ClosedLoop, FixedRate, RestartUnderLoad
from meshtrial.design.plan import Plan, make_plan
from meshtrial.design.responses import REGISTRY
from meshtrial.design.settings import PROFILES
from meshtrial.design.studies import STUDIES
from meshtrial.design.study import Contrast, Gates, Study

AMBIENT, P50, P95, P99 = "ambient_vs_no_mesh", "latency_p50_s", "latency_p95_s", "latency_p99_s"


def limits(study: Study, kind: str = "") -> list[Limit]:
    return [limit for limit in foreseen(study) if kind in ("", limit.kind)]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_as_it_comes_can_answer_what_it_asks(name, profile):
    backends = ("local", "kubernetes") if "context" in STUDIES[name].SETTINGS.settings else ("local",)
    for backend in backends:
        study = built(name, profile=profile, backend=backend)
        found = [(limit.about, limit.loads, limit.instead) for limit in limits(study)]
        # A slow rate beside fast ones is intended: it has a median and no p99.
        slow = [(P99, ("20rps-10c", "200rps-10c"), "")] if (name, profile) == ("mesh_comparison", "standard") else []
        assert found == slow
        assert INSTEAD not in study.options


def test_a_percentile_that_no_load_can_report_gives_way_to_the_highest_that_one_can():
    study = built(AMBIENT, rps=1000)
    assert study.primary == (P50, P95, "path_cpu_s_per_request")
    (limit,) = foreseen(study)
    assert (limit.kind, limit.about, limit.loads, limit.instead) == ("percentile", P99, ("1000rps-10c",), P95)
    assert (limit.planned, limit.needed, limit.remedy) == (5100, 10_000, "duration_s=11")
    as_reviewed(limit.sentence)
    # It is sealed, and read back from the sealed plan.
    data = json.loads(json.dumps(make_plan(study).to_dict()))
    assert data["study"]["options"][INSTEAD] == {P99: P95}
    assert foreseen(Plan.from_dict(data).study) == (limit,)


def test_what_a_user_names_stays_as_it_is_named():
    study = built(AMBIENT, rps=1000, primary="p99,p50")
    assert study.primary == (P99, P50)
    (limit,) = foreseen(study)
    assert (limit.about, limit.instead, limit.planned, limit.remedy) == (P99, "", 5100, "duration_s=11")
    as_reviewed(limit.sentence)
    assert built(AMBIENT, primary="p99").primary == (P99,)


def test_what_is_primary_already_is_not_declared_twice():
    study = built(AMBIENT, rps=50)  # 255 requests
    assert study.primary == (P50, "path_cpu_s_per_request")
    assert study.options[INSTEAD] == {P99: P50}


def test_where_no_percentile_can_be_reported_the_declared_ones_stay_and_are_told():
    study = built(AMBIENT, rps=20)
    assert study.primary == (P50, P99, "path_cpu_s_per_request")
    assert [(limit.about, limit.needed, limit.remedy) for limit in foreseen(study)] == [
        (P50, 200, "duration_s=11"),
        (P99, 10_000, "duration_s=506"),
    ]
    assert foreseen(study)[0].sentence.endswith("; its verdict there is `invalid`")


def test_one_load_that_can_report_it_is_enough_and_the_others_are_told():
    study = built("mesh_comparison", profile="standard", rates="20,200")  # 240 and 2400 requests
    assert study.primary == (P50, P95, "capacity_rps")
    first, second = foreseen(study)
    assert (first.about, first.loads, first.planned, first.instead) == (P99, ("20rps-10c", "200rps-10c"), 240, P95)
    assert "at 20rps-10c and 200rps-10c: a run has as few as 240 requests and " in first.sentence
    assert (second.about, second.loads, second.needed, second.instead) == (P95, ("20rps-10c",), 2000, "")
    many = foreseen(built("scale_out", profile="standard", duration_s=5))[0]
    assert len(many.loads) == 6
    assert " at 6 of 6 loads: " in many.sentence


@pytest.mark.parametrize(
    ("name", "given", "about", "planned", "remedy"),
    [
        (AMBIENT, {"rps": 1000, "slices": 1}, P99, 5100, "duration_s=11"),
        (AMBIENT, {"ramp": 5}, P99, 6120, "duration_s=9"),  # on average three fifths of the rate
        (AMBIENT, {"protocol": "mixed", "primary": "latency_http_p99_s"}, "latency_http_p99_s", 5100, "duration_s=11"),
        (AMBIENT, {"primary": "latency_corrected_p999_s"}, "latency_corrected_p999_s", 10_200, "duration_s=51"),
        # Not in a day.
        (AMBIENT, {"primary": "p99", "rps": 0.1, "connections": "1", "slices": 1, "duration_s": 30}, P99, 3, "rps=337"),
        ("rollout", {"rps": 300}, "latency_restart_window_p90_s", 750, "duration_s=7"),  # half of which is around it
        ("rollout", {"around_s": 1.0}, "latency_restart_window_p90_s", 500, "rps=1011"),
        ("scale_out", {"profile": "standard", "duration_s": 5}, "latency_net_p99_s", 1000, "duration_s=51"),
        ("propagation", {"primary": "p99"}, P99, 2600, "rps=1555"),
    ],
)
def test_the_remedy_makes_it_possible_with_as_many_failures_as_a_run_may_have(name, given, about, planned, remedy):
    (limit,) = [limit for limit in limits(built(name, **given)) if limit.about == about]
    assert (limit.planned, limit.remedy) == (planned, remedy)
    parameter, _, value = remedy.partition("=")
    mended = built(name, **{**given, parameter: int(value)})
    assert about in mended.primary
    assert limits(mended, "percentile") == []
    # A hundredth of the requests may fail, and then has no latency.
    share = 1 - mended.gates.error_ratio
    assert limits(replace(mended, gates=replace(mended.gates, sample_floor=100 / share)), "percentile") == []


def test_what_a_load_does_not_have_is_no_matter_of_its_length():
    (limit,) = foreseen(built(AMBIENT, primary="latency_restart_window_p90_s"))
    assert (limit.planned, limit.remedy) == (0, "")
    (limit,) = foreseen(built(AMBIENT, primary="latency_grpc_p50_s"))
    assert (limit.planned, limit.remedy) == (0, "")


def test_of_a_closed_loop_nobody_knows_how_many_requests_it_has():
    assert foreseen(built(AMBIENT, closed_loop=True, duration_s=0.5)) == ()
    assert instead_of([P99], [ClosedLoop(4, 0.1)], Gates()) == {}


def test_requests_of_all_slices_count():
    assert instead_of([P99], [FixedRate(1000, 4, 2.5, slices=4)], Gates()) == {}
    assert instead_of([P99], [FixedRate(1000, 4, 2.49, slices=4)], Gates()) == {P99: P95}
    assert instead_of([P99], [FixedRate(1000, 4, 2.49, slices=4)], Gates(sample_floor=99)) == {}


def test_every_percentile_gives_way_to_one_of_its_kind():
    load = RestartUnderLoad(1000, 4, 2.0, protocol="mixed", generators=2, restart_at_s=0.1, around_s=1.5)
    for name, about in REGISTRY.items():
        for instead in instead_of([name], [load], Gates()).values():
            assert about.percentile is not None
            before, _, after = name.partition(about.percentile.key)
            assert instead.startswith(before)
            assert instead.endswith(after)


def test_fewer_blocks_than_a_verdict_takes():
    difference, equivalence = limits(built(AMBIENT, blocks=4))
    assert (difference.kind, difference.planned, difference.needed, difference.remedy) == (
        *("difference", 4, 6),
        "blocks=6",
    )
    # p = 2^(1-4); corrected by max-T over two contrasts it is no larger. Equivalence is Holm's: 2 * 2^-4.
    as_reviewed(difference.sentence)
    assert (equivalence.kind, equivalence.needed, equivalence.remedy) == ("equivalence", 6, "blocks=6")
    as_reviewed(equivalence.sentence)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"blocks": 6}, {}),
        ({"blocks": 6, "treatments": "none,a,b,c,d,e"}, {"equivalence": 7}),
        ({"blocks": 10, "alpha": 0.001}, {"difference": 11, "equivalence": 11}),
        ({"blocks": 5, "treatments": "none"}, {"difference": 6}),  # the twin alone
        ({"blocks": 2, "stopping": "two-looks"}, {}),  # which brings its own 16
    ],
)
def test_as_many_blocks_as_the_exact_tests_take(given, expected):
    study = built(AMBIENT, **given)
    assert {limit.kind: limit.needed for limit in foreseen(study)} == expected
    enough = built(AMBIENT, **{**given, "blocks": max([study.blocks, *expected.values()])})
    assert foreseen(enough) == ()


def test_a_plan_that_was_sealed_with_holms_correction_takes_more_blocks(make_study):
    study = make_study(blocks=6, loads=(FixedRate(100, 4, 2),), contrasts=(Contrast("node-proxy", "none"),) * 3)
    assert {limit.kind: limit.needed for limit in foreseen(study)} == {"difference": 7}
    assert foreseen(replace(study, correction="max-t")) == ()


def test_a_recorded_plan_stays_as_it_was_sealed():
    plan = Plan.from_dict(json.loads((SAMPLE / "plan.json").read_text()))
    assert plan.study.primary == (P50, P99, "path_cpu_s_per_request")
    (limit,) = foreseen(plan.study)
    assert (limit.about, limit.instead) == (P99, "")


def unheld(study: Study, **changed: object) -> Unheld:
    made = {"treatment": "sidecar+mtls", "load": study.loads[0], "rps": 2000.0, "most_rps": 1640.0, "where": "x-1"}
    return Unheld(**(made | changed))  # type: ignore[arg-type]


def test_a_rate_that_was_not_held_here_is_told():
    study = built(AMBIENT)
    (limit,) = foreseen(study, [unheld(study), unheld(study, treatment="istio")])
    assert (limit.kind, limit.about, limit.loads) == ("rate", "sidecar+mtls", ("2000rps-10c",))
    assert (limit.planned, limit.needed, limit.remedy) == (2000, 1640, "")
    as_reviewed(limit.sentence)
    search = CapacitySearch.like(study.loads[0])
    assert (
        ": in the last study here, x-1, its capacity was 1,640 "
        in foreseen(study, [unheld(study, load=search)])[0].sentence
    )


@pytest.mark.parametrize(
    ("rps", "other", "told"),
    [
        (2001.0, {}, False),  # a higher rate was not held, which is no evidence for this one
        (1500.0, {}, True),
        (1500.0, {"payload_bytes": 100}, False),
        (1500.0, {"keepalive": False}, False),
        (1500.0, {"connections": 4}, False),
    ],
)
def test_only_what_asked_the_same_tells_of_a_rate(rps, other, told):
    study = built(AMBIENT)
    found = foreseen(study, [unheld(study, rps=rps, load=replace(study.loads[0], **other))])
    assert [limit.kind for limit in found] == ["rate"] * told
    # A search uses as many connections as it needs.
    search = CapacitySearch.like(study.loads[0], connections=4)
    assert [limit.kind for limit in foreseen(study, [unheld(study, rps=1500.0, load=search)])] == ["rate"]
    for closed in ({"closed_loop": True}, {"ramp": 3}):
        assert foreseen(built(AMBIENT, duration_s=60, **closed), [unheld(study, rps=1.0)]) == ()
