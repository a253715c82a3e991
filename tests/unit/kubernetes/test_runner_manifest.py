"""The Job, its image and its volume agree with each other, with the rights and with the command that they run."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from building import built

from meshtrial import paths
from meshtrial.commands.run import read_given
from meshtrial.report.tables.provenance import FILE as CITATION
from meshtrial.testbed.kubernetes.options import KubernetesOptions

FOLDER = paths.MANIFESTS / "runner"
RECIPE = (FOLDER / "Containerfile").read_text()


@pytest.fixture
def objects() -> dict[str, Any]:
    found = [*yaml.safe_load_all((FOLDER / "runner.yaml").read_text())]
    found += yaml.safe_load_all((FOLDER / "node-volume.yaml").read_text())
    return {item["kind"]: item for item in found}


def test_what_it_runs_as_it_lies_is_a_study(objects, tmp_path: Path):
    told = objects["ConfigMap"]["data"]
    # As in the Job's pod, where the ConfigMap is mounted at /study.
    assert yaml.safe_load(told["parameters.yaml"])["cluster_file"] == "/study/cluster.yaml"
    (tmp_path / "parameters.yaml").write_text(told["parameters.yaml"].replace("/study", str(tmp_path)))
    (tmp_path / "cluster.yaml").write_text(told["cluster.yaml"])
    given = read_given(told["study"], tmp_path / "parameters.yaml", [])
    study = built(told["study"], **given)
    assert study.backend == "kubernetes"
    KubernetesOptions.read(study.options)


def test_it_has_the_rights_of_a_study_and_no_others(objects):
    pod = objects["Job"]["spec"]["template"]["spec"]
    accounts = [
        item
        for item in yaml.safe_load_all((paths.MANIFESTS / "rbac.yaml").read_text())
        if item["kind"] == "ServiceAccount"
    ]
    assert [one["metadata"]["name"] for one in accounts] == [pod["serviceAccountName"]]
    assert {one["metadata"]["namespace"] for one in accounts} == {objects["Job"]["metadata"]["namespace"]}
    # A cleaning must not treat the runner as part of a study.
    assert "meshtrial.dev/owner" not in (FOLDER / "runner.yaml").read_text()


def test_a_cronjob_runs_the_pod_of_the_job_but_for_the_session_that_is_due(objects):
    cron = yaml.safe_load((FOLDER / "sessions.yaml").read_text())
    job, spec = objects["Job"], cron["spec"]
    assert (cron["kind"], cron["metadata"], spec["concurrencyPolicy"]) == ("CronJob", job["metadata"], "Forbid")
    arguments = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[-1] == "--next-session"
    arguments[-1] = "--resume"
    assert spec["jobTemplate"]["spec"] == job["spec"]


def test_the_image_holds_what_the_library_looks_for(objects):
    copied = [words for line in re.findall(r"^COPY (?!--)(.+)$", RECIPE, re.M) for words in line.split()[:-1]]
    assert [name for name in copied if not (paths.CHECKOUT / name).exists()] == []
    needed = [paths.NOTEBOOKS, paths.MANIFESTS, Path(paths.__file__).parent]
    needed += [paths.CHECKOUT / name for name in ("requirements.lock", CITATION)]
    assert {str(path.relative_to(paths.CHECKOUT)) for path in needed} <= set(copied)
    python = re.search(r"python:(\d+)\.(\d+)-", RECIPE)
    assert python is not None
    project = tomllib.loads((paths.CHECKOUT / "pyproject.toml").read_text())["project"]
    assert f">={python[1]}.{python[2]}" == project["requires-python"]
    assert {project["readme"], *project["license-files"]} <= set(copied)
    user = str(objects["Job"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"])
    assert f"USER {user}:{user}" in RECIPE
