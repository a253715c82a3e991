"""What the pages say is what the code does: links, the citation's version, and the figures of docs/method.md."""

from __future__ import annotations

import ast
import dataclasses
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from meshtrial import __version__, paths, stats
from meshtrial.design.responses import REGISTRY, default_margins
from meshtrial.design.studies import STUDIES
from meshtrial.design.study import Gates
from meshtrial.records.schema import RunRecord
from meshtrial.testbed.kubernetes.options import KubernetesOptions

PAGES = [*sorted(paths.CHECKOUT.glob("*.md")), *sorted(paths.CHECKOUT.glob("docs/*.md")), paths.MANIFESTS / "README.md"]
LIBRARY = Path(paths.__file__).parent
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
METHOD = " ".join((paths.CHECKOUT / "docs" / "method.md").read_text().split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(paths.CHECKOUT)))
def test_links_lead_somewhere(page: Path):
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


COVERAGE = (paths.CHECKOUT / "docs" / "coverage.md").read_text()


def test_the_coverage_names_every_design_and_only_those():
    found = set(re.findall(r"`(\w+-[\w-]+\.yaml)`", COVERAGE))
    assert found == {path.name for path in (paths.NOTEBOOKS / "designs").glob("*.yaml")}


def test_every_row_of_the_coverage_says_what_is_different():
    rows = [line.strip("|").split("|") for line in COVERAGE.splitlines() if line.startswith("| ")]
    assert len(rows) > 40
    assert all(len(row) == 3 and all(cell.strip() for cell in row) for row in rows)
    assert "partial" not in COVERAGE.lower()


def test_the_coverage_names_parameters_studies_and_responses_that_there_are():
    parameters = {parameter.name for study in STUDIES.values() for parameter in study.PARAMETERS}
    options = {field.name for field in dataclasses.fields(KubernetesOptions)}
    given = set(re.findall(r"`(\w+)=[^`]*`", COVERAGE))
    assert given <= parameters | options
    known = {*parameters, *options, *STUDIES, *REGISTRY, *(field.name for field in dataclasses.fields(RunRecord))}
    known |= {path.stem for path in paths.NOTEBOOKS.glob("*.ipynb")}
    known.add("istio")
    assert set(re.findall(r"`([a-z][a-z0-9_]+)`", COVERAGE)) <= known


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((paths.CHECKOUT / "CITATION.cff").read_text())
    project = tomllib.loads((paths.CHECKOUT / "pyproject.toml").read_text())["project"]
    assert cited["version"] == project["version"] == __version__
    assert cited["license"] == project["license"]


@pytest.mark.parametrize(
    ("test", "row"),
    [
        ("difference", "a difference, max-T: 2^(1-n) ≤ 0.05"),
        ("difference", "a difference, Holm: 2^(1-n) ≤ 0.05/m"),
        ("equivalence", "equivalence: 2^-n ≤ 0.05/m"),
    ],
)
def test_fewest_blocks_as_the_method_lists_them(test, row):
    families = re.search(r"\| m \|([\d |]+?)\| \|", METHOD)
    listed = re.search(re.escape(row) + r" \|([\d |]+?)\| ?(?:\||[A-Z#])", METHOD)
    assert families is not None
    assert listed is not None
    numbers = [int(n) for n in listed[1].split("|") if n.strip()]
    sizes = [int(m) if "/m" in row else 1 for m in families[1].split("|") if m.strip()]
    assert numbers == [stats.smallest_n(m, 0.05, test) for m in sizes]


def test_gates_margins_and_looks_as_the_method_gives_them():
    gates, margins, looks = Gates(), default_margins(), stats.TwoLooks()
    for said in (
        f"achieved within {gates.rate_tolerance:.0%} of",
        f"at most {gates.late_ratio:.0%} of the sends",
        f"at most {gates.error_ratio:.0%} of the requests",
        f"less than {gates.generator_cpu:.0%} of the CPU",
        f"N (1 - q) ≥ {gates.sample_floor:.0f}",
        f"{margins['latency_p90_s'].relative:.0%} up to p90 and for the mean",
        f"{margins['latency_p99_s'].relative:.0%} for p95 and p99",
        f"{margins['latency_p999_s'].relative:.0%} for p99.9",
        f"{margins['path_cpu_s_per_request'].relative:.0%} for CPU, memory and capacity",
        f"floor {1e3 * margins['latency_p50_s'].floor:g} ms",
        f"after {looks.first} blocks at a fifth of alpha",
        f"after {looks.second} at four fifths",
    ):
        assert said.replace("%", " %") in METHOD, said


def imported(room: Path) -> set[str]:
    """The other rooms that a room's modules import."""
    found = set()
    for path in room.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "meshtrial":
                _, _, below = (node.module or "").partition(".")
                found |= {below.split(".")[0]} if below else {alias.name for alias in node.names}
    return {name for name in found if (LIBRARY / name).is_dir()} - {room.name}


def test_the_rooms_import_what_the_architecture_says():
    rows = re.findall(
        r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", (paths.CHECKOUT / "docs" / "architecture.md").read_text(), re.M
    )
    listed = [name for name, _ in rows]
    assert sorted(listed) == sorted(path.parent.name for path in LIBRARY.glob("*/__init__.py"))
    for place, (name, allowed) in enumerate(rows):
        above = {"all of the above": set(listed[:place]), "everything": set(listed)}.get(allowed.strip())
        assert imported(LIBRARY / name) <= (set(re.findall(r"`(\w+)`", allowed)) if above is None else above), name
