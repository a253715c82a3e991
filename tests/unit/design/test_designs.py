"""The design files that stand for published studies are accepted, and mean what they say."""

from __future__ import annotations

import pytest

from meshtrial import paths
from meshtrial.commands.run import read_given
from meshtrial.design.parameters import read_parameters
from meshtrial.design.studies import study_module
from meshtrial.design.study import Contrast, Study
from meshtrial.errors import UsageError

DESIGNS = sorted((paths.NOTEBOOKS / "designs").glob("*.yaml"))


def built(name: str) -> Study:
    path = paths.NOTEBOOKS / "designs" / f"{name}.yaml"
    study = name.partition("-")[0]
    module = study_module(study)
    return module.build(read_parameters(module.PARAMETERS, read_given(study, path, [])))


@pytest.mark.parametrize("path", DESIGNS, ids=lambda p: p.stem)
def test_a_design_is_accepted_by_its_study_and_says_how_to_run_it(path):
    study = built(path.stem)
    assert study.twin is not None
    assert f"meshtrial run {study.name} -f notebooks/designs/{path.name}" in path.read_text()


def test_the_published_rates_for_ten_minutes():
    study = built("mesh_comparison-rates")
    assert [load.rps for load in study.loads] == [20, 200, 2000]
    assert {load.duration_s for load in study.loads} == {600}
    assert not any(load.search for load in study.loads)


def test_capacity_is_searched_as_a_family_of_its_own():
    study = built("mesh_comparison-capacity")
    assert [load.search for load in study.loads] == [False, False, True]
    assert study.loads[-1].generators == 2
    assert "capacity_rps" in study.primary


def test_the_details_experiments_compare_each_app_with_itself_and_the_apps_with_each_other():
    study = built("ambient_vs_no_mesh-details")
    assert [(load.rps, load.connections, load.keepalive) for load in study.loads] == [(100, 10, True), (100, 10, False)]
    assert study.all_contrasts() == (
        Contrast("node-proxy@details", "none@details"),
        Contrast("none@details-nodelay", "none@details"),
        Contrast("node-proxy@details-nodelay", "none@details-nodelay"),
    )


@pytest.mark.parametrize("study", ["mesh_comparison", "feature_impact", "ambient_vs_no_mesh"])
def test_every_number_of_connections_is_a_load_of_its_own(study):
    module = study_module(study)
    loads = module.build(read_parameters(module.PARAMETERS, {"connections": "10,50,10"})).loads
    assert {load.connections for load in loads} == {10, 50}
    assert len({load.label for load in loads}) == len(loads)
    alone = module.build(read_parameters(module.PARAMETERS, {"connections": 20, "timeout_s": 0.5})).loads
    assert {(load.connections, load.timeout_s) for load in alone} == {(20, 0.5)}
    assert len(loads) == 2 * len(alone)
    with pytest.raises(UsageError, match=r"connections: 2\.5: allowed are whole numbers"):
        module.build(read_parameters(module.PARAMETERS, {"connections": 2.5}))


def test_copies_on_one_machine_have_a_generator_each_and_on_a_cluster_a_service():
    module = study_module("feature_impact")

    def load(**given):
        return module.build(read_parameters(module.PARAMETERS, given)).loads[0]

    assert (load(replicas=4).generators, load(replicas=4).replicas) == (4, 4)
    assert load(replicas=2, generators=4).generators == 4
    assert load(replicas=4, backend="kubernetes").generators == 1
    assert load().replicas == 1
    for given in ({"replicas": 2, "generators": 3}, {"replicas": 2, "protocol": "mixed"}):
        with pytest.raises(UsageError, match="generators must be a multiple of it, all of one protocol"):
            load(**given)


def test_only_the_echo_answers_with_a_size_that_is_asked_for():
    module = study_module("ambient_vs_no_mesh")
    given = {"response_bytes": 1000, "headers": 20}
    (load,) = module.build(read_parameters(module.PARAMETERS, given)).loads
    assert load.label == "2000rps-10c-1000B-back-20h"
    for more in ({"app": "details"}, {"treatments": "none,node-proxy@details"}):
        with pytest.raises(UsageError, match="the app details answers as it does; only echo"):
            module.build(read_parameters(module.PARAMETERS, given | more))


def test_a_closed_loop_has_no_rate():
    assert built("ambient_vs_no_mesh-nodelay").loads[0].label == "max-4c"
    module = study_module("ambient_vs_no_mesh")
    with pytest.raises(UsageError, match="a closed loop has no rate"):
        module.build(read_parameters(module.PARAMETERS, {"closed_loop": True, "rps": 100}))


def test_with_one_app_every_treatment_is_compared_with_the_baseline():
    module = study_module("ambient_vs_no_mesh")
    study = module.build(read_parameters(module.PARAMETERS, {"app": "counter-api", "protocol": "h2"}))
    assert study.contrasts == ()
    assert {contrast.baseline for contrast in study.all_contrasts()} == {"none"}
    assert (study.app, study.loads[0].protocol) == ("counter-api", "h2")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"connection": "closed"}, "allowed are keep-alive, close; not closed"),
        ({"connection": "keep-alive", "keepalive": False}, "keepalive = False says otherwise"),
    ],
)
def test_connections_that_are_not_known_are_refused(given, message):
    module = study_module("ambient_vs_no_mesh")
    with pytest.raises(UsageError, match=message):
        module.build(read_parameters(module.PARAMETERS, given))
