"""The pages agree with the code: links, the citation's version, and the figures of docs/method.md."""

import csv
import dataclasses
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import make_reference
import pytest
import yaml
from building import built
from pages.error_rates import CALIBRATION
from pages.tables import plain

from meshtrial import __version__, cli, paths, stats
from meshtrial.commands.run import read_given
from meshtrial.design.foreseen import foreseen
from meshtrial.design.responses import REGISTRY, default_margins
from meshtrial.design.studies import STUDIES
from meshtrial.design.study import Gates
from meshtrial.records.schema import RunRecord
from meshtrial.testbed.kubernetes.meshdata import find_meshes, read_mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions

PAGES = [
    *sorted(paths.CHECKOUT.glob("*.md")),
    *sorted(paths.CHECKOUT.glob("docs/**/*.md")),
    paths.CHECKOUT / "data" / "README.md",
    paths.MANIFESTS / "README.md",
]
DOCS = paths.CHECKOUT / "docs"
README = (paths.CHECKOUT / "README.md").read_text()
FIRST_STUDY = (DOCS / "tutorials" / "first-study.md").read_text()
LOG = (paths.CHECKOUT / "tests" / "fixtures" / "documents" / "make-study.log").read_text()
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
METHOD = " ".join((paths.CHECKOUT / "docs" / "method.md").read_text().split())


def made_pages(sources: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Return pages of some sources, as `make docs` makes them."""
    options = ("--quiet", "--fail-on-warning", "--conf-dir", DOCS, "--doctree-dir", out / "doctrees")
    command = [sys.executable, "-m", "sphinx", *options, sources, out / "pages"]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def test_the_documentation_is_built_without_a_warning_and_fetches_nothing(tmp_path: Path):
    done = made_pages(paths.CHECKOUT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    pages = {page.relative_to(tmp_path / "pages").as_posix(): page.read_text() for page in tmp_path.rglob("*.html")}
    assert {f"{page.relative_to(paths.CHECKOUT).with_suffix('')}.html" for page in PAGES} <= set(pages)
    assert "index.html" in pages
    # The configuration of each mesh is added when the pages are made.
    assert all(name in pages["docs/reference/mesh-configuration.html"] for name in ("Linkerd", "PeerAuthentication"))
    fetched = r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>|@import[^;]*//"""
    assert {name: found for name, text in pages.items() if (found := re.findall(fetched, text))} == {}


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "method.md").write_text("# Method\n\n## Here\n\n[its file](gone.yaml) [itself](#nowhere)\n")
    (tmp_path / "README.md").write_text("# First\n\n[a page](gone.md) [a heading](docs/method.md#there)\n")
    done = made_pages(tmp_path, tmp_path / "out")
    assert done.returncode != 0
    assert [link for link in ("gone.yaml", "gone.md", "nowhere", "there") if f"'{link}'" not in done.stderr] == []


@pytest.mark.parametrize("path", make_reference.MADE, ids=str)
def test_a_generated_page_is_what_the_code_makes(path: Path):
    text = (paths.CHECKOUT / path).read_text()
    assert make_reference.MADE[path](text) == text, f"{path}: {make_reference.__doc__}"


def test_every_page_is_in_the_index():
    index = (DOCS / "README.md").read_text()
    linked = {(DOCS / link).resolve() for link in LINK.findall(index)}
    assert {path for path in DOCS.glob("**/*.md") if path.resolve() not in linked} == {DOCS / "README.md"}


COVERAGE = (paths.CHECKOUT / "docs" / "coverage.md").read_text()


def test_the_coverage_names_every_design_and_only_those():
    found = set(re.findall(r"`(\w+-[\w-]+\.yaml)`", COVERAGE))
    assert found == {path.name for path in (paths.NOTEBOOKS / "designs").glob("*.yaml")}


def test_the_coverage_names_parameters_studies_and_responses_that_there_are():
    parameters = {name for study in STUDIES.values() for name in study.SETTINGS.settings}
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


CALL = r"(?m)^%s((?:\.venv/bin/)?meshtrial (?:.*\\\n)*.*)$"
PLACEHOLDER = re.compile(r"\.\.\.|\bSTUDY\b")


def called_in(page: Path) -> list[str]:
    """Return calls of meshtrial in a page's code: indented, or fenced as a shell's."""
    text = page.read_text()
    fenced = "\n".join(re.findall(r"^ *```sh\n(.*?)^ *```$", text, flags=re.S | re.M))
    return re.findall(CALL % " {4,}", text) + re.findall(CALL % "", fenced)


def commands() -> list[tuple[str, str]]:
    """Every call that names no placeholder; the recipes have a test of their own."""
    calls = [
        (str(page.relative_to(paths.CHECKOUT)), call.replace("\\\n", " ").split("  #")[0].strip())
        for page in PAGES
        if page.parent.name != "contributing"
        for call in called_in(page)
    ]
    return [(page, call) for page, call in calls if not PLACEHOLDER.search(call)]


@pytest.mark.parametrize(("page", "command"), commands())
def test_every_command_of_a_page_is_one_that_meshtrial_takes(page: str, command: str, tmp_path: Path):
    (tmp_path / "cluster.yaml").write_text("app_cpu: 500m")
    words = shlex.split(command.replace("=cluster.yaml", f"={tmp_path / 'cluster.yaml'}"))[1:]
    arguments = cli.parser(words[0]).parse_args(words)
    if words[0] == "run":
        read_given(arguments.study, arguments.file, [pair for pair in arguments.pairs if "study_dir" not in pair])


def test_every_option_of_the_command_line_says_what_it_means():
    page = (DOCS / "reference" / "command-line.md").read_text()
    assert re.findall(r"(?m)^- `[^`]+`: *$", page) == []


def test_the_printed_output_is_real():
    quoted = re.search(r"prints, on two cores:\n\n((?:    .*\n|\n)+)", FIRST_STUDY)
    assert quoted is not None
    lines = [line[4:] for line in quoted[1].splitlines() if line.strip() not in ("", "...")]
    assert len(lines) >= 5
    for line in lines:
        assert plain(line).removesuffix(" ...") in plain(LOG), line


def test_the_first_page_is_short():
    caption = re.search(r"(?ms)^\*(?!\*)(.+?)\*$", README)
    assert caption is not None
    assert len(caption[1].split()) <= 40
    assert len(README.splitlines()) <= 110
    assert len(README.split()) <= 800


def test_the_pages_that_messages_name_exist():
    named = {
        page
        for folder, kind in (("lib/meshtrial", "py"), ("manifests", "yaml"), ("notebooks", "ipynb"))
        for path in (paths.CHECKOUT / folder).rglob(f"*.{kind}")
        for page in re.findall(r"\b(?:docs|manifests)/[\w/-]+\.md\b", path.read_text())
    }
    assert len(named) > 5
    assert [page for page in named if not (paths.CHECKOUT / page).is_file()] == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name in ("how-to", "tutorials", "contributing")],
    ids=lambda page: page.stem,
)
def test_a_page_names_its_reader(page: Path):
    readers = "everyone|newcomers|users|operators|engineers|contributors|platform teams"
    assert re.search(rf"\b[Ff]or ({readers})\b", "\n".join(page.read_text().splitlines()[:7])), page


def measured(text: str) -> list[float]:
    """Percentages in the rows of the calibration table that begin with a text."""
    rows = csv.reader((paths.CHECKOUT / CALIBRATION).read_text().splitlines())
    return [float(rate.partition(" ")[0]) for check, _, rate in rows if check.startswith(text)]


def test_the_first_page_quotes_the_error_rates_as_measured():
    said = " ".join(README.split())
    false = measured("false positives:")
    assert len(false) == 22
    assert f"false positives are {min(false)} to {max(false)} % over 22 kinds" in said
    (sequential,) = measured("negative control: sequential order")
    assert f"identical treatments in {sequential:.0f} % of simulated studies" in said


def test_the_notebooks_say_the_power_that_was_measured():
    (ten,), (twenty,) = measured("power: n = 10, effect +10%"), measured("power: n = 10, effect +20%")
    said = f"ten blocks find an effect of +10 % in {ten:.0f} % of studies and one of +20 % in {twenty:.0f} %"
    assert [
        name for name in STUDIES if said not in " ".join((paths.NOTEBOOKS / f"{name}.ipynb").read_text().split())
    ] == []


def table(page: Path) -> list[list[str]]:
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_options_of_a_cluster_are_all_there_with_their_defaults():
    listed = {cells[0].strip("`| "): cells[1] for cells in table(DOCS / "reference" / "cluster-file.md")}
    listed.pop("option")
    defaults = {}
    for field in dataclasses.fields(KubernetesOptions):
        value = getattr(KubernetesOptions(), field.name)
        shown = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value
        defaults[field.name] = f"`{shown}`" if shown else "empty"
    assert listed == defaults


def test_the_run_checks_have_their_thresholds():
    gates, page = Gates(), " ".join((DOCS / "reference" / "run-checks.md").read_text().split())
    for said in (
        f"within {gates.rate_tolerance:.0%} of the requested rate",
        f"at most {gates.late_ratio:.0%} of the sends",
        f"at most {gates.error_ratio:.0%} of the requests",
        f"less than {gates.generator_cpu:.0%} of the CPU",
        f"at most {gates.foreign_load:.0%} of the machine's CPU",
    ):
        assert said.replace("%", " %") in page, said
    assert f"with {gates.sample_floor:.0f} requests beyond it" in page


def test_the_filter_of_the_page_makes_a_mesh_of_ones_own(tmp_path: Path):
    page = (DOCS / "how-to" / "envoy-filter.md").read_text()
    _, *blocks = map(textwrap.dedent, re.findall(r"(?ms)^ *```yaml\n(.*?)^ *```$", page))
    filters, feature = blocks
    folder = tmp_path / "istio-mine"
    shutil.copytree(paths.MANIFESTS / "meshes" / "istio", folder)
    (folder / "features" / "my-filter.yaml").write_text(filters)
    whole = yaml.safe_load((folder / "mesh.yaml").read_text()) | {"name": "istio-mine"}
    whole["features"] |= yaml.safe_load(feature)
    (folder / "mesh.yaml").write_text(yaml.safe_dump(whole))
    assert read_mesh(folder).features["my-filter"].expect == {"path": "/closed", "denied": [403]}
    theirs = yaml.safe_load((folder / "features" / "jwt-filter.yaml").read_text())["spec"]
    ours = yaml.safe_load(filters)["spec"]
    place = [{**patch, "patch": patch["patch"]["operation"]} for patch in theirs["configPatches"]]
    assert [{**patch, "patch": patch["patch"]["operation"]} for patch in ours["configPatches"]] == place
    assert ours["workloadSelector"] == theirs["workloadSelector"]


def yaml_of(page: str) -> list[dict[str, Any]]:
    """Return the YAML files that a page tells its reader to write."""
    text = (DOCS / "how-to" / f"{page}.md").read_text()
    return [yaml.safe_load(textwrap.dedent(body)) for body in re.findall(r"(?ms)^ *```yaml\n(.*?)^ *```$", text)]


def test_the_providers_that_an_existing_istio_needs_are_those_of_a_managed_one():
    (wanted,) = [block["meshConfig"] for block in yaml_of("existing-mesh") if "meshConfig" in block]
    managed = yaml.safe_load((paths.MANIFESTS / "meshes" / "istio" / "values-istiod.yaml").read_text())["meshConfig"]
    assert wanted == {name: managed[name] for name in ("enableTracing", "extensionProviders")}


@pytest.mark.parametrize(
    ("page", "names"), [("existing-mesh", ["istio@1.29"]), ("versions", ["istio@1.30", "istio@1.31", "linkerd@june"])]
)
def test_the_versions_of_a_page_are_read(page: str, names: list[str]):
    found: set[str] = set()
    for block in yaml_of(page):
        if any("versions" in mesh for mesh in block.get("meshes", {}).values()):
            found |= set(find_meshes(KubernetesOptions.read(block)))
    assert set(names) <= found


def test_the_tutorials_show_what_their_plans_cannot_answer():
    kind, lab = ((paths.CHECKOUT / "docs" / "tutorials" / f"{name}.md").read_text() for name in ("kind", "first-study"))
    rehearsal = next(line for line in kind.splitlines() if line.startswith("meshtrial run ") and "blocks=2" in line)
    words = re.sub(r" -p cluster_file=\S+", "", rehearsal).split()[1:]
    arguments = cli.parser("run").parse_args(words)
    told = foreseen(built(arguments.study, **read_given(arguments.study, None, arguments.pairs)))
    assert len(told) == 3
    assert "rps: float = 500.0" in lab
    shown = [block for page in (kind, lab) for block in re.findall(r"```text\n(.*?)```", page, re.S)]
    told += foreseen(built("ambient_vs_no_mesh", rps=500))
    assert "".join(shown).splitlines() == [limit.sentence for limit in told]
