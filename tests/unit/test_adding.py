"""docs/adding.md is followed literally, recipe by recipe, on a copy of the checkout."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import copied
import pytest

from meshtrial import paths

GUIDE = paths.CHECKOUT / "docs" / "adding.md"
HEADING = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
FENCE = re.compile(r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"(?P<verb>New file|In) `(?P<path>[^`]+)`:\s*\Z")
# Runs that take longer than a unit test, or a cluster.
NOT_FOLLOWED = "sh"


@dataclass(frozen=True)
class Block:
    """A fenced block of a recipe: what it is, and the file that it is about."""

    kind: str
    verb: str
    path: str
    body: str


def recipes() -> dict[str, list[Block]]:
    parts = HEADING.split(GUIDE.read_text())
    return {title: blocks(text) for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def blocks(text: str) -> list[Block]:
    found = []
    for fence in FENCE.finditer(text):
        place = PLACE.search(text[: fence.start()])
        verb, path = (place["verb"], place["path"]) if place else ("", "")
        found.append(Block(fence["kind"], verb, path, fence["body"]))
    return found


def patched(text: str, change: str, where: str) -> str:
    """Apply a change: a blank in front says where, a + adds behind it, a - takes out."""
    position = 0
    for line in change.splitlines(keepends=True):
        mark, content = line[0], line[1:]
        if mark == "+":
            text = text[:position] + content + text[position:]
            position += len(content)
            continue
        assert text.count(content) == 1, f"{where}: {content.strip()!r} stands there {text.count(content)} times"
        start = text.index(content)
        if mark == "-":
            text = text[:start] + text[start + len(content) :]
            position = start
        else:
            position = start + len(content)
    return text


@dataclass(frozen=True)
class Copy:
    """A copy of what a recipe touches; the rest of the checkout is linked."""

    root: Path

    def follow(self, block: Block) -> None:
        target = self.root / block.path
        if block.verb == "New file":
            assert not target.exists(), f"{block.path} is there already"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.body)
        elif block.verb == "In":
            target.write_text(patched(target.read_text(), block.body, block.path))
        elif block.kind == "console":
            command, expected = dialogue(block.body)
            assert self.run(command) == expected
        else:
            assert block.kind == NOT_FOLLOWED, f"a {block.kind} block that says neither where nor what to expect"

    def run(self, command: str) -> str:
        # As in a checkout, with this test's own Python and with the copy's library before the installed one.
        command = command.replace(".venv/bin/python", sys.executable)
        command = command.replace(".venv/bin/meshtrial", f"{sys.executable} -m meshtrial")
        return copied.said(self.root, ["bash", "-c", command])


def dialogue(body: str) -> tuple[str, str]:
    """The commands of a console block, here-documents included, and what they must print."""
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


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(copied.checkout(tmp_path))


@pytest.mark.parametrize("title", recipes())
def test_a_recipe_works_as_it_is_written(title: str, copy: Copy):
    followed = recipes()[title]
    for block in followed:
        copy.follow(block)
    assert any(block.kind == "console" for block in followed), "a recipe shows that it worked"


PYTHON = [title for title, found in recipes().items() if any(block.path.endswith(".py") for block in found)]


@pytest.mark.parametrize("title", PYTHON)
def test_what_a_recipe_adds_passes_the_linter(title: str, copy: Copy):
    changed = [block for block in recipes()[title] if block.path.endswith(".py")]
    for block in changed:
        copy.follow(block)
    for check in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        files = [str(copy.root / block.path) for block in changed]
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *check, *files], cwd=copy.root, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_promises():
    found = recipes()
    assert {"A mesh", "A percentile", "A figure"} <= set(found)
    touched = {title: [block for block in found[title] if block.path] for title in found}
    assert not [block.path for block in touched["A mesh"] if block.path.endswith(".py")]
    (percentile,) = touched["A percentile"]
    assert [line[0] for line in percentile.body.splitlines()].count("+") == 1
    assert "-" not in [line[0] for line in percentile.body.splitlines()]
    (figure,) = touched["A figure"]
    assert figure.verb == "New file"


@pytest.mark.parametrize(
    ("change", "words"), [(" three\n+four\n", "stands there 0 times"), (" one\n+four\n", "stands there 2 times")]
)
def test_a_recipe_that_the_code_has_outgrown_fails(change: str, words: str):
    with pytest.raises(AssertionError, match=words):
        patched("one\ntwo\none\n", change, "a file")


def test_a_command_that_prints_something_else_fails(copy: Copy):
    block = Block("console", "", "", "$ echo one\ntwo\n")
    with pytest.raises(AssertionError):
        copy.follow(block)
