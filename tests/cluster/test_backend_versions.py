"""Versions of one mesh as treatments of the same blocks: each is installed, verified, recorded and reported.

One release of each mesh is here, so the second version's proxy is the first one's image with a label more: another
digest under another tag, which nodes, records and proofs must tell apart.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_backend_support import LOAD, bed_on, designed, executed, options_for, owned_namespaces
from test_backend_support import study as study_of
from testcluster import Cluster

from meshtrial.design.study import Gates, Study, Treatment
from meshtrial.inference import analyse
from meshtrial.report import tables

OLD, NEW = "edge-26.6.3", "edge-26.6.3-labelled"


def relabelled(archive: Path, reference: str, target: Path) -> Path:
    """Copy a docker archive with one more label and another name: the same files under another digest."""
    with tarfile.open(archive) as old, tarfile.open(target, "w") as new:
        content = {member.name: member for member in old.getmembers()}

        def read(name: str) -> Any:
            return json.loads(old.extractfile(content[name]).read())  # type: ignore[union-attr]

        def add(name: str, data: bytes) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))

        (image,) = read("manifest.json")
        config = read(image["Config"])
        config["config"]["Labels"] = {"version": NEW}
        body = json.dumps(config).encode()
        name = f"{hashlib.sha256(body).hexdigest()}.json"
        for layer in image["Layers"]:
            new.addfile(content[layer], old.extractfile(content[layer]))
        add(name, body)
        add("manifest.json", json.dumps([{**image, "Config": name, "RepoTags": [reference]}]).encode())
    return target


@pytest.fixture
def meshes(cluster: Cluster, require_mesh: Callable[[str], None], tmp_path: Path) -> Mapping[str, Any]:
    """Return a cluster file with two versions of Linkerd, one of which is declared wrongly."""
    require_mesh("linkerd")
    said: dict[str, Any] = options_for(cluster)["kubernetes"]["meshes"]
    name = f"{cluster.mesh_image('proxy').rpartition(':')[0]}:{NEW}"
    cluster.import_archive(relabelled(cluster.mesh_archive("proxy"), name, tmp_path / "proxy.tar"))
    runs = {"linkerd-proxy": NEW}
    values = {"linkerd-control-plane": {"proxy": {"image": {"version": NEW}}}}
    versions = {"old": {}, "6.4": {"values": values, "runs": runs}, "wrong": {"runs": runs}}
    return {"linkerd": {**said["linkerd"], "versions": versions}}


def two_versions() -> Study:
    """A run of each."""
    given = {"backend": "kubernetes", "treatments": "linkerd@old,linkerd@6.4", "rates": "50", "capacity": False}
    given |= {"connections": "4", "duration_s": 4, "warmup_s": 1}
    study = designed("mesh_comparison", given)
    treatments = tuple(treatment for treatment in study.treatments if not treatment.twin)
    gates = Gates(generator_cpu=1.0, late_ratio=1.0, sample_floor=10)
    return replace(study, treatments=treatments, blocks=1, gates=gates)


def test_two_versions_in_the_same_blocks(cluster: Cluster, meshes: Mapping[str, Any], tmp_path: Path):
    study = two_versions()
    with bed_on(cluster, namespace="versions", meshes=meshes, mesh_reinstall="once") as bed:
        store = executed(bed, study, tmp_path)
        runs = {run.treatment: run for run in store.records() if run.attempt == 1}
        # The last run's version is installed, so a run of the other version is refused.
        (standing,) = bed.installer.installations
        (other,) = runs.keys() - {standing}
        with bed_on(cluster, namespace="guest", meshes=meshes, mesh_install="existing") as guest:
            assert guest.preflight(study_of("guest", standing)) == ()
            (line,) = guest.preflight(study_of("guest", other))
            assert f"is not {Treatment.parse(other).version} as declared: linkerd-proxy: " in line
            assert "mesh_install=existing measures the installed mesh" in line
        deployment = bed.deploy(Treatment.parse("linkerd@wrong"), LOAD, "echo")
        try:
            failed = {proof.name: proof for proof in deployment.prove("before", 0) if not proof.passed}
        finally:
            deployment.close()
    assert runs.keys() == {"linkerd@old", "linkerd@6.4"}
    digests = set()
    for name, run in runs.items():
        version, tag = {"linkerd@old": ("old", OLD), "linkerd@6.4": ("6.4", NEW)}[name]
        assert run.valid, run.reasons
        proven = {proof.name for proof in run.proofs if proof.name.startswith(f"version {version} of ")}
        parts = {"linkerd-destination", "linkerd-identity", "linkerd-proxy-injector"}
        sides = {"the application's proxies", "the generators' proxies"}
        assert proven == {f"version {version} of {part}" for part in parts | sides}
        assert run.extra["policy"]["mesh_installed_for_this_run"]
        assert run.extra["policy"]["installed_meshes"].keys() == {name}
        assert run.versions[f"mesh {name}"] == f"{OLD} (own build)"
        image, _, digest = run.versions["image linkerd-proxy"].partition(" (")
        assert image.endswith(f":{tag}")
        digests.add(digest)
        assert run.versions["server's proxy tells"]  # an own build has no release number
    assert len(digests) == 2
    assert len({run.versions["values linkerd-control-plane"] for run in runs.values()}) == 2
    assert len({run.versions["chart linkerd-control-plane"] for run in runs.values()}) == 1
    assert failed.keys() == {
        *("version wrong of linkerd-destination", "version wrong of linkerd-identity"),
        *("version wrong of linkerd-proxy-injector", "version wrong of the application's proxies"),
        "version wrong of the generators' proxies",
    }
    assert f"proxy:{OLD}" in failed["version wrong of the application's proxies"].observed
    data = analyse(store)
    codes = {warning.code for row in data.verdicts for warning in row.warnings}
    assert not codes & {"varying-factor", "same-version"}
    told = " ".join(tables.provenance(data).text.split())
    assert "Versions of linkerd, as the runs recorded them" in told
    assert f":{NEW} (" in told
    assert "in linkerd@6.4" in told
    assert "WARNING" not in told
    assert owned_namespaces(cluster) == []
