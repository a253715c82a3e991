"""What was decided before the first run: order, margins, gates, and what so many blocks can show at all."""

from __future__ import annotations

from meshtrial import stats
from meshtrial.design.study import Gates, Load, Study
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, fold, joined, part


def design(data: StudyData) -> Fragment:
    """The plan as a reader can check it."""
    study = data.plan.study
    facts = _facts(data)
    margins, gates = _margins(study), _gates(study.gates)
    grids = [_order(data, load) for load in frames.loads(data)]
    html = joined(
        (
            fold(
                facts.caption,
                f"question, load, {wording.count(study.blocks)} blocks, families, stopping",
                facts.to_html(),
            ),
            fold(margins.caption, _margins_hold(study), margins.to_html()),
            fold(gates.caption, "what a run must keep to take part", gates.to_html()),
            fold(
                "Order of the runs",
                f"{len(data.plan.runs)} runs, block by block, {study.order}",
                joined(grid.to_html() for grid in grids),
            ),
        )
    )
    text = "\n".join(
        [facts.to_text(), "", margins.to_text(), "", gates.to_text(), *("\n" + grid.to_text() for grid in grids)]
    )
    return Fragment(html, text)


def family_size(study: Study) -> int:
    """Contrasts that are corrected together: those of one response at one load, without the twin."""
    return len(study.all_contrasts())


def _facts(data: StudyData) -> Table:
    study = data.plan.study
    family = max(1, family_size(study))
    kept = min((frames.blocks_of(data, load)[0] for load in frames.loads(data)), default=0)
    several = len(study.loads) > 1
    primary = wording.listing([wording.short_label(name) for name in study.primary])
    rows = [("question", study.question)]
    rows += [(f"load {load.label}" if several else "load", _load(load)) for load in study.loads]
    rows += [
        (
            "blocks",
            f"{study.blocks} planned, order {study.order}, drawn from seed {study.seed}, sealed before the first run",
        ),
        ("primary", primary),
        (
            "families",
            f"each response at each load, {family} contrast{'s' * (family != 1)}, error level "
            f"{wording.declared_percent(study.alpha)} after Holm's correction",
        ),
        ("smallest possible p", _smallest(study.blocks, kept, family, study.alpha)),
        ("stopping", _stopping(study)),
    ]
    cells = [[Cell(name), Cell(text)] for name, text in rows]
    return Table("Decided before the first run", [Column("what"), Column("decision", wide=True)], cells, sortable=False)


def _load(load: Load) -> str:
    slices = f" in {load.slices} slices" if load.slices > 1 else ""
    return f"{wording.load_text(load)}, measured for {wording.duration(load.slices * load.duration_s)}{slices}"


def _smallest(planned: int, kept: int, family: int, alpha: float) -> str:
    blocks = kept or planned
    lowest = stats.smallest_p(blocks)
    corrected = min(1.0, family * lowest)
    text = (
        f"{wording.probability(lowest)} with {blocks} blocks by the exact test; the smallest of {family} "
        f"not below {wording.probability(corrected)} after correction"
    )
    if corrected > alpha:
        needed = stats.smallest_n(family, alpha)
        return f"{text}: too few to call anything slower or faster; at least {needed} blocks are needed"
    return text


def _stopping(study: Study) -> str:
    rule = str(study.stopping.get("rule", "fixed"))
    if rule == "fixed":
        return "fixed, all planned blocks are run whatever they show"
    rest = ", ".join(f"{name} {value}" for name, value in study.stopping.items() if name != "rule")
    return f"{rule}, declared in the plan" + (f" ({rest})" if rest else "")


def _margins_hold(study: Study) -> str:
    shown = (
        f"{wording.short_label(name)} {wording.margin_text(name, study.margins.get(name))}" for name in study.primary
    )
    return "; ".join(shown)


def _margins(study: Study) -> Table:
    rows = [
        [Cell(wording.known(name).label), Cell(wording.margin_text(name, study.margins.get(name)))]
        for name in study.primary
    ]
    columns = [Column("response"), Column("margin", numeric=True)]
    note = "A margin is what the plan declared too small to matter, before anything was measured."
    return Table("Margins of the primary responses", columns, rows, note, show_caption=False)


def _gates(gates: Gates) -> Table:
    rows = [
        ("achieved rate", f"within {wording.declared_percent(gates.rate_tolerance)} of what was asked"),
        ("errors", f"at most {wording.declared_percent(gates.error_ratio)} of the requests"),
        ("late sends", f"at most {wording.declared_percent(gates.late_ratio)} of the sends later than their schedule"),
        ("load generator", f"below {wording.declared_percent(gates.generator_cpu)} of the CPU that it may use"),
        ("percentiles", f"given only with {gates.sample_floor:g} requests of the run beyond them"),
        ("app", "not throttled"),
        ("proofs", "all passed, before and after the load"),
    ]
    if gates.foreign_load is not None:
        most = wording.declared_percent(gates.foreign_load)
        rows.insert(4, ("foreign load", f"at most {most} of the machine's CPU time for other programs"))
    return Table(
        "Gates that every run is held to",
        [Column("gate"), Column("threshold", wide=True)],
        [[Cell(name), Cell(text)] for name, text in rows],
        "A run that fails is kept, flagged and repeated once inside its block. Nothing is dropped for its outcome.",
        show_caption=False,
        sortable=False,
    )


def _order(data: StudyData, load: str) -> Table:
    looks = palette.looks(data.plan.study)
    runs = [run for run in data.plan.runs if run.load == load]
    positions = sorted({run.position for run in runs})
    rows = []
    for block in sorted({run.repetition for run in runs}):
        mine = {run.position: run.treatment for run in runs if run.repetition == block}
        cells = [Cell(str(block))]
        for position in positions:
            name = mine.get(position, "")
            colour = palette.VARIABLES.get(palette.look_of(looks, name).colour, "--mt-ink")
            cells.append(Cell(name, html=part("swatch", colour, name)) if name else Cell(""))
        rows.append(cells)
    columns = [Column("block"), *(Column(f"position {position}") for position in positions)]
    caption = "Order of the runs" + (f" at {load}" if len(frames.loads(data)) > 1 else "")
    return Table(caption, columns, rows, css="mt-grid", sortable=False)
