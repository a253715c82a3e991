"""The plan in words: order, margins, checks, how verdicts are reached, and what this number of blocks can show."""

from functools import partial

from meshtrial import stats
from meshtrial.design.load import SlicedLoad
from meshtrial.design.study import Gates, Study
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, wording
from meshtrial.report.checks import limits, number_of
from meshtrial.report.markup import Cell, Column, Fragment, Table, bullets, facts, fold, join
from meshtrial.vocabulary import BETWEEN, CORRECTIONS, OwnFailures


def design(data: StudyData) -> Fragment:
    """Return the plan's decisions, all of which were made before the first run."""
    study = data.plan.study
    margins = {name: wording.margin_text(name, study.margins.get(name)) for name in study.primary}
    columns: list[Column[str]] = [
        Column("response", lambda name: wording.known(name).label),
        Column("margin", lambda name: margins[name], numeric=True),
    ]
    note = "A margin is the largest effect that the plan declared too small to matter, before anything was measured."
    caption = "Margins of the primary responses"
    return join(
        _facts(data).folded(f"question, load, {wording.count(study.blocks)} blocks, families, stopping"),
        Table.from_rows(caption, columns, study.primary, note, show_caption=False).folded(
            "; ".join(f"{wording.short_label(name)} {margin}" for name, margin in margins.items())
        ),
        _gates(study.gates, study.own_failures).folded("what a run must pass to be used"),
        fold(
            "Order of the runs",
            f"{len(data.plan.runs)} runs, block by block, {study.order}",
            *(_order(data, load).fragment() for load in frames.loads(data)),
        ),
    )


def _facts(data: StudyData) -> Table:
    study = data.plan.study
    kept, _ = frames.blocks_of(data)
    primary = wording.listing([wording.short_label(name) for name in study.primary])
    rows: list[tuple[str, object]] = [("question", study.question)]
    for load in study.loads:
        text = f"{wording.load_text(load)}, measured for {wording.duration(load.measured_s)}"
        if isinstance(load, SlicedLoad) and load.slices > 1:
            text += f" in {load.slices} slices"
            text += f", discarding the first {load.slice_warmup_s:g} s of each" if load.slice_warmup_s else ""
        rows.append((f"load {load.label}" if len(study.loads) > 1 else "load", text))
    blocks = f"{study.blocks} planned, order {study.order}, drawn from seed {study.seed}, sealed before the first run"
    rows.append(("blocks", blocks))
    if mode := _deployment_mode(study):
        rows.append(("deployment mode", mode))
    sizes = {name: len(members) for name, members in study.families().items()}
    families = f"each response at each load, {number_of(sizes.get('', 0), 'contrast')}"
    families += f", and separately the {sizes[BETWEEN]} pairs of treatments" if BETWEEN in sizes else ""
    level = f"error level {wording.declared_percent(study.alpha)} after {CORRECTIONS[study.correction]}"
    stopping = "fixed: all planned blocks are run, whatever they show"
    if study.may_stop_early:
        rest = ", ".join(f"{name} {value}" for name, value in study.stopping.items() if name != "rule")
        stopping = f"{study.stopping['rule']}, declared in the plan" + (f" ({rest})" if rest else "")
    rows += [
        ("primary", primary),
        ("families", f"{families}, {level}"),
        ("smallest possible p", _smallest(study, kept)),
        ("stopping", stopping),
    ]
    return facts("Decided before the first run", ("subject", "decision"), rows)


def _deployment_mode(study: Study) -> str:
    """Return whether deployments are concurrent; nothing for plans without slices."""
    sliced = [load for load in study.loads if isinstance(load, SlicedLoad) and load.slices > 1]
    if not sliced:
        return ""
    if study.deployment_mode == "sequential":
        return "each deployment alone, its slices one after another"
    trickle = max(load.trickle_rps for load in sliced)
    return (
        "concurrent deployments of a block as far as their meshes allow, measured slice by slice in turn; meanwhile "
        f"each of the others idles at {trickle:g} requests per second"
    )


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
        return f"{text}: too few for any difference to be shown; at least {needed} blocks are needed"
    return text


def _gates(gates: Gates, own_failures: OwnFailures) -> Table:
    rows: list[tuple[str, object]] = [
        ("achieved rate", f"within {wording.declared_percent(gates.rate_tolerance)} of the requested rate"),
        ("errors", f"at most {wording.declared_percent(gates.error_ratio)} of the requests"),
        ("late sends", f"at most {wording.declared_percent(gates.late_ratio)} of the sends later than their schedule"),
        ("load generator", f"less than {wording.declared_percent(gates.generator_cpu)} of the CPU that it may use"),
        ("percentiles", f"reported only with {gates.sample_floor:g} requests of the run beyond them"),
        ("app", "not throttled"),
        ("treatment is what its label says", "all its checks passed, before and after the load"),
    ]
    if gates.foreign_load is not None:
        most = wording.declared_percent(gates.foreign_load)
        rows.insert(4, ("foreign load", f"at most {most} of the machine's CPU time for other programs"))
    own = "; failures that the treatment may have caused are not repeated, and rank last"
    own = "" if own_failures == "repeated" else own
    note = f"A failed run is kept, marked and repeated once in its block{own}. No run is dropped for its values."
    return facts("Checks that every run must pass", ("check", "threshold"), rows, note, show_caption=False)


def _order(data: StudyData, load: str) -> Table:
    looks = palette.looks(data.plan.study)
    planned = {(run.repetition, run.position): run.treatment for run in data.plan.runs if run.load == load}

    def treatment(position: int, block: int) -> Cell:
        name = planned.get((block, position), "")
        colour = palette.VARIABLES.get(looks[name].colour, "--mt-ink")
        return Cell(name, html=Fragment("swatch", colour, name)) if name else Cell("")

    columns: list[Column[int]] = [Column("block", str)]
    for position in sorted({position for _, position in planned}):
        columns.append(Column(f"position {position}", partial(treatment, position)))
    blocks = sorted({block for block, _ in planned})
    return Table.from_rows(f"Order of the runs{frames.at(data, load)}", columns, blocks, css="mt-grid", sortable=False)


def method_and_limits(data: StudyData) -> Fragment:
    """Describe how the verdicts were reached and what limits them; every number is the plan's."""
    summary = "order, test, interval, margin, percentiles"
    return join(
        fold("How the verdicts were reached", summary, Fragment("prose", bullets(_method(data)))),
        fold("Limits", "what the verdicts do not say", Fragment("prose", bullets(limits(data).details))),
    )


def _method(data: StudyData) -> list[str]:
    study = data.plan.study
    load, kind = study.loads[0], "one size of a deployment" if study.order == "growing" else "a new deployment"
    bases = wording.listing(list(dict.fromkeys(contrast.baseline for contrast in study.all_contrasts())))
    order = {
        "randomised": "Each block is one pass over all treatments in a random order of its own",
        "ascending": "Each block is one pass over all treatments. The loads were run in ascending order, so drift of "
        "the machine can look like an effect of load",
        "growing": "Each block is one pass over all treatments in a random order of its own. A treatment's deployment "
        "grew from size to size, so its age and drift of the cluster can look like an effect of size",
        "sequential": "The treatments ran in one fixed order: a negative control, in which drift looks like an effect",
    }[study.order]
    lines = [
        f"{order}. A run is {kind} of client, server and proxies, warmed up for {wording.duration(load.warmup_s)} and "
        "then measured. The run is the unit of analysis: thousands of requests in a run are still one observation.",
        f"Within each block a treatment is compared with {bases or 'the baseline'}: by the logarithm of the ratio, or "
        "by the difference if the plan requires it or a value is not positive. Test: exact Wilcoxon signed-rank. "
        "Estimate: Hodges-Lehmann. The interval is inverted from the same test, so it agrees with the p before "
        "correction; its achieved confidence is stated.",
        f"A difference is called if the corrected p is at most {wording.plain(study.alpha)}; equivalence if two "
        "one-sided tests at that level put the effect inside the margin that the plan declared. If neither is shown, "
        "the verdict is inconclusive, with the number of blocks of a new study that would probably settle it.",
        "Percentiles are exact, from every request of a run, and then compared over runs: they are the typical run's. "
        "Pooled percentiles combine the requests of all runs first; they appear beside the distribution only.",
        "Latency is measured from the actual send and from the scheduled send. The second also counts the time that "
        "requests waited because earlier ones were late (coordinated omission).",
    ]
    if any(not load.catchup for load in study.loads):
        lines.append("Overdue sends were skipped; latency from the schedule estimates how long they would have waited.")
    return lines
