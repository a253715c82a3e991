"""Each published design for a cluster, executed with one short block and the available meshes."""

from collections.abc import Container
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ground import Ground
from test_backend_support import bed_on, designed, executed, options_for
from testcluster import Cluster

from meshtrial import paths
from meshtrial.commands.run import read_given
from meshtrial.design.load import FixedRate, Load, OpenLoad
from meshtrial.design.study import Gates, Study, Treatment
from meshtrial.testbed.kubernetes.meshdata import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1200, func_only=True)]
DESIGNS = [
    path
    for path in sorted((paths.NOTEBOOKS / "designs").glob("*.yaml"))
    if yaml.safe_load(path.read_text()).get("backend") == "kubernetes"
]
GATES = Gates(generator_cpu=1.0, late_ratio=1.0, sample_floor=5)


def shortened(path: Path, cluster: Cluster) -> Study:
    """Return one block of the baseline and all treatments with an available mesh, at the first load."""
    name = path.stem.partition("-")[0]
    study = designed(name, read_given(name, path, []))
    known = find_meshes(KubernetesOptions.read(options_for(cluster)))
    treatments = tuple(t for t in study.treatments if not t.twin and _is_here(t, cluster, known))
    if not treatments:
        pytest.skip(f"{path.stem}: none of its treatments can run here")
    return replace(study, treatments=treatments, loads=(_short(study.loads[0]),), contrasts=(), blocks=1, gates=GATES)


def _is_here(treatment: Treatment, cluster: Cluster, known: Container[str]) -> bool:
    if treatment.dataplane == "none":
        return True
    # The proxies' image has no program nft, and there is no image of agentgateway.
    lacking = treatment.version == "nftables" or "agentgateway" in treatment.features
    return treatment.dataplane in cluster.meshes and treatment.versioned in known and not lacking


def _short(load: Load) -> Load:
    replicas, rps = min(load.replicas, 4), min(load.asked_rps or 50.0, 50.0)
    connections = min(load.connections, 8 * replicas)
    # In a scale-out study every endpoint of the generators' tier is one of them.
    generators = replicas if load.generators == load.replicas else min(load.generators, 2)
    duration_s = max(4.0, 2.5 * connections / rps)
    changed = {"rps": rps, "connections": connections, "generators": generators, "replicas": replicas}
    at_rate = load if isinstance(load, OpenLoad) else FixedRate.like(load, rps=rps)
    return replace(at_rate, duration_s=duration_s, warmup_s=1.0, **changed)


@pytest.mark.parametrize("path", DESIGNS, ids=lambda path: path.stem)
def test_a_design_runs(cluster: Cluster, ground: Ground, tmp_path: Path, path: Path):
    study = shortened(path, cluster)
    for treatment in study.treatments:
        ground.require_app(treatment.app or study.app)
    options = {"app_node_selector": "slot=n2", "load_node_selector": "slot=n1", "mesh_reinstall": "once"}
    with ground.asked_for(study), bed_on(cluster, namespace="designs", **options) as bed:
        store = executed(bed, study, tmp_path)
    runs = [run for run in store.records() if run.attempt == 1]
    assert len(runs) == len(study.treatments)
    assert [f"{run.treatment}: {run.reasons}" for run in runs if not run.valid] == []
