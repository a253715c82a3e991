"""The tutorial on kind as written: every command runs, with the test cluster in place of kind."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ground import Ground
from test_backend_support import options_for, owned_namespaces
from testcluster import Cluster

from meshtrial import paths
from meshtrial.inference import read_study
from meshtrial.records.listing import recorded_in
from meshtrial.records.store import StudyStore

PAGE = (paths.CHECKOUT / "docs" / "tutorials" / "kind.md").read_text()
COMMANDS = [line for text in re.findall(r"(?ms)^```sh\n(.*?)^```$", PAGE) for line in text.splitlines()]
# No test runs these: the checkout, its set-up, and kind itself.
ELSEWHERE = ("git clone", "make setup", "source ", "kind ")
_PATIENCE_S = 3600
pytestmark = pytest.mark.timeout(2 * _PATIENCE_S, func_only=True)


def written(name: str) -> dict[str, Any]:
    """A file that the tutorial tells its reader to save."""
    found = re.search(rf"`{re.escape(name)}`.*?```yaml\n(.*?)```", PAGE, re.S)
    assert found is not None
    loaded: dict[str, Any] = yaml.safe_load(found[1])
    return loaded


@pytest.mark.wide
def test_every_command_of_the_tutorial_runs(
    ground: Ground, cluster: Cluster, require_mesh: Callable[[str], None], tmp_path: Path
):
    require_mesh("istio")
    nodes = written("kind.yaml")["nodes"]
    assert [node["role"] for node in nodes].count("worker") == 2
    theirs = written("cluster.yaml")
    assert theirs.pop("context") == "kind-meshtrial"
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(options_for(cluster)["kubernetes"] | theirs))
    places = {"MESHTRIAL_DATA": str(tmp_path / "studies"), "MESHTRIAL_REPORTS": str(tmp_path / "reports")}
    environment = {name: value for name, value in os.environ.items() if "DISPLAY" not in name} | places
    done = []
    for command in COMMANDS:
        words = shlex.split(command)
        if command.startswith(ELSEWHERE):
            continue
        if words[0] == "kubectl":
            assert words[1:3] == ["--context", "kind-meshtrial"]
            ground.kubectl(*words[3:])
            continue
        assert words[0] == "meshtrial"
        program = str(Path(sys.executable).with_name("meshtrial"))
        ran = subprocess.run(
            [program, *words[1:]], cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=_PATIENCE_S
        )
        # 3: finished, but a shared machine's noise made runs fail
        assert ran.returncode in ((0, 3) if words[1] == "run" else (0,)), f"{command}\n{ran.stdout}{ran.stderr}"
        done.append(words[1])
    assert done == ["doctor", "run", "run", "open", "clean"]
    trial, study = (read_study(StudyStore.open(path)) for path in recorded_in(tmp_path / "studies", "feature_impact"))
    assert (trial.plan.study.blocks, study.plan.study.blocks, len(study.plan.runs)) == (2, 8, 32)
    assert "32 runs" in PAGE
    for data in (trial, study):
        assert [proof for run in data.runs for proof in run.proofs if not proof.passed] == []
    # As the tutorial explains for two blocks.
    (row,) = [r for r in trial.verdicts if (r.treatment, r.baseline, r.response) == ("istio", "none", "latency_p50_s")]
    assert row.qualifier == "at least 6 blocks"
    assert owned_namespaces(cluster) == []
