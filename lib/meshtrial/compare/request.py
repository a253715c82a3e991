"""From a request to a comparison: read files or a table, check and pair the runs, and analyse them.

Runs are paired only if the user says how, or the table has blocks. A run without counterpart is refused, never
dropped. Pairing protects from drift only if the runs of a pair were measured next to each other, which no file proves.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshtrial.compare import checks, files
from meshtrial.compare.analysis import Outcome, analyse
from meshtrial.compare.runs import Run, Sample, refuse
from meshtrial.design.parameters import split_list
from meshtrial.design.responses import REGISTRY, Response, declared_margins, default_margins, find_response
from meshtrial.errors import UsageError
from meshtrial.margin import Margin

DEFAULT_METRICS = "p50,p99"
PAIRINGS = ("order", "label", "name")


@dataclass(frozen=True)
class Named:
    """A treatment and the files of its runs."""

    name: str  # empty: the name of its files' common folder
    patterns: tuple[str, ...] = ()  # files, folders or patterns; empty for a table


@dataclass(frozen=True)
class Request:
    """What to compare, and how; invalid values raise UsageError."""

    baseline: Named
    treatments: tuple[Named, ...] = ()  # empty: all others of the table
    table: Path | None = None  # read instead of files
    where: tuple[tuple[str, str], ...] = ()  # use only rows with these values in these columns
    pair_by: str = ""  # one of PAIRINGS, or empty
    merge: bool = False  # the files of one folder are load generators of one run
    responses: str = ""  # empty: p50,p99, or all of a table
    margins: tuple[str, ...] = ()
    alpha: float = 0.05
    sample_floor: float = 100.0
    force: bool = False  # report findings that forbid a comparison as warnings

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5:
            raise UsageError(f"alpha = {self.alpha:g}: must be more than 0 and less than 0.5")
        if not 0 <= self.sample_floor < math.inf:
            raise UsageError(f"sample floor = {self.sample_floor:g}: must be 0 or more")
        if self.pair_by not in ("", *PAIRINGS):
            raise UsageError(f"pair by {self.pair_by!r}: must be one of {', '.join(PAIRINGS)}")


def judge(request: Request) -> Outcome:
    """Read all treatments, check that they are comparable, pair their runs if requested, and analyse them.

    UsageError lists all reasons against a comparison; ``force`` turns most of them into warnings.
    """
    blocks: tuple[str, ...] = ()
    by_treatment: Mapping[str, list[Run]]
    if request.table is None:
        by_treatment, judged = _from_files(request), metrics_of(DEFAULT_METRICS)
    else:
        by_treatment, judged = _from_table(request, request.table)
        blocks = blocks_of_table(by_treatment)
    checks.require_replicates(by_treatment)
    findings = checks.check(by_treatment)
    refuse(findings, request.force)
    words = "paired by the table's blocks" if blocks else ""
    if request.pair_by:
        if blocks:
            raise UsageError(f"pair by {request.pair_by}: the column block pairs the runs already; leave one out")
        by_treatment, blocks, words = pair(by_treatment, request.pair_by)
    sample = Sample(
        by_treatment,
        next(iter(by_treatment)),
        blocks,
        words,
        (*findings, *checks.fixed_order(by_treatment, blocks)),
        stopped={} if request.force else checks.stopped(by_treatment),
    )
    metrics = metrics_of(request.responses) if request.responses else judged
    margins = margins_for(request.margins, metrics)
    return analyse(sample, metrics, margins, alpha=request.alpha, sample_floor=request.sample_floor)


def _from_files(request: Request) -> dict[str, list[Run]]:
    by_treatment: dict[str, list[Run]] = {}
    for number, named in enumerate([request.baseline, *request.treatments]):
        fallback = "treatment" if number else "baseline"
        name, runs = files.read_treatment(
            named.name, named.patterns, request.sample_floor, merge=request.merge, fallback=fallback
        )
        if name in by_treatment:
            raise UsageError(f"two treatments are called {name!r}; name them, e.g. istio='istio/*.json'")
        by_treatment[name] = runs
    return by_treatment


def _from_table(request: Request, table: Path) -> tuple[Mapping[str, list[Run]], tuple[Response, ...]]:
    from meshtrial.compare import tables  # needs polars, which files do not

    by_treatment, responses = tables.read_table(table, request.where)
    judged = tuple(response for response in responses.values() if response.kind != "quality")
    if not judged:
        raise UsageError(f"{table}: its responses get no verdict: {', '.join(responses)}")
    named = [treatment.name for treatment in request.treatments]
    return tables.choose(by_treatment, table, request.baseline.name, named), judged


def metrics_of(text: str) -> tuple[Response, ...]:
    """Return the responses of ``p50,p99``, each once; UsageError if there are none, or one gets no verdict."""
    metrics = [find_response(item)[0] for item in split_list(text)]
    for response in metrics:
        if response.kind == "quality":
            raise UsageError(f"{response.name}: gets no verdict and cannot be compared")
    if not metrics:
        raise UsageError("responses: is empty; give e.g. p50,p99")
    return tuple({response.name: response for response in metrics}.values())


def margins_for(texts: Sequence[str], metrics: Sequence[Response]) -> Mapping[str, Margin]:
    """Return the margin of every metric: the user's, else the default of a registered response, else none."""
    compared = {metric.name for metric in metrics}

    def find(text: str) -> Response:
        response = find_response(text)[0]
        if response.name not in REGISTRY and response.name not in compared:
            listed = ", ".join(sorted(compared))
            raise UsageError(f"margin {text}: there is no response {response.name}; choose one of {listed}")
        return response

    margins = declared_margins(texts, default_margins(), find, metrics)
    return {metric.name: margins[metric.name] for metric in metrics if metric.name in margins}


def pair(by_treatment: Mapping[str, Sequence[Run]], how: str) -> tuple[dict[str, list[Run]], tuple[str, ...], str]:
    """Give every run a block. Return the treatments with their runs, the blocks in order, and a description.

    ``order`` pairs the k-th runs, sorted by start if all files contain it, else as listed. With ``label``, fortio's
    ``Labels`` are compared, with ``name`` the names of files or folders; both ignore the name of the treatment.
    UsageError names a run without counterpart, and runs with the same label or name.
    """
    if how == "order":
        return _by_order(by_treatment)
    keys = {"label": _label, "name": _name}[how]
    keyed = {name: _keyed(name, runs, keys, how) for name, runs in by_treatment.items()}
    first, *others = keyed
    blocks = tuple(keyed[first])
    for other in others:
        _require_counterparts(first, keyed[first], other, keyed[other], how)
    paired = {name: [dataclasses.replace(keyed[name][block], block=block) for block in blocks] for name in by_treatment}
    return paired, blocks, f"paired by {how}"


def blocks_of_table(by_treatment: Mapping[str, Sequence[Run]]) -> tuple[str, ...]:
    """Return the blocks of a table in order; empty if it has none.

    UsageError if only some runs have a block, or a treatment has two runs in one block.
    """
    runs = [run for treatment in by_treatment.values() for run in treatment]
    without = [run for run in runs if run.block is None]
    if len(without) == len(runs):
        return ()
    if without:
        run = without[0]
        raise UsageError(f"run {run.name} of {run.treatment} has no block; give every run one, or none")
    for treatment, treatment_runs in by_treatment.items():
        names = [run.block for run in treatment_runs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"{treatment} has two runs in block {twice}; a block has one run of each treatment")
    return tuple(dict.fromkeys(str(run.block) for run in runs))


def _by_order(by_treatment: Mapping[str, Sequence[Run]]) -> tuple[dict[str, list[Run]], tuple[str, ...], str]:
    sizes = {name: len(runs) for name, runs in by_treatment.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {n}" for name, n in sizes.items())
        raise UsageError(
            f"pair by order: all treatments need the same number of runs ({listed}); pair by name, or not at all"
        )
    timed = all(run.start_unix_s is not None for runs in by_treatment.values() for run in runs)
    count = next(iter(sizes.values()))
    blocks = tuple(str(i + 1) for i in range(count))
    paired = {}
    for name, runs in by_treatment.items():
        ordered = sorted(runs, key=lambda run: run.start_unix_s or 0.0) if timed else runs
        paired[name] = [dataclasses.replace(run, block=block) for run, block in zip(ordered, blocks, strict=True)]
    return paired, blocks, "paired by order of their " + ("start" if timed else "names")


def _keyed(treatment: str, runs: Sequence[Run], key: Callable[[Run], str], how: str) -> dict[str, Run]:
    keyed: dict[str, Run] = {}
    for run in runs:
        value = key(run)
        if value in keyed:
            names = f"{keyed[value].name} and {run.name} of {treatment}"
            raise UsageError(f"pair by {how}: {names} have the same {how} {value!r}; make them different")
        keyed[value] = run
    return keyed


def _require_counterparts(a: str, a_runs: Mapping[str, Run], b: str, b_runs: Mapping[str, Run], how: str) -> None:
    for runs, treatment, others in ((a_runs, b, b_runs), (b_runs, a, a_runs)):
        for key in (key for key in runs if key not in others):
            listed = ", ".join(repr(key) for key in list(others)[:6])
            raise UsageError(
                f"pair by {how}: {runs[key].name} ({how} {key!r}) has no counterpart in {treatment}, which has "
                f"{listed}; give both or none"
            )


def _label(run: Run) -> str:
    label = run.settings.labels if run.settings is not None else None
    if not label:
        raise UsageError(f"pair by label: {run.name} has no label (fortio -labels); pair by name or order")
    return _without_treatment(label, run.treatment)


def _name(run: Run) -> str:
    return _without_treatment(Path(run.name).name.split(".")[0] or run.name, run.treatment)


def _without_treatment(text: str, treatment: str) -> str:
    """Return the text without the treatment's name as a separate word, and without dangling separators."""
    bare = re.sub(rf"(?<![a-z0-9]){re.escape(treatment.lower())}(?![a-z0-9])", "", text.lower())
    return re.sub(r"[\s_.-]+", "-", bare).strip("-")
