"""The designs of published studies are accepted, and have the meaning that they claim."""

import re
from pathlib import Path

import pytest
import yaml
from building import built
from refused import refused

from meshtrial import native, paths
from meshtrial.commands.run import chosen, designs, read_given
from meshtrial.design.load import CapacitySearch
from meshtrial.design.parameters import split_list
from meshtrial.design.plan import make_plan
from meshtrial.design.study import Contrast, Study
from meshtrial.envoy.keys import make_tokens
from meshtrial.errors import UsageError
from meshtrial.stats import smallest_n
from meshtrial.testbed.kubernetes import workload
from meshtrial.testbed.kubernetes.apps import read_app
from meshtrial.testbed.kubernetes.meshdata import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

DESIGNS = sorted((paths.NOTEBOOKS / "designs").glob("*.yaml"))


def design(name: str, *pairs: str) -> Study:
    path = paths.NOTEBOOKS / "designs" / f"{name}.yaml"
    study = name.partition("-")[0]
    return built(study, **read_given(study, path, list(pairs)))


def options_of(path: Path) -> KubernetesOptions:
    """Return the options that a design's comments require in the cluster file."""
    lines = re.search(r"(?m)^#\s+(meshes: .+)$", path.read_text())
    return KubernetesOptions(**(yaml.safe_load(lines[1]) if lines else {}))


def on_a_cluster(path: Path) -> bool:
    return yaml.safe_load(path.read_text()).get("backend") == "kubernetes"


@pytest.mark.parametrize("path", DESIGNS, ids=lambda p: p.stem)
def test_a_design_is_planned_with_the_treatments_that_it_names_and_says_how_to_run_it(path):
    study, text = design(path.stem), path.read_text()
    named = split_list(yaml.safe_load(text).get("treatments", "")) or [t.name for t in study.treatments]
    plan = make_plan(study)
    assert study.twin is not None
    assert sorted({run.treatment for run in plan.runs}) == sorted(named)
    assert study.baseline.name == named[0]
    assert len(plan.runs) == study.blocks * len(named) * len(study.loads)
    # Enough blocks for every contrast of a family to be called, with Holm's correction.
    assert study.blocks >= smallest_n(len(study.all_contrasts()), study.alpha, "difference")
    assert f"meshtrial run {study.name} -f notebooks/designs/{path.name}" in text


@pytest.mark.parametrize("path", DESIGNS, ids=lambda p: p.stem)
def test_a_design_can_be_shortened_to_try_it(path):
    # 24 s, because at 60 requests a second 600 connections have two requests each after 20.
    study = design(path.stem, "blocks=2", "duration_s=24", "warmup_s=1", "sessions=1", "session_gap=")
    assert study.blocks == 2
    assert {load.measured_s for load in study.loads if not isinstance(load, CapacitySearch)} == {24}
    assert len(make_plan(study).runs) == 2 * len(study.treatments) * len(study.loads)


@pytest.mark.parametrize("path", [path for path in DESIGNS if on_a_cluster(path)], ids=lambda p: p.stem)
def test_a_design_for_a_cluster_can_be_deployed(path):
    """Every treatment's mesh carries the application and has the features, and each can be proven."""
    study, options = design(path.stem), options_of(path)
    meshes, tokens = find_meshes(options), make_tokens()
    for load in study.loads:
        for treatment in study.treatments:
            app = read_app(options, treatment.app or study.app, load.protocols)
            mesh = meshes.get(treatment.versioned)
            assert (mesh is None) == (treatment.dataplane == "none")
            assert workload.render(workload.Setup(options, "trial", treatment, load, app, mesh, tokens)).objects


def test_the_details_article_on_a_cluster():
    local, cluster = design("ambient_vs_no_mesh-details"), design("ambient_vs_no_mesh-details-cluster")
    # As on one machine, except for the copies: the article had two.
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
        ("mesh_comparison-debate", "emojivoto", [60, 120, 240, 600, 1200], 600, ["linkerd", "istio-ambient"]),
        ("feature_impact-istio", "counter-api", [700], 70, ["istio"]),
        ("ambient_vs_no_mesh-bookinfo", "bookinfo", [1000], 100, ["istio-ambient", "istio"]),
        ("ambient_vs_no_mesh-bookinfo-4000", "bookinfo", [4000], 400, ["istio-ambient", "istio"]),
    ],
)
def test_the_loads_of_the_published_studies(name, app, rates, connections, meshes):
    study = design(name)
    assert (study.backend, study.app) == ("kubernetes", app)
    assert [load.rps for load in study.loads] == rates
    assert {load.connections for load in study.loads} == {connections}
    assert list(dict.fromkeys(t.dataplane for t in study.treatments if t.dataplane != "none")) == meshes
    # The lowest rate has the 10,000 requests that a p99 needs.
    assert min(load.rps * load.duration_s for load in study.loads) >= 10_000


def test_the_other_rates_of_the_feature_study_as_its_file_says():
    for rate, connections in ((200, 20), (1200, 120)):
        (load,) = design("feature_impact-istio", f"rps={rate}", f"connections={connections}").loads
        assert (load.rps, load.connections) == (rate, connections)
    kuma = "treatments=none,kuma,kuma+mtls,kuma+mtls+observability,kuma+mtls+jwt"
    assert kuma in (paths.NOTEBOOKS / "designs" / "feature_impact-istio.yaml").read_text()
    assert len(design("feature_impact-istio", kuma).treatments) == 6


def test_600_endpoints_at_the_full_rate():
    study = design("scale_out-full")
    assert study.title == "Scale-out to 600 endpoints"
    assert [(3 * load.replicas, load.rps) for load in study.loads][0::4] == [(30, 1000), (600, 20_000)]
    assert {load.timeout_s for load in study.loads} == {0.5}
    assert {load.rps for load in design("scale_out-full", "rate_per_replica=0", "rates=1000").loads} == {1000}


def test_the_published_rates_for_ten_minutes():
    loads = design("mesh_comparison-rates").loads
    assert [(load.kind, load.asked_rps, load.duration_s) for load in loads] == [
        ("fixed_rate", rate, 600) for rate in (20, 200, 2000)
    ]


def test_capacity_is_searched_as_a_family_of_its_own():
    study = design("mesh_comparison-capacity")
    assert [load.kind for load in study.loads] == ["fixed_rate", "fixed_rate", "capacity_search"]
    assert study.loads[-1].generators == 2
    assert "capacity_rps" in study.primary


def test_releases_are_versions_in_the_same_blocks_with_ranks_and_three_sessions():
    study = design("mesh_comparison-envoy_releases")
    versions = [treatment.version for treatment in study.treatments if not treatment.twin]
    assert set(versions) <= set(native.releases())
    assert list(split_list(str(study.parameters["versions"]))) == versions
    assert all(treatment.has("mtls") for treatment in study.treatments)
    assert study.title == "Versions of a data plane against each other"
    assert (study.sessions, [load.kind for load in study.loads]) == (3, ["fixed_rate", "capacity_search"])
    pairs = [contrast for contrast in study.all_contrasts() if contrast.family == "between"]
    assert len(pairs) == 6  # of the four that are not the baseline
    (h2, _) = design("mesh_comparison-envoy_releases", "protocol=h2").loads
    assert h2.protocol == "h2"


@pytest.mark.parametrize(
    ("name", "verified_by"),
    [
        ("mesh_comparison-nftables", "redirection"),
        ("mesh_comparison-native_sidecars", "sidecar's place in the pod"),
        ("ambient_vs_no_mesh-ztunnel_threads", "ztunnel's worker threads"),
        ("mesh_comparison-consul_limits", "sidecar's CPU limit"),
    ],
)
def test_installations_that_differ_are_each_verified_to_be_what_its_name_says(name, verified_by):
    meshes = find_meshes(KubernetesOptions())
    compared = [meshes[treatment.versioned] for treatment in design(name).treatments if not treatment.twin]
    seen = {mesh.declared.runs[verified_by] for mesh in compared}
    assert len(seen) == len(compared) >= 2
    assert all(verified_by in {probe.name for probe in mesh.version_probes} for mesh in compared)


def test_a_design_is_named_with_or_without_its_study():
    assert len(designs()) == 2 * len(DESIGNS)  # no two have the same name
    for path in DESIGNS:
        study, _, name = path.stem.partition("-")
        assert chosen(path.stem, None) == chosen(name, None) == (study, path)
    assert chosen("rollout", Path("mine.yaml")) == ("rollout", Path("mine.yaml"))
    with refused(UsageError, names=["telemetry", "mine.yaml"]):
        chosen("telemetry", Path("mine.yaml"))
    with refused(UsageError, names=["envoy_release"]):
        chosen("envoy_release", None)


def test_the_details_experiments_compare_each_app_with_itself_and_the_apps_with_each_other():
    study = design("ambient_vs_no_mesh-details")
    assert [(load.rps, load.connections, load.keepalive) for load in study.loads] == [(100, 10, True), (100, 10, False)]
    assert study.all_contrasts() == (
        Contrast("node-proxy@details", "none@details"),
        Contrast("none@details-nodelay", "none@details"),
        Contrast("node-proxy@details-nodelay", "none@details-nodelay"),
    )


@pytest.mark.parametrize("study", ["mesh_comparison", "feature_impact", "ambient_vs_no_mesh"])
def test_every_number_of_connections_is_a_load_of_its_own(study):
    loads = built(study, connections="10,50,10").loads
    assert {load.connections for load in loads} == {10, 50}
    assert len({load.label for load in loads}) == len(loads)
    alone = built(study, connections=20, timeout_s=0.5).loads
    assert {(load.connections, load.timeout_s) for load in alone} == {(20, 0.5)}
    assert len(loads) == 2 * len(alone)


@pytest.mark.parametrize(
    ("given", "copies", "generators"),
    [
        ({"replicas": 4}, 4, 4),
        ({"replicas": 2, "generators": 4}, 2, 4),
        ({"replicas": 4, "backend": "kubernetes"}, 4, 1),  # there a service spreads the calls
        ({}, 1, 1),
    ],
)
def test_copies_on_one_machine_have_a_generator_each_and_on_a_cluster_a_service(given, copies, generators):
    load = built("feature_impact", **given).loads[0]
    assert (load.replicas, load.generators) == (copies, generators)


def test_what_a_study_is_given_decides_its_loads():
    (load,) = built("ambient_vs_no_mesh", response_bytes=1000, headers=20).loads
    assert load.label == "2000rps-10c-1000B-back-20h"
    assert design("ambient_vs_no_mesh-nodelay").loads[0].label == "max-4c"
    searched = built("mesh_comparison", objective="p99<10ms").loads
    assert [getattr(load, "objective", "") for load in searched] == ["", "", "p99<10ms"]


@pytest.mark.parametrize(
    ("study", "given"),
    [
        ("mesh_comparison", {"connections": 2.5}),
        ("feature_impact", {"replicas": 2, "generators": 3}),
        ("feature_impact", {"replicas": 2, "protocol": "mixed"}),
        ("ambient_vs_no_mesh", {"response_bytes": 1000, "app": "details"}),
        ("ambient_vs_no_mesh", {"response_bytes": 1000, "treatments": "none,node-proxy@details"}),
        ("ambient_vs_no_mesh", {"closed_loop": True, "rps": 100}),
        ("ambient_vs_no_mesh", {"connection": "closed"}),
        ("ambient_vs_no_mesh", {"connection": "keep-alive", "keepalive": False}),
        ("mesh_comparison", {"objective": "p99<10ms", "capacity": False}),
        ("mesh_comparison", {"objective": "fast"}),
    ],
)
def test_loads_that_cannot_be_are_refused(study, given):
    with refused(UsageError):
        built(study, **given)


def test_with_one_app_every_treatment_is_compared_with_the_baseline():
    study = built("ambient_vs_no_mesh", app="counter-api", protocol="h2")
    assert study.contrasts == ()
    assert {contrast.baseline for contrast in study.all_contrasts()} == {"none"}
    assert (study.app, study.loads[0].protocol) == ("counter-api", "h2")


@pytest.mark.parametrize(
    ("given", "slices", "slice_s", "mode"),
    [
        ({"backend": "kubernetes"}, 3, (7.0, 1.0), "concurrent"),
        ({"backend": "kubernetes", "profile": "standard"}, 4, (12.0, 1.0), "concurrent"),
        ({}, 4, (0.75, 0.25), "concurrent"),
        ({"profile": "standard"}, 4, (6.0, 1.0), "concurrent"),
        ({"profile": "full"}, 1, (600.0, 0.0), "sequential"),
        (
            {"slices": 2, "slice_warmup_s": 0.5, "duration_s": 6, "deployment_mode": "sequential"},
            2,
            (3.0, 0.5),
            "sequential",
        ),
    ],
)
def test_slices_of_features_go_round_on_both_backends(given, slices, slice_s, mode):
    study = built("feature_impact", **given)
    (load,) = study.loads
    assert (load.slices, (load.duration_s, load.slice_warmup_s), study.deployment_mode) == (slices, slice_s, mode)
    assert load.trickle_rps == (5.0 if slices > 1 else 0.0)


def test_idle_connections_are_held_on_this_machine_and_crossed_with_the_busy_ones():
    given = {"rates": "200", "connections": "10,20", "idle_connections": "0,100", "capacity": False}
    labels = [load.label for load in built("mesh_comparison", **given).loads]
    assert labels == ["200rps-10c", "200rps-10c-100idle", "200rps-20c", "200rps-20c-100idle"]
    with refused(UsageError, names=["idle_connections", "0,100", "cluster"]):
        built("mesh_comparison", backend="kubernetes", **given)


def test_memory_after_the_load_is_that_of_a_deployment_that_is_alone():
    assert built("feature_impact", after_s=10, deployment_mode="sequential").loads[0].after_s == 10
    with refused(UsageError, names=["after_s", 10, "deployment_mode"]):
        built("feature_impact", after_s=10)


def test_concurrent_deployments_have_slices():
    with refused(UsageError):
        built("ambient_vs_no_mesh", deployment_mode="concurrent", slices=1)
    assert isinstance(built("mesh_comparison", slices=2).loads[-1], CapacitySearch)
