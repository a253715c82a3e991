"""When requests follow a change, with numbers that a hand can check; a change that no request follows has no time."""

from __future__ import annotations

import dataclasses
import math

import polars as pl
import pytest
from refused import missing, refused

from meshtrial.design.changes import CHANGES, steps
from meshtrial.design.load import ChangesUnderLoad
from meshtrial.errors import RecordError, TestbedError, UsageError
from meshtrial.load import propagation
from meshtrial.load.ingest import Measurement
from meshtrial.load.propagation import AppliedChange, ChangeTime
from meshtrial.load.quantiles import COLUMNS

BEGAN = 1_000.0  # of the clock's seconds
DENY, ALLOW = CHANGES["authorization"]
AWAY, BACK = CHANGES["weight"]


def requests(*rows: tuple[float, str], latency_s: float = 0.0) -> pl.DataFrame:
    """Starts and codes; any code that neither version returns is a failure."""
    count = len(rows)
    return pl.DataFrame(
        {
            **{name: [0] * count for name in ("slice", "generator", "thread")},
            "iter": list(range(count)),
            "scheduled_start_s": [at for at, _ in rows],
            "actual_start_s": [at for at, _ in rows],
            "latency_s": [latency_s] * count,
            "corrected_latency_s": [latency_s] * count,
            "ok": [code in ("200", "202") for _, code in rows],
            "code": [code for _, code in rows],
            "imputed": [False] * count,
        },
        schema=COLUMNS,
    )


def made(step, at_s: float, error_s: float = 0.0) -> AppliedChange:
    return AppliedChange(step, ChangeTime(BEGAN + at_s, error_s))


def answers(*codes: str, every_s: float = 0.1) -> list[tuple[float, str]]:
    return [(number * every_s, code) for number, code in enumerate(codes)]


def load(**more: object) -> ChangesUnderLoad:
    given = {"changes": ("authorization", "weight"), "change_every_s": 1.0, "change_cycles": 1} | more
    return ChangesUnderLoad(10, 1, 5, **given)


def test_the_first_that_obeys_and_all_of_them():
    # The change is between the third and the fourth. One proxy follows from 0.4 on, another from 0.7.
    sent = answers("200", "200", "200", "200", "202", "200", "200", "202", "202", "202")
    (found,) = propagation.measure(requests(*sent), [made(AWAY, 0.25, 0.02)], BEGAN)
    assert found.first_s == pytest.approx(0.15)
    assert found.all_s == pytest.approx(0.45)
    assert (found.sent, found.as_before, found.error_s) == (7, 3, 0.02)
    assert found.failed == {}


def test_requests_sent_before_the_change_do_not_count():
    (found,) = propagation.measure(requests(*answers("200", "202", "200", "202")), [made(AWAY, 0.15)], BEGAN)
    assert found.first_s == pytest.approx(0.15)


def test_a_change_has_the_requests_until_the_next_one():
    sent = answers("200", "403", "403", "200", "200", "200")
    there, back = propagation.measure(requests(*sent), [made(DENY, 0.05), made(ALLOW, 0.25)], BEGAN)
    assert (there.sent, back.sent) == (2, 3)
    assert (there.name, back.name) == ("deny", "allow")
    assert (there.all_s, back.all_s) == pytest.approx((0.05, 0.05))
    assert there.failed == {"403": 2}
    assert (there.until_s, back.at_s) == pytest.approx((0.2, 0.25))


def test_what_was_under_way_at_the_next_change_says_nothing_of_the_one_before():
    # Sent 0.5 ms before the way back was applied, it was answered 0.5 ms after, under the previous configuration.
    sent = [(0.0, "200"), (0.1, "202"), (0.2, "202"), (0.2995, "200"), (0.4, "200")]
    there, back = propagation.measure(requests(*sent, latency_s=0.001), [made(AWAY, 0.05), made(BACK, 0.3)], BEGAN)
    assert (there.sent, there.as_before, back.sent) == (2, 0, 1)
    assert there.all_s == pytest.approx(0.051)


def test_a_time_ends_with_an_answer_so_a_slow_request_makes_none_too_short():
    # In force from 0.3 on: the request that was sent at 0.25 met it during its 100 ms.
    sent = [(0.0, "200"), (0.15, "200"), (0.25, "202"), (0.35, "202")]
    (found,) = propagation.measure(requests(*sent, latency_s=0.1), [made(AWAY, 0.1)], BEGAN)
    assert (found.first_s, found.all_s) == pytest.approx((0.25, 0.25))


def test_failures_between_two_versions_are_neither_and_are_counted():
    sent = answers("200", "200", "503", "reset", "202", "503", "202")
    (found,) = propagation.measure(requests(*sent), [made(AWAY, 0.05)], BEGAN)
    assert (found.first_s, found.all_s) == pytest.approx((0.35, 0.35))
    assert found.failed == {"503": 2, "reset": 1}


def test_what_a_change_broke_on_its_way_is_counted_once():
    sent = [(0.0, "200"), (0.195, "reset"), (0.25, "202"), (0.295, "503"), (0.35, "200")]
    changes = [made(AWAY, 0.2), made(BACK, 0.3)]
    there, back = propagation.measure(requests(*sent, latency_s=0.01), changes, BEGAN)
    assert (there.failed, back.failed) == ({"reset": 1}, {"503": 1})


@pytest.mark.parametrize(
    ("codes", "first_s"), [(("200",) * 6, None), (("200", "200", "202", "202", "202", "200"), 0.15)]
)
def test_never_is_no_time(codes, first_s):
    (found,) = propagation.measure(requests(*answers(*codes)), [made(AWAY, 0.05)], BEGAN)
    assert found.all_s is None
    assert found.first_s == (first_s and pytest.approx(first_s))


def test_a_change_back_from_where_nobody_was_has_no_time_either():
    there, back = propagation.measure(requests(*answers(*["200"] * 6)), [made(DENY, 0.05), made(ALLOW, 0.25)], BEGAN)
    assert (there.first_s, there.all_s, back.first_s, back.all_s) == (None,) * 4
    assert (there.as_before, back.as_before) == (2, 0)
    assert (there.asked, back.asked) == (True, False)


def test_a_change_after_the_load_says_so():
    with refused(TestbedError):
        propagation.measure(requests(*answers("200", "200")), [made(AWAY, 3.0)], BEGAN)


def found_of(name: str, all_s: float | None, **more: object) -> propagation.Propagation:
    one = propagation.Propagation(name, 0.0, 0.0, 1.0, 10, 1, 0.01, all_s, True)
    return dataclasses.replace(one, **more)


def test_a_run_has_the_medians_of_its_changes_with_how_exact_they_are():
    found = [
        *(found_of("weight", all_s, failed={"503": 1}) for all_s in (0.1, 0.2, None)),
        found_of("deny", 0.4, failed={"403": 9}, error_s=0.03),
        found_of("allow", 0.5, first_s=None),
    ]
    measured = propagation.with_responses(Measurement(requests(), (), {"requests": 5.0}, {}, ()), found, load())
    assert measured.responses == {
        "requests": 5.0,
        "propagation_first_weight_s": 0.01,
        "propagation_all_weight_s": 0.2,  # of 0.1, 0.2 and never
        "propagation_first_deny_s": 0.01,
        "propagation_all_deny_s": 0.4,
        "propagation_all_allow_s": 0.5,
        "failed_requests": 3.0,  # a refusal by a denial is no failure
        "change_error_s": 0.03,
    }
    # The clock error of the change, and the interval between two requests.
    assert measured.bounds["propagation_all_weight_s"] == pytest.approx(0.03 + 1 / 10)


def test_what_most_changes_never_reach_fails_the_gate():
    obeying = [found_of(name, 0.1) for name in ("deny", "allow", "weight")]
    assert propagation.check([*obeying, found_of("weight", None), found_of("weight", 0.2)], load()).passed
    never = propagation.check([*obeying[:2], found_of("weight", None, first_s=None), found_of("weight", None)], load())
    assert not never.passed
    assert never.name == "obeyed"
    assert missing(never.message, ["weight", 1, 0, 2, "change_every_s"]) == []


def test_a_change_that_asked_nothing_does_not_count():
    unasked = found_of("weight", None, first_s=None, asked=False)
    found = [found_of("weight", 0.2), unasked, unasked]
    assert propagation.medians(found, load())["propagation_all_weight_s"] == 0.2
    assert propagation.check(found, load()).passed
    alone = propagation.check([unasked, unasked], load())
    assert not alone.passed
    assert missing(alone.message, ["weight", 2]) == []


def test_every_change_goes_there_and_back_in_every_cycle():
    planned = steps(("weight", "authorization"), 2)
    assert [(step.name, step.on) for step in planned] == 2 * [
        ("weight", True),
        ("weight", False),
        ("deny", True),
        ("allow", False),
    ]
    for there, back in CHANGES.values():
        assert (there.before, there.after) == (back.after, back.before)


@pytest.mark.parametrize(
    "wrong", [{"changes": ("nothing",)}, {"change_every_s": 0.0}, {"change_cycles": 0}, {"churn_per_min": math.inf}]
)
def test_changes_that_cannot_be_made_are_refused(wrong):
    with refused(UsageError, names=wrong):
        load(**wrong)


def test_a_record_and_its_requests_give_the_same_again():
    # A denial and its end, for a treatment whose weights are fixed; the requests' clock starts at 0.
    sent = requests(*answers("200", "200", "200", "403", "403", "403", "200", "200", "200"))
    found = propagation.measure(sent, [made(DENY, 0.15), made(ALLOW, 0.45)], BEGAN)
    changes = [dataclasses.asdict(one) for one in found]
    again = propagation.from_record(sent, changes, load())
    assert [(one.name, one.as_before) for one in again] == [("deny", 1), ("allow", 1)]
    given = propagation.medians(again, load())
    assert given == {
        **dict.fromkeys(("propagation_first_deny_s", "propagation_all_deny_s"), pytest.approx(0.15)),
        **dict.fromkeys(("propagation_first_allow_s", "propagation_all_allow_s"), pytest.approx(0.15)),
    }
    # In an earlier record every change counts.
    unasked = requests(*answers(*["200"] * 6))
    both = [
        dataclasses.asdict(one) for one in propagation.measure(unasked, [made(DENY, 0.05), made(ALLOW, 0.25)], BEGAN)
    ]
    older = [{key: value for key, value in change.items() if key != "asked"} for change in both]
    assert [one.asked for one in propagation.from_record(unasked, both, load())] == [True, False]
    assert [one.asked for one in propagation.from_record(unasked, older, load())] == [True, True]
    # A record without one of its changes no longer matches its plan.
    with refused(RecordError, names=["deny"]):
        propagation.from_record(sent, changes[:1] * 3, load())
