"""The hook that checks commit messages: it refuses each mistake and accepts good messages."""

import importlib.util
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from meshtrial import paths

SCRIPT = paths.CHECKOUT / ".ci" / "commit_message.py"
SPEC = importlib.util.spec_from_file_location("commit_message", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
commit_message = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(commit_message)

WHY = "\n\nA label was drawn outside of its figure."


@pytest.mark.parametrize(
    "message",
    [
        f"report: clip tick labels{WHY}",
        f"tests/unit: need no network{WHY}",
        f"load: bias no percentile{WHY}\n# Please enter the commit message for your changes.",
        f"stats: pass p-values on{WHY}",
        f"{'a' * 20}: {'b' * 38}{WHY}",
        "Merge branch 'figures'",
        'Revert "report: clip tick labels"',
        "fixup! report: clip tick labels",
    ],
)
def test_a_good_message_passes(message: str):
    assert commit_message.problems(message) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (f"{'a' * 20}: {'b' * 39}{WHY}", "61 characters"),
        (f"Ticks end where their axis does{WHY}", "area: what"),
        (f"report: Clip tick labels{WHY}", "area: what"),
        (f"report:clip tick labels{WHY}", "area: what"),
        (f"report: clips tick labels{WHY}", "'clips'"),
        (f"report: clipped tick labels{WHY}", "'clipped'"),
        (f"report: clipping tick labels{WHY}", "'clipping'"),
        (f"report: clip tick labels.{WHY}", "full stop"),
        ("report: clip tick labels\nA label was drawn outside.", "second line"),
        ("report: clip tick labels", "no body"),
        ("report: clip tick labels\n\n# Changes to be committed:", "no body"),
        ("", "area: what"),
    ],
)
def test_each_mistake_is_named(message: str, problem: str):
    assert [line for line in commit_message.problems(message) if problem in line] != []


@pytest.mark.parametrize(("message", "code"), [(f"report: clip tick labels{WHY}", 0), ("Changes of late", 1)])
def test_git_calls_it_with_the_file_of_the_message(message: str, code: int, tmp_path: Path):
    hooks = yaml.safe_load((paths.CHECKOUT / ".pre-commit-config.yaml").read_text())
    assert "commit-msg" in hooks["default_install_hook_types"]
    (hook,) = [one for repo in hooks["repos"] for one in repo["hooks"] if "commit-msg" in one.get("stages", ())]
    (tmp_path / "COMMIT_EDITMSG").write_text(message)
    command = [*shlex.split(hook["entry"]), str(tmp_path / "COMMIT_EDITMSG")]
    done = subprocess.run(command, cwd=paths.CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert bool(done.stderr) == bool(code)
