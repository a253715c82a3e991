"""The rooms of the library and their order: imports lead down the table, in no circle, and to no private name."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import meshtrial
from meshtrial import paths

ROOT = Path(meshtrial.__file__).parent

# From the bottom to the top. A room imports its own modules and rooms of the lines below it: not those beside it, not
# those above it. A name with a dot is a room inside a room.
ROOMS = (
    ("", "errors", "decoding"),  # "" is meshtrial itself
    (
        "lazy",
        "packages",
        "paths",
        "signals",
        "margin",
        "network",
        "temporary",
        "typed",
        "vocabulary",
        "waiting",
    ),  # a module each
    ("native", "stats"),  # programs; from samples to verdicts, without a study
    ("design",),  # the study, its responses and its sealed plan
    ("records",),  # the files of a run
    ("load", "envoy"),  # what generators send and report; proxies, keys and tokens
    ("testbed",),  # the interface of backends (testbed.base)
    ("testbed.local", "testbed.kubernetes", "inference"),  # the backends; records to verdicts
    ("run", "report"),  # plan to records; records to pages
    ("compare", "prediction"),  # results from elsewhere; costs of a system of one's own
    ("api", "commands"),  # what notebooks use; what the command line offers
    ("cli", "native.__main__"),
    ("__main__",),
)
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}


@cache
def modules(root: Path = ROOT) -> dict[str, ast.Module]:
    """Every module by its name behind ``meshtrial.``, parsed."""
    found = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return found


def room_of(module: str) -> str:
    """The innermost room that holds a module."""
    parts = module.split(".")
    known = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((name for name in known if name in LEVEL), "" if not module else "?")


@cache
def taken(tree: ast.Module) -> tuple[tuple[str, str, str], ...]:
    """Return each import of ours in a module, also inside functions: target, name, and the local name."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where an arrow goes"
            if node.module and node.module.split(".")[0] == "meshtrial":
                module = node.module.removeprefix("meshtrial").removeprefix(".")
                found += [(module, alias.name, alias.asname or alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                assert alias.name.split(".")[0] != "meshtrial", "from meshtrial... import says what is meant"
    return tuple(found)


def imports(tree: ast.Module, known: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Return module, imported name (empty for the module itself) and local name."""
    for module, name, here in taken(tree):
        inner = f"{module}.{name}".removeprefix(".")
        yield (inner, "", here) if inner in known else (module, name, here)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def upward(found: Mapping[str, ast.Module]) -> list[str]:
    """Return imports that neither lead to a lower line nor stay in their room."""
    return [
        f"{module or 'meshtrial'} imports {target or 'meshtrial'}"
        for module, tree in found.items()
        for target, _, _ in imports(tree, found)
        if room_of(target) != room_of(module) and LEVEL[room_of(target)] >= LEVEL[room_of(module)]
    ]


def private(found: Mapping[str, ast.Module]) -> list[str]:
    """Return private names of one module that another one imports or reads as an attribute."""
    wrong = []
    for module, tree in found.items():
        modules_here = {}
        for target, name, here in imports(tree, found):
            if is_private(name) or any(is_private(part) for part in target.split(".")):
                wrong.append(f"{module} takes {target}.{name}")
            if not name:
                modules_here[here] = target
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and is_private(node.attr)):
                continue
            if node.value.id in modules_here:
                wrong.append(f"{module} takes {modules_here[node.value.id]}.{node.attr}")
    return wrong


def circle(found: Mapping[str, ast.Module]) -> list[str]:
    """Return the modules of a circle of imports; empty if there is none."""
    arrows = {module: {target for target, _, _ in imports(tree, found)} - {module} for module, tree in found.items()}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_module_has_a_room():
    assert [module for module in modules() if room_of(module) == "?"] == []


def test_every_room_is_there():
    names = set(modules())
    assert [room for room in LEVEL if room not in names] == []


def test_the_rooms_import_what_the_architecture_says():
    page = (paths.CHECKOUT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", page, re.M)
    listed = [name for name, _ in rows]
    assert sorted(listed) == sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
    for place, (name, allowed) in enumerate(rows):
        sets = {"all of the above": {*listed[:place]}, "everything but `api`": {*listed} - {"api"}}
        above = sets.get(allowed.strip())
        own = [tree for module, tree in modules().items() if module.partition(".")[0] == name]
        found = {target.partition(".")[0] for tree in own for target, _, _ in imports(tree, modules())}
        others = (found & {*listed}) - {name}
        assert others <= (set(re.findall(r"`(\w+)`", allowed)) if above is None else above), name


def test_no_module_imports_upward_or_sideways():
    assert upward(modules()) == []


def test_no_circle():
    assert circle(modules()) == []


def test_no_module_takes_a_private_name_of_another():
    assert private(modules()) == []


def test_an_arrow_up_a_circle_and_private_names_are_seen():
    up = ast.parse("def late():\n    from meshtrial.report import pages")
    assert upward({**modules(), "inference.rows": up}) == ["inference.rows imports report.pages"]
    noise = "from meshtrial.stats.power import _hidden\nfrom meshtrial.stats import power\npower._x"
    found = {"stats.power": ast.parse("from meshtrial.stats import verdict"), "stats.verdict": ast.parse(noise)}
    assert set(circle(found)) == {"stats.power", "stats.verdict"}
    assert private(found) == ["stats.verdict takes stats.power._hidden", "stats.verdict takes stats.power._x"]
