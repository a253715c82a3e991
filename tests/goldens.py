"""Digests of the results of recorded studies, which show whether a change of the code changed any answer.

``PYTHONPATH=lib:tests .venv/bin/python tests/goldens.py`` writes them; the commit states what changed and why.
Digests cover verdicts, the run table, the numbers behind every figure, the cells of every table, the plan's digest, the
headline and exit codes. Layout and drawing are not covered.
"""

import hashlib
import inspect
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from bs4 import BeautifulSoup
from building import built
from commandline import meshtrial
from unit.report import synth

import meshtrial as mt
from meshtrial import paths
from meshtrial.api.study import RecordedStudy
from meshtrial.commands.run import read_given
from meshtrial.compare.formats import read_file
from meshtrial.design.plan import make_plan
from meshtrial.errors import MeshtrialError
from meshtrial.records import listing, packed
from meshtrial.report.figure import Figure

FIXTURES = Path(__file__).parent / "fixtures"
KEPT = FIXTURES / "goldens.json"
OF_NOW = ("provenance",)  # it names the checkout
DIGITS = 9  # sums in another order differ beyond these digits


def digest(value: object) -> str:
    """The first 16 digits of SHA-256 of a value, numbers rounded."""
    return hashlib.sha256(json.dumps(_rounded(value), sort_keys=True, default=str).encode()).hexdigest()[:16]


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value


def of_sample(sample: Path) -> dict[str, Any]:
    """Return the digests of one recorded study."""
    with tempfile.TemporaryDirectory() as folder:
        where = packed.unpack(sample, Path(folder)) if packed.is_packed(sample) else sample
        return {"verify": meshtrial("verify", where)[0]} | of_study(mt.open_study(where))


def of_variant(name: str) -> dict[str, Any]:
    """Return the digests of one simulated study, which has parts that no sample has."""
    with tempfile.TemporaryDirectory() as folder:
        return of_study(RecordedStudy(synth.study_data(Path(folder), synth.VARIANTS[name])))


def of_design(path: Path) -> dict[str, Any]:
    """The plan of a published study's design."""
    study = path.stem.partition("-")[0]
    plan = make_plan(built(study, **read_given(study, path, [])))
    return {"plan": plan.sha256, "loads": [load.label for load in plan.study.loads], "runs": len(plan.runs)}


def of_file(path: Path) -> dict[str, Any]:
    """Return what `compare` reads in another tool's file."""
    read = read_file(path, sample_floor=100)
    return {"kind": read.kind, "responses": digest(dict(read.responses)), "bounds": digest(dict(read.bounds))}


def of_study(study: RecordedStudy) -> dict[str, Any]:
    """Return the digests of a study's records."""
    with _undrawn():
        rows = study.verdicts().to_dicts()
        return {
            "plan": study.recorded.plan.sha256,
            "headline": mt.tables.headline(study),
            "runs": digest(study.runs().to_dicts()),
            "verdicts": digest(rows),
            "words": dict(sorted(Counter(row["verdict"] for row in rows).items())),
            "figures": dict(_shown(mt.figures, study, _numbers)),
            "tables": dict(_shown(mt.tables, study, _cells)),
        }


@contextmanager
def _undrawn() -> Iterator[None]:
    """Figures return their numbers without being drawn, which would take most of the time."""
    with mock.patch.object(Figure, "__post_init__", return_value=None):
        yield


def _shown(module: Any, study: RecordedStudy, of: Callable[[Any], object]) -> Iterator[tuple[str, str]]:
    """Call every public function of one study with each argument that the study allows."""
    for name, function in sorted(vars(module).items()):
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        parameters = inspect.signature(function).parameters
        if "study" not in parameters or {"others", "other", "seed"} & set(parameters) or name in OF_NOW:
            continue  # needs other studies as well, or is simulated
        required = {key for key, one in parameters.items() if one.default is one.empty} - {"study"}
        for arguments in _arguments(required, study):
            said = ", ".join(arguments.values())
            try:
                shown = of(function(study, **arguments))
            except MeshtrialError as error:
                shown = type(error).__name__
            if shown:
                yield f"{name}({said})", digest(shown)


def _arguments(required: set[str], study: RecordedStudy) -> list[dict[str, str]]:
    if not required:
        return [{}]
    if required == {"response"}:
        return [{"response": name} for name in study.recorded.plan.study.primary]
    if required == {"run_id"}:
        return [{"run_id": study.recorded.runs[0].run_id}]
    return []  # depends on prices or another study; its inputs are covered here


def _numbers(figure: Figure) -> object:
    return None if figure.nothing else [figure.table.columns, figure.table.rows()]


def _cells(made: Any) -> object:
    if isinstance(made, str):
        return made
    tables = BeautifulSoup(str(made.html), "html.parser").find_all("table")
    return [[[cell.get_text() for cell in row.find_all(["th", "td"])] for row in one.find_all("tr")] for one in tables]


KINDS: dict[str, tuple[Callable[[Any], dict[str, Any]], dict[str, Any]]] = {
    "samples": (of_sample, {path.name.removesuffix(packed.SUFFIX): path for path in listing.samples().values()}),
    "designs": (of_design, {path.stem: path for path in sorted((paths.NOTEBOOKS / "designs").glob("*.yaml"))}),
    "variants": (of_variant, {name: name for name in synth.VARIANTS}),
    "files": (of_file, {path.name: path for path in sorted((FIXTURES / "formats").iterdir())}),
}


def main() -> None:
    """Write the digests of all studies."""
    made = {kind: {name: of(what) for name, what in listed.items()} for kind, (of, listed) in KINDS.items()}
    KEPT.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
