import json
from collections import Counter

from refused import refused

from meshtrial.design.load import FixedRate
from meshtrial.design.plan import Plan, make_plan
from meshtrial.errors import RecordError


def test_every_block_holds_every_treatment_once(make_study):
    plan = make_plan(make_study(blocks=8))
    for block in range(1, 9):
        runs = [run for run in plan.runs if run.repetition == block]
        assert Counter(run.treatment for run in runs) == {"none": 1, "none-aa": 1, "node-proxy": 1}
        assert [run.position for run in runs] == [1, 2, 3]


def test_the_seed_decides_the_order(make_study):
    first, again, other = (make_plan(make_study(blocks=20, seed=s)) for s in (1, 1, 2))
    assert first == again
    assert [r.treatment for r in first.runs] != [r.treatment for r in other.runs]


def test_each_treatment_comes_first_about_equally_often(make_study):
    plan = make_plan(make_study(blocks=600))
    first = Counter(run.treatment for run in plan.runs if run.position == 1)
    # Binomial(600, 1/3): sd 11.5, so 200 +- 60 is beyond five standard deviations.
    assert all(140 < count < 260 for count in first.values())


def test_a_longer_plan_begins_like_a_shorter_one(make_study):
    short, long = make_plan(make_study(blocks=5)), make_plan(make_study(blocks=9))
    assert [r.run_id for r in long.runs[: len(short.runs)]] == [r.run_id for r in short.runs]


def test_loads_are_ordered_anew_in_every_repetition(make_study):
    loads = tuple(FixedRate(rate, 4, 2) for rate in (100, 200, 300))
    plan = make_plan(make_study(blocks=12, loads=loads))
    orders = {tuple(dict.fromkeys(r.load for r in plan.runs if r.repetition == b)) for b in range(1, 13)}
    assert len(orders) > 1
    assert len({run.run_id for run in plan.runs}) == 12 * 3 * 3


def test_the_ascending_order_keeps_loads_and_the_sequential_one_both(make_study):
    loads = tuple(FixedRate(rate, 4, 2) for rate in (100, 200))
    plan = make_plan(make_study(loads=loads, order="sequential"))
    assert [r.treatment for r in plan.runs[:3]] == ["none", "none-aa", "node-proxy"]
    rising = make_plan(make_study(loads=loads, order="ascending"))
    assert [r.load for r in rising.runs[:6]] == ["100rps-4c"] * 3 + ["200rps-4c"] * 3


def test_a_plan_is_read_back_and_an_altered_one_refused(make_study):
    plan = make_plan(make_study())
    text = json.dumps(plan.to_dict())
    assert Plan.from_dict(json.loads(text)) == plan
    altered = json.loads(text)
    altered["study"]["alpha"] = 0.1
    with refused(RecordError):
        Plan.from_dict(altered)
    altered = json.loads(text)
    altered["runs"][0], altered["runs"][1] = altered["runs"][1], altered["runs"][0]
    with refused(RecordError):
        Plan.from_dict(altered)


def test_deployments_that_grow_go_through_all_loads_one_treatment_after_another(make_study):
    loads = (FixedRate(100, 4, 2), FixedRate(200, 4, 2), FixedRate(300, 4, 2))
    plan = make_plan(make_study(loads=loads, order="growing", blocks=4))
    seen = set()
    for repetition in range(1, 5):
        runs = [run for run in plan.runs if run.repetition == repetition]
        names = [run.treatment for run in runs]
        treatments = list(dict.fromkeys(names))
        assert names == [name for name in treatments for _ in loads]
        assert [run.load for run in runs] == [load.label for load in loads] * len(treatments)
        seen.add(tuple(treatments))
    assert len(seen) > 1
    assert len({run.run_id for run in plan.runs}) == len(plan.runs)
    assert [run.sequence for run in plan.runs] == list(range(len(plan.runs)))


def test_turns_of_slices_are_sealed_with_the_seed(make_study):
    load = FixedRate(100, 4, 2, slices=4)
    one, again, other = (make_plan(make_study(loads=(load,), seed=seed)) for seed in (1, 1, 2))
    first = one.runs[:3]
    assert [sorted(turn) for turn in one.turns(first)] == [[0, 1, 2]] * 4
    assert one.turns(first) == again.turns(again.runs[:3])
    orders = {tuple(map(tuple, plan.turns(plan.runs[3 * b : 3 * b + 3]))) for plan in (one, other) for b in range(5)}
    assert len(orders) == 10
    assert len({tuple(turn) for turn in one.turns(first)}) > 1


def test_what_is_drawn_for_a_block_is_the_same_for_all_of_its_runs(make_study):
    plan = make_plan(make_study(blocks=2, loads=(FixedRate(100, 4, 2), FixedRate(200, 4, 2))))
    drawn = {(run.repetition, run.load): set() for run in plan.runs}
    for run in plan.runs:
        drawn[run.repetition, run.load].add(plan.drawn_for(run).random())
    assert {len(found) for found in drawn.values()} == {1}
    assert len(set().union(*drawn.values())) == 4
    grown = make_plan(make_study(blocks=1, order="growing", loads=(FixedRate(100, 4, 2), FixedRate(200, 4, 2))))
    assert len({grown.drawn_for(run).random() for run in grown.runs}) == 1
