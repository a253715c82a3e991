"""From a request to a judged comparison: whichever kind of input it names, by the names that people write."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshtrial.compare import checks, files, pairing, tables
from meshtrial.compare.analysis import Outcome, analyse
from meshtrial.compare.runs import Run, Sample, refuse
from meshtrial.design.parameters import split_list
from meshtrial.design.responses import REGISTRY, Response, declared_margins, default_margins, find_response
from meshtrial.errors import UsageError
from meshtrial.margin import Margin

DEFAULT_METRICS = "p50,p99"


@dataclass(frozen=True)
class Named:
    """A treatment, and where its runs are."""

    name: str  # empty is the name of the folder that its files share
    patterns: tuple[str, ...] = ()  # files, folders or patterns; none for a treatment of a table


@dataclass(frozen=True)
class Request:
    """What is to be compared, and how; a value that is not must be refused."""

    baseline: Named
    treatments: tuple[Named, ...] = ()  # none are all others of the table
    table: Path | None = None  # one, instead of files
    where: tuple[tuple[str, str], ...] = ()  # columns with the values of the table's rows that are meant
    pair_by: str = ""  # order, label, name, or empty
    merge: bool = False  # the files of one folder are the generators of one run
    responses: str = ""  # empty is p50,p99, and with a table all that it holds
    margins: tuple[str, ...] = ()
    alpha: float = 0.05
    sample_floor: float = 100.0
    force: bool = False  # compare what must not be compared all the same, and name it

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5:
            raise UsageError(f"alpha = {self.alpha:g}: must be more than 0 and less than 0.5")
        if not 0 <= self.sample_floor < math.inf:
            raise UsageError(f"sample floor = {self.sample_floor:g}: must be 0 or more")
        if self.pair_by not in ("", *pairing.WAYS):
            raise UsageError(f"pair by {self.pair_by!r}: must be one of {', '.join(pairing.WAYS)}")


def judge(request: Request) -> Outcome:
    """Read all treatments, refuse what cannot be compared, pair what the user or the table pairs, and judge it.

    What is refused is told with every reason; ``force`` turns those that can be forced into warnings.
    """
    blocks: tuple[str, ...] = ()
    by_treatment: Mapping[str, list[Run]]
    if request.table is None:
        by_treatment, judged = _from_files(request), metrics_of(DEFAULT_METRICS)
    else:
        by_treatment, judged = _from_table(request, request.table)
        blocks = pairing.blocks_of_table(by_treatment)
    checks.require_replicates(by_treatment)
    findings = checks.check(by_treatment)
    refuse(findings, request.force)
    words = "paired by the table's blocks" if blocks else ""
    if request.pair_by:
        if blocks:
            raise UsageError(
                f"pair by {request.pair_by}: the table's column block pairs the runs already; leave one of them out"
            )
        by_treatment, blocks, words = pairing.pair(by_treatment, request.pair_by)
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
    for place, asked in enumerate([request.baseline, *request.treatments]):
        name, runs = files.read_treatment(
            asked.name,
            asked.patterns,
            request.sample_floor,
            merge=request.merge,
            fallback="treatment" if place else "baseline",
        )
        if name in by_treatment:
            raise UsageError(f"two treatments are called {name!r}: name them, e.g. istio='istio/*.json'")
        by_treatment[name] = runs
    return by_treatment


def _from_table(request: Request, table: Path) -> tuple[Mapping[str, list[Run]], tuple[Response, ...]]:
    by_treatment, responses = tables.read_table(table, request.where)
    judged = tuple(response for response in responses.values() if response.kind != "quality")
    if not judged:
        raise UsageError(f"the table's responses are described only: {', '.join(responses)}")
    named = [treatment.name for treatment in request.treatments]
    return tables.choose(by_treatment, table, request.baseline.name, named), judged


def metrics_of(text: str) -> tuple[Response, ...]:
    """Responses of ``p50,p99``, each once; one that is described only is refused, and a list without any."""
    metrics = [find_response(item)[0] for item in split_list(text)]
    for response in metrics:
        if response.kind == "quality":
            raise UsageError(f"{response.name}: is described only, it gets no verdict")
    if not metrics:
        raise UsageError("responses: none is named, e.g. p50,p99")
    return tuple({response.name: response for response in metrics}.values())


def margins_for(texts: Sequence[str], metrics: Sequence[Response]) -> Mapping[str, Margin]:
    """The margin of every metric: the default, with what the user gives in its place, as in a study.

    A response that is not registered has no margin unless one is given.
    """
    compared = {metric.name for metric in metrics}

    def find(text: str) -> Response:
        found = find_response(text)[0]
        if found.name not in REGISTRY and found.name not in compared:
            listed = ", ".join(sorted(compared))
            raise UsageError(f"margin {text}: no response is called {found.name}; compared are {listed}")
        return found

    margins = declared_margins(texts, default_margins(), find, metrics)
    return {metric.name: margins[metric.name] for metric in metrics if metric.name in margins}
