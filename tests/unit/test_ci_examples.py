"""The examples for pipelines are valid YAML, and meshtrial accepts every command in them."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from meshtrial import cli, paths
from meshtrial.commands import gating
from meshtrial.commands.run import read_given
from meshtrial.design.studies import STUDIES
from meshtrial.inference.gate import read_rules
from meshtrial.testbed.kubernetes.meshdata import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.vocabulary import VerdictLabel

FOLDER = paths.CHECKOUT / "docs" / "ci"
GITHUB, GITLAB = FOLDER / "github-actions.yml", FOLDER / "gitlab-ci.yml"
PAGE = (paths.CHECKOUT / "docs" / "how-to" / "ci-gate.md").read_text()
TARGETS = re.findall(r"^([a-z-]+):", (paths.CHECKOUT / "Makefile").read_text(), re.M)


def steps() -> list[dict[str, Any]]:
    (job,) = yaml.safe_load(GITHUB.read_text())["jobs"].values()
    return job["steps"]


def scripts(path: Path) -> list[str]:
    """Return the shell lines of an example."""
    if path == GITHUB:
        return [step["run"] for step in steps() if "run" in step]
    return yaml.safe_load(path.read_text())["gate"]["script"]


def study_command(path: Path) -> list[str]:
    """Return the words of the measuring command, without what the shell does with its exit code."""
    (script,) = [text for text in scripts(path) if "meshtrial " in text]
    words = shlex.split(script.replace("\\\n", " "))
    assert words.pop(0) == ".venv/bin/meshtrial"
    return words[: words.index("||")] if "||" in words else words


@pytest.mark.parametrize("path", [GITHUB, GITLAB], ids=lambda path: path.name)
def test_the_command_is_one_that_meshtrial_takes(path, tmp_path):
    words = study_command(path)
    arguments = cli.parser(words[0]).parse_args(words)
    given = read_given(arguments.study, arguments.file, arguments.pairs)
    assert given["blocks"] == 12
    # The page's bound of 5 % for the examples holds for two families.
    assert len(given["primary"].split(",")) == 2
    assert read_rules(arguments.fail_on, arguments.require)
    arguments.summary, arguments.junit = (tmp_path / str(name) for name in ("summary", arguments.junit))
    assert gating.read(arguments)


@pytest.mark.parametrize("path", [GITHUB, GITLAB], ids=lambda path: path.name)
def test_what_it_makes_is_a_target(path):
    made = [text.split()[1] for text in scripts(path) if text.startswith("make ")]
    assert made
    assert set(made) <= set(TARGETS)


def test_github_runs_on_pull_requests_and_keeps_what_was_written():
    whole = yaml.safe_load(GITHUB.read_text())
    # YAML 1.1 reads the key `on` as true; GitHub does not.
    assert whole[True] == "pull_request"
    (upload,) = [step for step in steps() if "upload-artifact" in step.get("uses", "")]
    assert upload["if"] == "always()"
    assert "gate.xml" in upload["with"]["path"]
    (script,) = [text for text in scripts(GITHUB) if "meshtrial " in text]
    assert script.rstrip().endswith("|| [ $? -eq 3 ]")


def test_gitlab_shows_the_test_report_and_lets_invalid_runs_pass():
    job = yaml.safe_load(GITLAB.read_text())["gate"]
    assert job["allow_failure"] == {"exit_codes": 3}
    assert job["artifacts"]["when"] == "always"
    words = study_command(GITLAB)
    assert job["artifacts"]["reports"]["junit"] == words[words.index("--junit") + 1]
    assert words[words.index("--summary") + 1] in job["artifacts"]["paths"]


def test_every_rule_that_the_page_shows_is_one():
    shown = re.findall(r"(--fail-on|--require) ([a-z:,.-]+)", PAGE)
    assert len(shown) > 10
    for option, words in shown:
        rules = words.removeprefix("...,").removesuffix(",...")
        assert read_rules([rules] if option == "--fail-on" else (), [rules] if option == "--require" else ())


def test_the_page_says_what_every_verdict_does():
    named = set(re.findall(r"[a-z]+", " ".join(re.findall(r"`([^`\n]+)`", PAGE))))
    assert [word for word in VerdictLabel if word not in named] == ["higher", "lower"]


NIGHTLY = (paths.CHECKOUT / "docs" / "how-to" / "nightly.md").read_text()
DESIGN = FOLDER / "nightly.yaml"
CRONJOB = list(yaml.safe_load_all((FOLDER / "nightly-cronjob.yaml").read_text()))


def nightly_scripts() -> dict[str, str]:
    """Return what each of the three schedulers starts, as a shell receives it."""
    (line,) = re.findall(r"```text\n(.+)\n```", NIGHTLY)
    (job,) = yaml.safe_load((FOLDER / "nightly-github.yml").read_text())["jobs"].values()
    (measured,) = [step["run"] for step in job["steps"] if "meshtrial run" in step.get("run", "")]
    (container,) = CRONJOB[-1]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:2] == ["sh", "-c"]
    return {"cron": line.split(maxsplit=5)[5], "workflow": measured, "CronJob": container["command"][2]}


@pytest.mark.parametrize("name", nightly_scripts())
def test_a_nightly_command_is_one_that_meshtrial_takes(name: str):
    script = nightly_scripts()[name]
    assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0
    command = re.search(
        r"meshtrial (run [^|>]+)", script.replace("\\\n", " ").replace("$(date -u +%Y%m%d)", "20261128")
    )
    assert command is not None
    words = shlex.split(command[1])
    words[words.index("-f") + 1] = str(DESIGN)
    arguments = cli.parser("run").parse_args(words)
    assert arguments.allow_excluded
    assert arguments.resume == (name == "CronJob")
    (rules,) = arguments.fail_on
    assert rules == "slower:material,saturated,invalid"
    assert read_rules(arguments.fail_on, ())


def test_all_nights_run_at_one_time_of_day():
    (line,) = re.findall(r"```text\n(.+)\n```", NIGHTLY)
    schedule = yaml.safe_load((FOLDER / "nightly-github.yml").read_text())[True]["schedule"]
    assert " ".join(line.split()[:5]) == schedule[0]["cron"] == CRONJOB[-1]["spec"]["schedule"]


def test_the_nightly_study_has_a_primary_p99_with_enough_requests():
    page, cluster = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", NIGHTLY, re.S))
    design = yaml.safe_load(DESIGN.read_text())
    mounted = {name: yaml.safe_load(text) for name, text in CRONJOB[0]["data"].items()}
    assert page == design == mounted["nightly.yaml"] | {"cluster_file": "cluster.yaml"}
    assert cluster == mounted["cluster.yaml"]
    assert {"istio@old", "istio@new"} <= set(find_meshes(KubernetesOptions.read(cluster)))
    module = STUDIES["mesh_comparison"]
    study = module.build(module.SETTINGS.read({key: value for key, value in design.items() if key != "cluster_file"}))
    (load,) = study.loads
    assert load.rps * load.duration_s * (1 - 0.99) >= study.gates.sample_floor
    assert study.primary == ("latency_p99_s",)
    assert {contrast.baseline for contrast in study.contrasts} == {"istio@old+mtls"}
