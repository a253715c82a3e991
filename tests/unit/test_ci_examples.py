"""The examples for pipelines are YAML of the right shape, and every command in them is one that meshtrial takes."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from meshtrial import cli, paths
from meshtrial.commands import gating
from meshtrial.commands.run import read_given
from meshtrial.inference.gate import read_rules
from meshtrial.vocabulary import VerdictLabel

FOLDER = paths.CHECKOUT / "docs" / "ci"
GITHUB, GITLAB = FOLDER / "github-actions.yml", FOLDER / "gitlab-ci.yml"
PAGE = (paths.CHECKOUT / "docs" / "how-to" / "gate.md").read_text()
TARGETS = re.findall(r"^([a-z-]+):", (paths.CHECKOUT / "Makefile").read_text(), re.M)


def steps() -> list[dict[str, Any]]:
    (job,) = yaml.safe_load(GITHUB.read_text())["jobs"].values()
    return job["steps"]


def scripts(path: Path) -> list[str]:
    """The shell lines of an example."""
    if path == GITHUB:
        return [step["run"] for step in steps() if "run" in step]
    return yaml.safe_load(path.read_text())["gate"]["script"]


def study_command(path: Path) -> list[str]:
    """The words of the command that measures, up to what the shell does with its exit code."""
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
    # The bound of 5 % that the page gives for the examples is that of two families.
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
    assert [word for word in VerdictLabel if f"`{word}`" not in PAGE and f"`{word}:" not in PAGE] == ["higher", "lower"]
