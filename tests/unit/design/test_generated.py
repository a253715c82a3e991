"""Systems drawn from a seed: trees with consistent rates, equal for equal seeds."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from building import built
from refused import refused

from meshtrial.design.generated import CONNECTIONS, FEWEST, INGRESS, MOST, PATH, SHAPES, generated, systems_of
from meshtrial.design.plan import make_plan
from meshtrial.design.study import Study, Treatment
from meshtrial.design.system import Parallel, Step, calls_of
from meshtrial.errors import UsageError

SEEDS = range(1, 101)


def shape_of(system) -> str:
    callers = Counter(call.caller for call in system.calls[1:])
    return "chain" if max(callers.values()) == 1 else "fan-out" if len(callers) == 1 else "tree"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_system_is_a_tree_of_calls_with_rates_of_whole_requests(seed):
    system = generated(seed, 80.0, 6)
    assert system == generated(seed, 80.0, 6)
    first, *calls = system.calls
    assert (first.caller, first.rps, first.connections) == (INGRESS, 80.0, 6)
    assert FEWEST <= len(system.calls) <= MOST
    rates = {call.callee: call.rps for call in system.calls}
    assert len(rates) == len(system.calls)  # each service has one caller
    assert {rates[call.caller] / call.rps for call in calls} <= {1.0, 2.0, 4.0}
    assert min(rates.values()) >= 80.0 / 4
    assert {call.connections for call in calls} == {CONNECTIONS}
    awaited = set(calls_of(system.paths[PATH]))
    # Every request waits for these, and for no call that only some requests make.
    on_path = {INGRESS, "service-1"}
    for call in calls:
        is_awaited = call.caller in on_path and call.rps == rates[call.caller]
        assert (call.pair in awaited) == is_awaited
        on_path |= {call.callee} if is_awaited else set()


def branches_of(steps: Sequence[Step]) -> Iterator[int]:
    """How many calls each caller of a path makes at the same time."""
    for step in steps:
        if isinstance(step, Parallel):
            yield len(step.branches)
            for branch in step.branches:
                yield from branches_of(branch)


@pytest.mark.parametrize("seed", SEEDS)
def test_on_a_cluster_every_request_makes_all_calls_at_the_same_time(seed):
    system = generated(seed, 80.0, 6, on_cluster=True)
    assert {(call.rps, call.connections) for call in system.calls} == {(80.0, 6)}
    assert set(calls_of(system.paths[PATH])) == {call.pair for call in system.calls}
    several = [number for number in Counter(call.caller for call in system.calls).values() if number > 1]
    assert sorted(branches_of(system.paths[PATH])) == sorted(several)


def test_seeds_draw_every_shape_and_size_and_other_seeds_other_systems():
    drawn = [generated(seed, 80.0, 4) for seed in SEEDS]
    assert {shape_of(system) for system in drawn} == set(SHAPES)
    assert {len(system.calls) for system in drawn} == {*range(FEWEST, MOST + 1)}
    assert len({system.to_yaml() for system in drawn}) > 80  # chains of one length are the same


def test_a_study_seals_its_systems_and_compares_each_with_itself():
    study = built("prediction", systems="7,3", treatments="none,sidecar+mtls,none+delay-3000us", seed=1)
    names = [treatment.name for treatment in study.treatments]
    assert names[:2] == ["none@system-7", "none-aa@system-7"]
    assert len(names) == 7
    assert {
        family: [(c.treatment, c.baseline) for c in contrasts] for family, contrasts in study.families().items()
    } == {
        name: [(f"{plane}@{name}", f"none@{name}") for plane in ("sidecar+mtls", "none+delay-3000us")]
        for name in ("system-7", "system-3")
    }
    again = Study.from_dict(make_plan(study).study.to_dict())
    assert systems_of(again.options) == {f"system-{seed}": generated(seed, 80.0, 4) for seed in (7, 3)}


def test_on_a_cluster_a_study_seals_systems_for_it_and_compares_meshes():
    study = built("prediction", backend="kubernetes", systems="3", seed=1)
    names = {treatment.name for treatment in study.treatments}
    assert names == {f"{one}@system-3" for one in ("none", "none-aa", "istio+mtls", "istio-ambient", "linkerd")}
    assert systems_of(study.options) == {"system-3": generated(3, 80.0, 4, on_cluster=True)}


def test_a_generated_system_is_an_application_and_no_version():
    found = Treatment.parse("none@system-12")
    assert (found.app, found.version, found.name) == ("system-12", "", "none@system-12")
    assert Treatment.parse("sidecar+mtls@system-12").app == "system-12"
    assert Treatment.parse("sidecar@system-0").version == "system-0"  # seeds begin at 1


@pytest.mark.parametrize(
    "given",
    [{"treatments": "none@echo,sidecar"}, {"systems": "-1"}],
    ids=lambda given: next(iter(given)),
)
def test_what_no_study_of_systems_can_be(given):
    with refused(UsageError, names=[next(iter(given))]):
        built("prediction", **given)
