"""The design files that stand for published studies are accepted, and mean what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from refused import refused

from meshtrial import paths
from meshtrial.commands.run import read_given
from meshtrial.design.parameters import read_parameters, split_list
from meshtrial.design.plan import make_plan
from meshtrial.design.studies import study_module
from meshtrial.design.study import Contrast, Study
from meshtrial.envoy.tokens import make_tokens
from meshtrial.errors import UsageError
from meshtrial.stats import smallest_n
from meshtrial.testbed.kubernetes import workload
from meshtrial.testbed.kubernetes.apps import read_app
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

DESIGNS = sorted((paths.NOTEBOOKS / "designs").glob("*.yaml"))


def built(name: str, *pairs: str) -> Study:
    path = paths.NOTEBOOKS / "designs" / f"{name}.yaml"
    study = name.partition("-")[0]
    module = study_module(study)
    return module.build(read_parameters(module.PARAMETERS, read_given(study, path, list(pairs))))


def on_a_cluster(path: Path) -> bool:
    return yaml.safe_load(path.read_text()).get("backend") == "kubernetes"


@pytest.mark.parametrize("path", DESIGNS, ids=lambda p: p.stem)
def test_a_design_is_accepted_by_its_study_and_says_how_to_run_it(path):
    study = built(path.stem)
    assert study.twin is not None
    assert f"meshtrial run {study.name} -f notebooks/designs/{path.name}" in path.read_text()


@pytest.mark.parametrize("path", DESIGNS, ids=lambda p: p.stem)
def test_a_design_is_planned_with_the_treatments_that_it_names(path):
    study = built(path.stem)
    plan = make_plan(study)
    given = yaml.safe_load(path.read_text())
    named = split_list(given.get("treatments", "")) or [treatment.name for treatment in study.treatments]
    assert sorted({run.treatment for run in plan.runs}) == sorted(named)
    assert study.baseline.name == named[0]
    assert len(plan.runs) == study.blocks * len(named) * len(study.loads)
    # Enough blocks for every contrast of a family to be called, with Holm's correction.
    assert study.blocks >= smallest_n(len(study.all_contrasts()), study.alpha, "difference")


@pytest.mark.parametrize("path", DESIGNS, ids=lambda p: p.stem)
def test_a_design_can_be_shortened_to_try_it(path):
    # 12 s, because at 20 requests a second 100 connections have two requests each after 10.
    study = built(path.stem, "blocks=2", "duration_s=12", "warmup_s=1")
    assert study.blocks == 2
    assert {load.duration_s for load in study.loads if not load.search} == {12}
    assert len(make_plan(study).runs) == 2 * len(study.treatments) * len(study.loads)


@pytest.mark.parametrize("path", [path for path in DESIGNS if on_a_cluster(path)], ids=lambda p: p.stem)
def test_a_design_for_a_cluster_can_be_deployed(path):
    """Every treatment's mesh carries the application and has the features, and each can be proven."""
    study, options = built(path.stem), KubernetesOptions()
    meshes, tokens = find_meshes(options), make_tokens()
    for load in study.loads:
        for treatment in study.treatments:
            app = read_app(options, treatment.app or study.app, load.protocols)
            mesh = meshes.get(treatment.dataplane)
            assert (mesh is None) == (treatment.dataplane == "none")
            assert workload.render(options, "trial", treatment, load, app, mesh, tokens).objects


def test_the_details_article_on_a_cluster():
    local, cluster = built("ambient_vs_no_mesh-details"), built("ambient_vs_no_mesh-details-cluster")
    # As on one machine, but for the copies, of which the article had two.
    assert [load.label for load in cluster.loads] == [f"{load.label}-2x" for load in local.loads]
    assert Contrast("istio-ambient@details-nodelay", "none@details-nodelay") in cluster.all_contrasts()


@pytest.mark.parametrize(
    ("name", "app", "rates", "connections", "meshes"),
    [
        ("mesh_comparison-2021", "emojivoto", [20, 200, 2000], 10, ["linkerd", "istio"]),
        ("mesh_comparison-2025", "emojivoto", [20, 200, 2000], 100, ["linkerd", "istio", "istio-ambient"]),
        (
            "mesh_comparison-features",
            "counter-api",
            [200, 700, 1200, 1800],
            120,
            ["istio", "kuma", "linkerd", "consul"],
        ),
        ("feature_impact-istio", "counter-api", [700], 70, ["istio"]),
        ("ambient_vs_no_mesh-bookinfo", "bookinfo", [1000], 100, ["istio-ambient", "istio"]),
        ("ambient_vs_no_mesh-bookinfo-4000", "bookinfo", [4000], 400, ["istio-ambient", "istio"]),
    ],
)
def test_the_loads_of_the_published_studies(name, app, rates, connections, meshes):
    study = built(name)
    assert (study.backend, study.app) == ("kubernetes", app)
    assert [load.rps for load in study.loads] == rates
    assert {load.connections for load in study.loads} == {connections}
    assert list(dict.fromkeys(t.dataplane for t in study.treatments if t.dataplane != "none")) == meshes
    # The lowest rate has the 10,000 requests that a p99 needs.
    assert min(load.rps * load.duration_s for load in study.loads) >= 10_000


def test_the_other_rates_of_the_feature_study_as_its_file_says():
    for rate, connections in ((200, 20), (1200, 120)):
        (load,) = built("feature_impact-istio", f"rps={rate}", f"connections={connections}").loads
        assert (load.rps, load.connections) == (rate, connections)
    kuma = "treatments=none,kuma,kuma+mtls,kuma+mtls+observability,kuma+mtls+jwt"
    assert kuma in (paths.NOTEBOOKS / "designs" / "feature_impact-istio.yaml").read_text()
    assert len(built("feature_impact-istio", kuma).treatments) == 6


def test_600_endpoints_at_the_full_rate():
    study = built("scale_out-full")
    assert study.title == "Scale-out to 600 endpoints"
    assert [(3 * load.replicas, load.rps) for load in study.loads][0::4] == [(30, 1000), (600, 20_000)]
    assert {load.timeout_s for load in study.loads} == {0.5}
    assert {load.rps for load in built("scale_out-full", "rate_per_replica=0", "rates=1000").loads} == {1000}


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
    with refused(UsageError, "connections: 2.5: allowed are whole numbers from 1 to 20000, e.g. 10,50,100"):
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
        with refused(
            UsageError,
            "replicas = 2 on one machine: generators must be a multiple of it, all of one protocol; take generators "
            "= 2",
        ):
            load(**given)


def test_only_the_echo_answers_with_a_size_that_is_asked_for():
    module = study_module("ambient_vs_no_mesh")
    given = {"response_bytes": 1000, "headers": 20}
    (load,) = module.build(read_parameters(module.PARAMETERS, given)).loads
    assert load.label == "2000rps-10c-1000B-back-20h"
    for more in ({"app": "details"}, {"treatments": "none,node-proxy@details"}):
        with refused(
            UsageError,
            "response_bytes = 1000: the app details answers as it does; only echo answers with as many bytes as it "
            "is asked for",
        ):
            module.build(read_parameters(module.PARAMETERS, given | more))


def test_a_closed_loop_has_no_rate():
    assert built("ambient_vs_no_mesh-nodelay").loads[0].label == "max-4c"
    module = study_module("ambient_vs_no_mesh")
    with refused(UsageError, "closed_loop = True with rps = 100: a closed loop has no rate; leave one out"):
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
        ({"connection": "closed"}, "connection = 'closed': allowed are keep-alive, close; not closed"),
        (
            {"connection": "keep-alive", "keepalive": False},
            "connection = 'keep-alive': allowed are keep-alive, close; keepalive = False says otherwise; leave it out",
        ),
    ],
)
def test_connections_that_are_not_known_are_refused(given, message):
    module = study_module("ambient_vs_no_mesh")
    with refused(UsageError, message):
        module.build(read_parameters(module.PARAMETERS, given))
