"""A study that was divided over clusters or machines: which blocks came from where, and the effect in each place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from meshtrial.inference.values import block_values
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import Place, places
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join

_WHERE = (
    "One plan and one seed: a block lies in one place as a whole, so what is compared shares its place, and a place "
    "that is faster than another changes no contrast."
)
_EACH = (
    "Medians over a place's blocks, without a verdict of their own: these are few blocks. Where the effect differs "
    "between the places by more than chance (Kruskal-Wallis over the blocks, at 1 %, three blocks a place or more), "
    "the verdict carries a warning."
)


def places_of_blocks(data: StudyData) -> Fragment:
    """Two tables; nothing for a study that was run in one place."""
    found = places(data.plan, data.environment)
    if not found:
        return Fragment(Markup(), "")
    return join(_where(data, found).fragment(), _effects(data, found).fragment())


def _where(data: StudyData, found: Sequence[Place]) -> Table:
    rows = []
    for place in found:
        runs = sorted((run for run in data.runs if run.repetition in place.blocks), key=lambda run: run.start_unix_s)
        testbed = place.environment.get("testbed", data.environment.get("testbed"))
        told = testbed if isinstance(testbed, dict) else {}
        nodes = told.get("nodes")
        rows.append(
            [
                Cell(place.name),
                Cell(f"{place.blocks[0]} to {place.blocks[-1]}"),
                Cell(str(told.get("cluster") or told.get("cpu_model") or "not recorded")),
                Cell(str(told.get("kubernetes") or told.get("kernel") or "not recorded")),
                Cell(str(len(nodes)) if isinstance(nodes, list) else "–"),
                Cell(runs[0].started_at[:16].replace("T", " ") if runs else "–"),
                Cell(runs[-1].finished_at[:16].replace("T", " ") if runs else "–"),
                Cell(f"{sum(run.valid for run in runs)} of {len(runs)}"),
            ]
        )
    labels = ["place", "blocks", "cluster or CPU", "Kubernetes or kernel", "nodes", "from (UTC)", "to (UTC)", "valid"]
    return Table("Where the blocks were run", [Column(label) for label in labels], rows, _WHERE)


def _effects(data: StudyData, found: Sequence[Place]) -> Table:
    judged = [row for row in frames.verdicts(data) if not row.exploratory and row.n_blocks]
    several = len(frames.loads(data)) > 1
    rows = []
    for row in judged:
        name = f"{row.treatment} against {row.baseline}" + (f", {row.load}" if several else "")
        rows.append([Cell(name), Cell(row.label), *(_effect(data, row, place) for place in found)])
    columns = [Column("contrast"), Column("response", wide=True), *(Column(one.name, numeric=True) for one in found)]
    return Table("The effect in each place", columns, rows, _EACH)


def _effect(data: StudyData, row: VerdictRow, place: Place) -> Cell:
    names = [row.treatment, row.baseline]
    values = block_values(data.table, row.load, row.response, names, place.blocks)
    own, base = values[row.treatment], values[row.baseline]
    whole = np.isfinite(own) & np.isfinite(base)
    if not whole.any():
        return Cell("no block")
    note = f"{int(whole.sum())} blocks"
    if row.ratio is None:
        difference = float(np.median(own[whole] - base[whole]))
        return Cell(wording.in_unit(row.response, difference, sign=True), difference, note=note)
    ratio = float(np.exp(np.median(np.log(own[whole] / base[whole]))))
    return Cell(wording.change(ratio), ratio, note=note)
