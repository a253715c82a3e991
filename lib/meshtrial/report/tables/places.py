"""A study that was divided over clusters or machines: which blocks came from where, and the effect in each place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from meshtrial.inference.values import LoadBlocks
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import Site, places
from meshtrial.records.schema import RunRecord, VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join

_WHERE = (
    "One plan and one seed: a block lies in one place as a whole, so what is compared shares its place, and a place "
    "that is faster than another changes no contrast."
)
_EACH = (
    "Medians over a place's blocks, without a verdict of their own: these are few blocks. Where the effect differs "
    "between the places by more than chance (Kruskal-Wallis over the blocks, at 1 %), the verdict carries a warning; "
    "where so few blocks could not show it, it says that."
)

_NODES = (
    "The nodes of a block are drawn, the same for all of its treatments, so that a node changes no contrast by being "
    "faster. Medians over the blocks of each, without a verdict of their own."
)
_MOST_NODES = 6
# Blocks of a place, by its name, at a load.
Blocks = Callable[[str, str], Sequence[int]]


def places_of_blocks(data: StudyData) -> Fragment:
    """Two tables; nothing for a study that was run in one place."""
    found = places(data.plan, data.environment)
    if not found:
        return join()
    of_places = {place.name: place.blocks for place in found}
    effects = _effects(data, "The effect in each place", list(of_places), lambda name, _: of_places[name], _EACH)
    return join(_where(data, found).fragment(), effects.fragment())


def nodes_of_blocks(data: StudyData) -> Fragment:
    """The effect by the nodes on which blocks stood; nothing where all stood on the same, or nobody chose them."""
    stood: dict[str, dict[str, list[int]]] = {}
    for run in data.runs:
        hosts = run.extra.get("nodes")
        if isinstance(hosts, Mapping):
            name = " ".join(f"{side} on {_listed(hosts.get(side, ()))}" for side in ("generators", "application"))
            found = stood.setdefault(name, {}).setdefault(run.load, [])
            found += [run.repetition] if run.repetition not in found else []
    if len(stood) < 2:
        return join()
    most = sorted(stood, key=lambda name: -sum(map(len, stood[name].values())))[:_MOST_NODES]

    def blocks(name: str, load: str) -> Sequence[int]:
        return stood[name].get(load, [])

    left = f" Of {len(stood)} such places the {_MOST_NODES} with most blocks." if len(stood) > len(most) else ""
    return _effects(data, "The effect by node", most, blocks, _NODES + left).fragment()


def _listed(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")


def _where(data: StudyData, found: Sequence[Site]) -> Table:
    def told(*names: str) -> Callable[[Site], object]:
        """The first of these that its testbed told."""

        def of(place: Site) -> object:
            testbed = place.environment.get("testbed", data.environment.get("testbed"))
            known = testbed if isinstance(testbed, dict) else {}
            return next((known[name] for name in names if known.get(name)), "not recorded")

        return of

    def runs(place: Site) -> list[RunRecord]:
        return sorted((run for run in data.runs if run.repetition in place.blocks), key=lambda run: run.start_unix_s)

    def at(moments: list[str]) -> str | None:
        return moments[0][:16].replace("T", " ") if moments else None

    def nodes(place: Site) -> int | None:
        listed = told("nodes")(place)
        return len(listed) if isinstance(listed, list) else None

    columns: list[Column[Site]] = [
        Column("place", lambda place: place.name),
        Column("blocks", lambda place: f"{place.blocks[0]} to {place.blocks[-1]}"),
        Column("cluster or CPU", told("cluster", "cpu_model")),
        Column("Kubernetes or kernel", told("kubernetes", "kernel")),
        Column("nodes", nodes),
        Column("from (UTC)", lambda place: at([run.started_at for run in runs(place)])),
        Column("to (UTC)", lambda place: at([run.finished_at for run in reversed(runs(place))])),
        Column("valid", lambda place: f"{sum(run.valid for run in runs(place))} of {len(runs(place))}"),
    ]
    return Table.of("Where the blocks were run", columns, found, _WHERE)


def _effects(data: StudyData, caption: str, names: Sequence[str], blocks: Blocks, note: str) -> Table:
    def contrast(row: VerdictRow) -> str:
        return f"{row.treatment} against {row.baseline}" + (f", {row.load}" if len(frames.loads(data)) > 1 else "")

    columns: list[Column[VerdictRow]] = [
        Column("contrast", contrast),
        Column("response", lambda row: row.label, wide=True),
        *(Column(name, partial(_effect, data, blocks, name), numeric=True) for name in names),
    ]
    judged = [row for row in frames.verdicts(data) if not row.exploratory and row.n_blocks]
    return Table.of(caption, columns, judged, note)


def _effect(data: StudyData, blocks: Blocks, place: str, row: VerdictRow) -> Cell:
    names = [row.treatment, row.baseline]
    runs = LoadBlocks.of(data.table, row.load, blocks(place, row.load)).complete(names, row.response)
    if not runs.blocks:
        return Cell("no block")
    own, base = runs.values(names, row.response).values()
    note = f"{len(runs.blocks)} blocks"
    if row.by_difference:
        difference = float(np.median(own - base))
        return Cell(wording.in_unit(row.response, difference, sign=True), difference, note=note)
    ratio = float(np.exp(np.median(np.log(own / base))))
    return Cell(wording.change(ratio), ratio, note=note)
