"""Tests use only public names of meshtrial, so that everything else may change."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import meshtrial

TESTS = Path(__file__).parents[1]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_")  # __init__ and _repr_html_ are other people's protocols


def defined(tree: ast.AST) -> Iterator[str]:
    """Return private names that a module gives to its functions, classes, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        else:
            continue
        if is_private(name):
            yield name


def used(tree: ast.AST, ours: set[str]) -> list[str]:
    """Return line and name of each use: imported, read as attribute, or named in a text (``monkeypatch.setattr``)."""
    own = set(defined(tree))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "meshtrial":
            found += [f"{node.lineno}: {alias.name}" for alias in node.names if is_private(alias.name)]
        elif isinstance(node, ast.Attribute) and node.attr in ours:
            itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") and node.attr in own
            if not itself and (isinstance(node.ctx, ast.Store) or node.attr not in own):
                found.append(f"{node.lineno}: {node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            *_, name = node.value.split(".")
            if name in ours and name not in own:
                found.append(f"{node.lineno}: {node.value!r}")
    return sorted(set(found))


@pytest.fixture(scope="module")
def ours() -> set[str]:
    return {
        name for path in Path(meshtrial.__file__).parent.rglob("*.py") for name in defined(ast.parse(path.read_text()))
    }


def test_tests_use_public_names(ours: set[str]):
    uses = {path.relative_to(TESTS).as_posix(): used(ast.parse(path.read_text()), ours) for path in TESTS.rglob("*.py")}
    assert {path: found for path, found in uses.items() if found} == {}


def test_a_use_is_seen_and_a_name_of_the_tests_own_is_none():
    for source in ("from meshtrial.load import _hidden", "load._hidden(1)", 'monkeypatch.setattr(load, "_hidden", 1)'):
        assert len(used(ast.parse(source), {"_hidden"})) == 1
    assert used(ast.parse("def _hidden(): ...\n_hidden()"), {"_hidden"}) == []
