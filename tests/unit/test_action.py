"""The GitHub action matches the published schema, and its commands work in a runner's environment."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from commandline import SAMPLE

from meshtrial import paths

FILE = paths.CHECKOUT / "action.yml"
ACTION: dict[str, Any] = yaml.safe_load(FILE.read_text())
SCHEMA = json.loads((paths.CHECKOUT / "tests" / "fixtures" / "github-action.schema.json").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
WRITTEN = {"summary.md", "gate.xml", "benchmark.json", "bencher.json"}


def step(name: str) -> dict[str, Any]:
    (found,) = (one for one in STEPS if one.get("name") == name)
    return found


def test_it_is_an_action_by_the_published_schema():
    jsonschema.Draft7Validator(SCHEMA).validate(ACTION)
    broken = ACTION | {"runs": {"using": "composite", "steps": [{"run": "true"}]}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate(broken)


@pytest.mark.parametrize("script", [one["run"] for one in STEPS if "run" in one])
def test_bash_takes_every_script_and_no_input_is_pasted_into_one(script):
    assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0
    assert "${{" not in script


def test_every_input_is_used_and_every_used_one_is_declared():
    text = FILE.read_text().split("\nruns:\n")[1]
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(ACTION["inputs"])


def test_set_up_calls_a_target():
    (target,) = re.findall(r"make -C \S+ ([a-z-]+)$", step("set up")["run"])
    assert f"\n{target}:" in (paths.CHECKOUT / "Makefile").read_text()


def judge(tmp_path: Path, **inputs: str) -> tuple[int, dict[str, str], Path]:
    """Run the step as a runner does, with these inputs; return its code, its outputs and the job's summary."""
    values = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()} | inputs
    given = {
        variable: values[re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", text)[1]]  # type: ignore[index]
        for variable, text in step("measure and judge")["env"].items()
    }
    output, summary = tmp_path / "output", tmp_path / "job-summary.md"
    runner = {
        "RUNNER_TEMP": tmp_path / "runner temp",
        "GITHUB_OUTPUT": output,
        "GITHUB_STEP_SUMMARY": summary,
        "GITHUB_ACTION_PATH": paths.CHECKOUT,
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step("measure and judge")["run"]],
        env=os.environ | given | {name: str(path) for name, path in runner.items()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = dict(line.split("=", 1) for line in output.read_text().splitlines())
    assert said["exit-code"] == str(done.returncode), done.stderr
    return done.returncode, said | {"error": done.stderr}, summary


FILES = {
    "baseline": f"none={SAMPLE}/runs/*-none/fortio.json",
    "treatments": f"node-proxy={SAMPLE}/runs/*-node-proxy/fortio.json\nnone-aa={SAMPLE}/runs/*-none-aa/fortio.json\n",
    "metrics": "p50",
    "pair-by": "order",
}


@pytest.mark.parametrize(("rule", "code"), [({"fail-on": "slower"}, 4), ({"fail-on": "faster"}, 0)])
def test_compared_files_decide_the_job_and_leave_all_results(tmp_path, rule, code):
    returned, said, summary = judge(tmp_path, **FILES, **rule)
    assert returned == code
    folder = Path(said["folder"])
    assert {path.name for path in folder.iterdir()} == WRITTEN | {"report.html"}
    assert summary.read_text() == (folder / "summary.md").read_text()
    assert len(json.loads((folder / "benchmark.json").read_text())) == 2


def test_a_wrong_input_fails_with_meshtrials_message_and_no_summary(tmp_path):
    code, _, summary = judge(tmp_path, **FILES, require="equal")
    assert code == 2
    assert not summary.exists()


def test_a_study_gets_its_parameters_one_per_line(tmp_path):
    code, said, _ = judge(tmp_path, study="feature_impact", parameters="blocks=12\nno_such=1\n")
    assert code == 2
    assert list(Path(said["folder"]).iterdir()) == []
    # The first line was accepted, and the second is refused by its name.
    assert "no_such" in said["error"]
