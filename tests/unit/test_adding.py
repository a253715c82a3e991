"""docs/contributing: the recipes are followed on a copy of the checkout; every new module is imported."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from meshtrial import paths

GUIDE = paths.CHECKOUT / "docs" / "contributing"
FENCE = re.compile(r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"(?P<verb>New file|In) `(?P<path>[^`]+)`:\s*\Z")
# Runs that take longer than a unit test, or a cluster.
NOT_FOLLOWED = "sh"


@dataclass(frozen=True)
class Block:
    """A fenced block of a recipe: its kind and its file."""

    kind: str
    verb: str
    path: str
    body: str


def recipes() -> dict[str, list[Block]]:
    """The pages that show code, by name."""
    found = {page.stem: blocks(page.read_text()) for page in sorted(GUIDE.glob("*.md"))}
    return {name: shown for name, shown in found.items() if shown}


def blocks(text: str) -> list[Block]:
    found = []
    for fence in FENCE.finditer(text):
        place = PLACE.search(text[: fence.start()])
        verb, path = (place["verb"], place["path"]) if place else ("", "")
        found.append(Block(fence["kind"], verb, path, fence["body"]))
    return found


def follow(root: Path, block: Block) -> None:
    """Apply a block to a copy of the checkout."""
    if block.verb == "New file":
        target = root / block.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.body)
    elif block.kind == "console":
        command, expected = dialogue(block.body)
        assert printed(root, command.replace(".venv/bin/python", sys.executable)) == expected
    else:
        assert block.kind == NOT_FOLLOWED, f"a {block.kind} block that says neither where nor what to expect"


def printed(root: Path, command: str) -> str:
    """Return a command's output, with the copy's library before the installed one."""
    env = os.environ | {"PYTHONPATH": str(root / "lib"), "MPLBACKEND": "agg"}
    done = subprocess.run(["bash", "-c", command], cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def dialogue(body: str) -> tuple[str, str]:
    """Return the commands of a console block, here-documents included, with their expected output."""
    commands: list[str] = []
    expected: list[str] = []
    end = ""
    for line in body.splitlines():
        if end:
            commands.append(line)
            end = "" if line == end else end
        elif line.startswith("$ "):
            assert not expected, "commands come before what they print"
            commands.append(line[2:])
            heredoc = re.search(r"<<'(\w+)'", line)
            end = heredoc[1] if heredoc else ""
        else:
            expected.append(line)
    return "\n".join(commands), "".join(f"{line}\n" for line in expected)


RECIPES = recipes()
OF_NEW_FILES = [title for title, found in RECIPES.items() if all(block.verb != "In" for block in found)]
MODULES = [block for found in RECIPES.values() for block in found if block.path.endswith(".py") and block.verb != "In"]


@pytest.mark.parametrize("title", OF_NEW_FILES)
def test_a_recipe_of_new_files_works_as_it_is_written(title: str, tmp_path: Path):
    # Copied with the compiled files, so that nothing is compiled again.
    for name in ("lib", "manifests"):
        shutil.copytree(paths.CHECKOUT / name, tmp_path / name)
    (tmp_path / "data").symlink_to(paths.CHECKOUT / "data")
    for block in RECIPES[title]:
        follow(tmp_path, block)


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_files_that_exist_and_shows_that_it_worked(title: str):
    for block in RECIPES[title]:
        assert (paths.CHECKOUT / block.path).exists() == (block.verb != "New file"), block.path
    assert any(block.kind == "console" for block in RECIPES[title])


@pytest.mark.parametrize("module", MODULES, ids=lambda block: Path(block.path).stem)
def test_a_new_module_imports_what_exists(module: Block):
    exec(compile(module.body, module.path, "exec"), {"__name__": Path(module.path).stem})


def test_new_modules_pass_the_linter(tmp_path: Path):
    for module in MODULES:
        (tmp_path / Path(module.path).name).write_text(module.body)
    for check in (["check"], ["format", "--check"]):
        settings = ["--no-cache", "--config", paths.CHECKOUT / "pyproject.toml"]
        command = [sys.executable, "-m", "ruff", *check, *settings, tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_promises():
    assert set(OF_NEW_FILES) == {"mesh", "figure", "study"}
    assert not [block.path for block in RECIPES["mesh"] if block.path.endswith(".py")]
    assert len([block for block in RECIPES["figure"] if block.path]) == 1
    (percentile,) = [block for block in RECIPES["percentile"] if block.path]
    assert [line[0] for line in percentile.body.splitlines() if line[0] != " "] == ["+"]
