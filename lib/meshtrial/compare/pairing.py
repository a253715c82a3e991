"""Which runs belong together: only where the user says how, or the table has blocks.

Opinion: a wrong pairing is worse than none, so a run without its counterpart is refused rather than dropped. Pairing
protects from drift only where the runs of a pair were measured next to each other, which no file proves.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from meshtrial.compare.runs import Run
from meshtrial.errors import UsageError

WAYS = ("order", "label", "name")


def pair(by_treatment: Mapping[str, Sequence[Run]], how: str) -> tuple[dict[str, list[Run]], tuple[str, ...], str]:
    """Give every run a block: the treatments with their blocks, the blocks in order, and the pairing in words.

    ``order``: the k-th run of each treatment, by its start where all files say it, else as listed. ``label``: fortio's
    ``Labels``; ``name``: the file's (or folder's, or run's) name; in both the treatment's own name is ignored. A run
    that has no counterpart, or two that claim the same place, are refused by name.
    """
    if how == "order":
        return _by_order(by_treatment)
    keys = {"label": _label, "name": _name}[how]
    keyed = {name: _keyed(name, runs, keys, how) for name, runs in by_treatment.items()}
    first, *others = keyed
    blocks = tuple(keyed[first])
    for other in others:
        _same(first, keyed[first], other, keyed[other], how)
    paired = {name: [dataclasses.replace(keyed[name][block], block=block) for block in blocks] for name in by_treatment}
    return paired, blocks, f"paired by {how}"


def blocks_of_table(by_treatment: Mapping[str, Sequence[Run]]) -> tuple[str, ...]:
    """The blocks of a table in their order; empty where it has none.

    Refused where some runs have a block and others have none, or a treatment has two runs in one.
    """
    runs = [run for treatment in by_treatment.values() for run in treatment]
    without = [run for run in runs if run.block is None]
    if len(without) == len(runs):
        return ()
    if without:
        raise UsageError(
            f"run {without[0].name} of {without[0].treatment} has no block, others have: fill the column or empty it"
        )
    for treatment, own in by_treatment.items():
        names = [run.block for run in own]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"{treatment} has two runs in block {twice}: a block holds one run of each treatment")
    return tuple(dict.fromkeys(str(run.block) for run in runs))


def _by_order(by_treatment: Mapping[str, Sequence[Run]]) -> tuple[dict[str, list[Run]], tuple[str, ...], str]:
    sizes = {name: len(runs) for name, runs in by_treatment.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {n}" for name, n in sizes.items())
        raise UsageError(
            f"pair by order: needs as many runs of every treatment, there are {listed}; pair by name, or not at all"
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
        own = key(run)
        if own in keyed:
            raise UsageError(
                f"pair by {how}: {keyed[own].name} and {run.name} of {treatment} have the same {how} {own!r}"
            )
        keyed[own] = run
    return keyed


def _same(first: str, ours: Mapping[str, Run], other: str, theirs: Mapping[str, Run], how: str) -> None:
    for left, treatment, right in ((ours, other, theirs), (theirs, first, ours)):
        lone = [key for key in left if key not in right]
        if lone:
            raise UsageError(
                f"pair by {how}: {left[lone[0]].name} ({how} {lone[0]!r}) has no counterpart in {treatment}, which "
                f"has {', '.join(repr(key) for key in list(right)[:6])}; a run is never dropped silently: "
                "give both or none"
            )


def _label(run: Run) -> str:
    label = run.settings.labels if run.settings is not None else None
    if not label:
        raise UsageError(f"pair by label: {run.name} has no label (fortio -labels); pair by name or order")
    return _without_treatment(label, run.treatment)


def _name(run: Run) -> str:
    return _without_treatment(Path(run.name).name.split(".")[0] or run.name, run.treatment)


def _without_treatment(text: str, treatment: str) -> str:
    """The text without the treatment's name as a word of its own, and without what then dangles."""
    bare = re.sub(rf"(?<![a-z0-9]){re.escape(treatment.lower())}(?![a-z0-9])", "", text.lower())
    return re.sub(r"[\s_.-]+", "-", bare).strip("-")
