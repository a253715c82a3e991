"""Each published design for one machine, executed with one short block and real processes."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from local.studies import executed, need_releases, study_of, without_twin

from meshtrial import paths
from meshtrial.commands.run import read_given
from meshtrial.design.load import Load
from meshtrial.design.study import Study

DESIGNS = [
    path
    for path in sorted((paths.NOTEBOOKS / "designs").glob("*.yaml"))
    if yaml.safe_load(path.read_text()).get("backend") != "kubernetes"
]


def shortened(path: Path) -> Study:
    """Return one block of its first and its last treatment at its first load."""
    name = path.stem.partition("-")[0]
    study = without_twin(study_of(name, read_given(name, path, []), contrasts=(), blocks=1, sessions=1))
    ends = (study.treatments[0], study.treatments[-1])
    return replace(study, treatments=ends, loads=(_short(study.loads[0]),))


def _short(load: Load) -> Load:
    rps = min(load.asked_rps, 500.0)
    enough_s = 2.5 * load.connections / rps if rps else 0.0
    return replace(load, duration_s=max(0.5, enough_s), warmup_s=0.1, **({"rps": rps} if rps else {}))


@pytest.mark.parametrize("path", DESIGNS, ids=lambda path: path.stem)
def test_a_design_runs(path: Path):
    study = shortened(path)
    if (
        any("details" in (treatment.app or study.app) for treatment in study.treatments)
        and shutil.which("ruby") is None
    ):
        pytest.skip("needs ruby with webrick")
    need_releases(str(study.parameters.get("versions", "")))
    runs = [run for run in executed(study).records() if run.attempt == 1]
    assert len(runs) == len(study.treatments) * len(study.loads)
    assert [f"{run.treatment}, {run.load}: {run.reasons}" for run in runs if not run.valid] == []
    assert all(run.responses["requests"] > 0 for run in runs)
