"""From the command's arguments to a checked sample, whichever kind of input they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshtrial.compare import checks, files, pairing, tables
from meshtrial.compare.names import metrics_of
from meshtrial.compare.runs import Run, Sample, refuse
from meshtrial.design.responses import Response
from meshtrial.errors import UsageError

DEFAULT_METRICS = "p50,p99"


@dataclass(frozen=True)
class Asked:
    """What is to be compared, as the command line has it; there each field is an option of its name.

    Attributes
    ----------
    baseline : sequence of str
        ``NAME=PATTERN PATTERN ...``, or one name of the table.
    treatment : sequence of sequences of str
        The same of every treatment; with a table names alone, and none for all others.
    table : Path or None
    where : sequence of str
        ``COLUMN=VALUE``, of a table.
    pair_by : str
        ``order``, ``label``, ``name``, or empty.
    merge, force : bool
    sample_floor : float
    """

    baseline: Sequence[str]
    treatment: Sequence[Sequence[str]] = ()
    table: Path | None = None
    where: Sequence[str] = ()
    pair_by: str = ""
    merge: bool = False
    sample_floor: float = 0.0
    force: bool = False


def collect(arguments: Asked) -> tuple[Sample, tuple[Response, ...]]:
    """Read all treatments, refuse what cannot be compared, and pair what the user or the table pairs.

    Returns
    -------
    tuple
        The sample, and the metrics that are compared where none are asked for.

    Raises
    ------
    UsageError
        With every reason; ``--force`` turns those that can be forced into warnings.
    """
    if arguments.table is None:
        by_treatment, default = _from_files(arguments), metrics_of(DEFAULT_METRICS)
        blocks: tuple[str, ...] = ()
    else:
        by_treatment, default = _from_table(arguments, arguments.table)
        blocks = pairing.blocks_of_table(by_treatment)
    checks.require_replicates(by_treatment)
    findings = checks.check(by_treatment)
    refuse(findings, arguments.force)
    baseline = next(iter(by_treatment))
    words = "paired by the table's blocks" if blocks else ""
    if arguments.pair_by:
        if blocks:
            raise UsageError("--pair-by: the table's column block pairs the runs already; leave one of them out")
        by_treatment, blocks, words = pairing.pair(by_treatment, arguments.pair_by)
    findings = (*findings, *checks.fixed_order(by_treatment, blocks))
    saturated = {} if arguments.force else checks.saturated(by_treatment)
    invalid = {} if arguments.force else checks.invalid(by_treatment)
    return Sample(by_treatment, baseline, blocks, words, findings, saturated, invalid), default


def _from_files(arguments: Asked) -> dict[str, list[Run]]:
    if arguments.where:
        raise UsageError("--where: chooses rows of a table; give --table FILE")
    if not arguments.treatment:
        raise UsageError("--treatment: is needed, e.g. --treatment istio='istio/*.json'")
    by_treatment: dict[str, list[Run]] = {}
    for place, tokens in enumerate([arguments.baseline, *arguments.treatment]):
        fallback = "treatment" if place else "baseline"
        name, runs = files.read_treatment(tokens, arguments.sample_floor, merge=arguments.merge, fallback=fallback)
        if name in by_treatment:
            raise UsageError(f"two treatments are called {name!r}: name them, e.g. --treatment istio='istio/*.json'")
        by_treatment[name] = runs
    return by_treatment


def _from_table(arguments: Asked, table: Path) -> tuple[dict[str, list[Run]], tuple[Response, ...]]:
    if arguments.merge:
        raise UsageError("--merge: is for files; a table has one number a run already")
    if len(arguments.baseline) != 1:
        raise UsageError(f"--baseline: with --table it is one name of the table, not {' '.join(arguments.baseline)}")
    found, responses = tables.read_table(table, arguments.where)
    named = [name for tokens in arguments.treatment for name in tokens]
    by_treatment = tables.choose(found, table, arguments.baseline[0], named)
    return by_treatment, _judged(responses)


def _judged(responses: Mapping[str, Response]) -> tuple[Response, ...]:
    judged = tuple(response for response in responses.values() if response.kind != "quality")
    if not judged:
        raise UsageError(f"the table's responses are described only: {', '.join(responses)}")
    return judged
