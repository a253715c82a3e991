"""The designs of published studies that run on one machine, each executed: shortened, one block, real processes."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from meshtrial import paths
from meshtrial.commands.run import read_given
from meshtrial.design.parameters import read_parameters
from meshtrial.design.plan import make_plan
from meshtrial.design.studies import study_module
from meshtrial.design.study import Gates, Load, Study
from meshtrial.records.store import StudyStore
from meshtrial.run.runner import execute
from meshtrial.testbed.local.testbed import LocalTestbed

pytestmark = pytest.mark.beside
DESIGNS = [
    path
    for path in sorted((paths.NOTEBOOKS / "designs").glob("*.yaml"))
    if yaml.safe_load(path.read_text()).get("backend") != "kubernetes"
]
# Other tests may run beside it, and a run of a second has few requests: this is about whether a design runs at all.
GATES = Gates(foreign_load=1.0, generator_cpu=1.0, late_ratio=1.0, rate_tolerance=1.0, sample_floor=5)


def shortened(path: Path) -> Study:
    """One block of its first and its last treatment at its first load."""
    name = path.stem.partition("-")[0]
    module = study_module(name)
    study = module.build(read_parameters(module.PARAMETERS, read_given(name, path, [])))
    plain = [treatment for treatment in study.treatments if not treatment.twin]
    loads = (_short(study.loads[0]),)
    return replace(study, treatments=(plain[0], plain[-1]), loads=loads, contrasts=(), blocks=1, gates=GATES)


def _short(load: Load) -> Load:
    rps = min(load.rps, 500.0)
    enough_s = 2.5 * load.connections / rps if rps else 0.0
    return replace(load, rps=rps, duration_s=max(0.5, enough_s), warmup_s=0.1)


@pytest.mark.parametrize("path", DESIGNS, ids=lambda path: path.stem)
def test_a_design_runs(path: Path):
    study = shortened(path)
    if (
        any("details" in (treatment.app or study.app) for treatment in study.treatments)
        and shutil.which("ruby") is None
    ):
        pytest.skip("needs ruby with webrick")
    testbed = LocalTestbed(study.options)
    assert testbed.preflight(study) == ()
    store = StudyStore.create(Path(os.environ["MESHTRIAL_DATA"]), make_plan(study), {})
    execute(store, testbed, lambda _: None)
    runs = [run for run in store.records() if run.attempt == 1]
    assert len(runs) == len(study.treatments) * len(study.loads)
    assert [f"{run.treatment}, {run.load}: {run.reasons}" for run in runs if not run.valid] == []
    assert all(run.responses["requests"] > 0 for run in runs)
