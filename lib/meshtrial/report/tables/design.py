"""What was decided before the first run: order, margins, checks, and what so many blocks can show at all."""

from __future__ import annotations

from functools import partial

from meshtrial import stats
from meshtrial.design.load import Load, SlicedLoad
from meshtrial.design.study import Gates, Study
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, facts, fold, join
from meshtrial.vocabulary import BETWEEN, CORRECTIONS, OwnFailures


def design(data: StudyData) -> Fragment:
    """The plan as a reader can check it."""
    study = data.plan.study
    return join(
        _facts(data).folded(f"question, load, {wording.count(study.blocks)} blocks, families, stopping"),
        _margins(study).folded(_margins_hold(study)),
        _gates(study.gates, study.own_failures).folded("what a run must keep to take part"),
        fold(
            "Order of the runs",
            f"{len(data.plan.runs)} runs, block by block, {study.order}",
            *(_order(data, load).fragment() for load in frames.loads(data)),
        ),
    )


def _facts(data: StudyData) -> Table:
    study = data.plan.study
    kept, _ = frames.blocks_of(data)
    several, level = len(study.loads) > 1, wording.declared_percent(study.alpha)
    primary = wording.listing([wording.short_label(name) for name in study.primary])
    rows: list[tuple[str, object]] = [("question", study.question)]
    rows += [(f"load {load.label}" if several else "load", _load(load)) for load in study.loads]
    rows += [
        (
            "blocks",
            f"{study.blocks} planned, order {study.order}, drawn from seed {study.seed}, sealed before the first run",
        ),
        *([("deployment mode", mode)] if (mode := _deployment_mode(study)) else []),
        ("primary", primary),
        ("families", f"{_families(study)}, error level {level} after {CORRECTIONS[study.correction]}"),
        ("smallest possible p", _smallest(study, kept)),
        ("stopping", _stopping(study)),
    ]
    return facts("Decided before the first run", ("what", "decision"), rows)


def _deployment_mode(study: Study) -> str:
    """Whether deployments have idle neighbours; nothing of plans without slices."""
    sliced = [load for load in study.loads if isinstance(load, SlicedLoad) and load.slices > 1]
    if not sliced:
        return ""
    if study.deployment_mode == "sequential":
        return "each deployment alone, its slices one after another"
    trickle = max(load.trickle_rps for load in sliced)
    return (
        "a block's deployments at once, as far as they may, and slices go round; while one is measured the others "
        f"idle, with {trickle:g} requests a second each"
    )


def _load(load: Load) -> str:
    slices = ""
    if isinstance(load, SlicedLoad) and load.slices > 1:
        warm = f", the first {load.slice_warmup_s:g} s of each discarded" if load.slice_warmup_s else ""
        slices = f" in {load.slices} slices{warm}"
    return f"{wording.load_text(load)}, measured for {wording.duration(load.measured_s)}{slices}"


def _families(study: Study) -> str:
    """How many contrasts are corrected together."""
    sizes = {name: len(members) for name, members in study.families().items()}
    one = f"{sizes.get('', 0)} contrast{'s' * (sizes.get('', 0) != 1)}"
    pairs = f", and by themselves the {sizes[BETWEEN]} pairs of treatments" if BETWEEN in sizes else ""
    return f"each response at each load, {one}{pairs}"


def _smallest(study: Study, kept: int) -> str:
    blocks, alpha = kept or study.blocks, study.alpha
    family = max(1, *map(len, study.families().values()))
    lowest = stats.smallest_p(blocks)
    raised = family if study.correction == "holm" else 1
    corrected = min(1.0, raised * lowest)
    text = (
        f"{wording.probability(lowest)} with {blocks} blocks by the exact test; the smallest of {family} "
        f"not below {wording.probability(corrected)} after correction"
    )
    if corrected > alpha:
        needed = stats.smallest_n(raised, alpha)
        return f"{text}: too few to call anything slower or faster; at least {needed} blocks are needed"
    return text


def _stopping(study: Study) -> str:
    if not study.may_stop_early:
        return "fixed, all planned blocks are run whatever they show"
    rest = ", ".join(f"{name} {value}" for name, value in study.stopping.items() if name != "rule")
    return f"{study.stopping['rule']}, declared in the plan" + (f" ({rest})" if rest else "")


def _margins_hold(study: Study) -> str:
    shown = (
        f"{wording.short_label(name)} {wording.margin_text(name, study.margins.get(name))}" for name in study.primary
    )
    return "; ".join(shown)


def _margins(study: Study) -> Table:
    columns: list[Column[str]] = [
        Column("response", lambda name: wording.known(name).label),
        Column("margin", lambda name: wording.margin_text(name, study.margins.get(name)), numeric=True),
    ]
    note = "A margin is what the plan declared too small to matter, before anything was measured."
    return Table.of("Margins of the primary responses", columns, study.primary, note, show_caption=False)


def _gates(gates: Gates, own_failures: OwnFailures) -> Table:
    rows: list[tuple[str, object]] = [
        ("achieved rate", f"within {wording.declared_percent(gates.rate_tolerance)} of what was asked"),
        ("errors", f"at most {wording.declared_percent(gates.error_ratio)} of the requests"),
        ("late sends", f"at most {wording.declared_percent(gates.late_ratio)} of the sends later than their schedule"),
        ("load generator", f"below {wording.declared_percent(gates.generator_cpu)} of the CPU that it may use"),
        ("percentiles", f"given only with {gates.sample_floor:g} requests of the run beyond them"),
        ("app", "not throttled"),
        ("treatment is what its label says", "all its proofs passed, before and after the load"),
    ]
    if gates.foreign_load is not None:
        most = wording.declared_percent(gates.foreign_load)
        rows.insert(4, ("foreign load", f"at most {most} of the machine's CPU time for other programs"))
    own = "; its own failures are not repeated, and rank worst" if own_failures == "ranked" else ""
    note = f"A run that fails is kept, flagged and repeated once in its block{own}. No run is dropped for its outcome."
    return facts("Checks that every run must pass", ("check", "threshold"), rows, note, show_caption=False)


def _order(data: StudyData, load: str) -> Table:
    looks = palette.looks(data.plan.study)
    planned: dict[int, dict[int, str]] = {}
    for run in data.plan.runs:
        if run.load == load:
            planned.setdefault(run.repetition, {})[run.position] = run.treatment

    def treatment(position: int, block: int) -> Cell:
        name = planned[block].get(position, "")
        colour = palette.VARIABLES.get(looks[name].colour, "--mt-ink")
        return Cell(name, html=Fragment("swatch", colour, name)) if name else Cell("")

    positions = sorted({position for runs in planned.values() for position in runs})
    columns: list[Column[int]] = [Column("block", str)]
    columns += [Column(f"position {position}", partial(treatment, position)) for position in positions]
    caption = f"Order of the runs{frames.at(data, load)}"
    return Table.of(caption, columns, sorted(planned), css="mt-grid", sortable=False)
