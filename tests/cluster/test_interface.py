"""The cluster tests use only the public interface of the test cluster."""

import ast
from pathlib import Path

import testcluster


def taken(path: Path) -> set[str]:
    """Names that a file imports from the package, including its modules."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "testcluster":
            found |= {f"{node.module}.{name.name}".removeprefix("testcluster.") for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name.startswith("testcluster.")}
    return found


def test_the_test_cluster_is_used_by_its_interface_alone() -> None:
    files = list(Path(__file__).parent.glob("*.py"))
    used = {path.name: taken(path) - {*testcluster.__all__, "plugin"} for path in files}
    assert {name: parts for name, parts in used.items() if parts} == {}
    assert "Cluster" in set().union(*map(taken, files))
