"""The plan in words: order, margins, checks, how verdicts are reached, and what this number of blocks can show."""

from __future__ import annotations

from functools import partial

from meshtrial import stats
from meshtrial.design.load import Load, SlicedLoad
from meshtrial.design.study import Gates, Study
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, wording
from meshtrial.report.checks import limits
from meshtrial.report.markup import Cell, Column, Fragment, Table, bullets, facts, fold, join
from meshtrial.vocabulary import BETWEEN, CORRECTIONS, OwnFailures


def design(data: StudyData) -> Fragment:
    """Return the plan's decisions, all of which were made before the first run."""
    study = data.plan.study
    return join(
        _facts(data).folded(f"question, load, {wording.count(study.blocks)} blocks, families, stopping"),
        _margins(study).folded(_margins_summary(study)),
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


def _load(load: Load) -> str:
    slices = ""
    if isinstance(load, SlicedLoad) and load.slices > 1:
        warm = f", discarding the first {load.slice_warmup_s:g} s of each" if load.slice_warmup_s else ""
        slices = f" in {load.slices} slices{warm}"
    return f"{wording.load_text(load)}, measured for {wording.duration(load.measured_s)}{slices}"


def _families(study: Study) -> str:
    """Return which contrasts are corrected together."""
    sizes = {name: len(members) for name, members in study.families().items()}
    one = f"{sizes.get('', 0)} contrast{'s' * (sizes.get('', 0) != 1)}"
    pairs = f", and separately the {sizes[BETWEEN]} pairs of treatments" if BETWEEN in sizes else ""
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
        return f"{text}: too few for any difference to be shown; at least {needed} blocks are needed"
    return text


def _stopping(study: Study) -> str:
    if not study.may_stop_early:
        return "fixed: all planned blocks are run, whatever they show"
    rest = ", ".join(f"{name} {value}" for name, value in study.stopping.items() if name != "rule")
    return f"{study.stopping['rule']}, declared in the plan" + (f" ({rest})" if rest else "")


def _margins_summary(study: Study) -> str:
    margins = (
        f"{wording.short_label(name)} {wording.margin_text(name, study.margins.get(name))}" for name in study.primary
    )
    return "; ".join(margins)


def _margins(study: Study) -> Table:
    columns: list[Column[str]] = [
        Column("response", lambda name: wording.known(name).label),
        Column("margin", lambda name: wording.margin_text(name, study.margins.get(name)), numeric=True),
    ]
    note = "A margin is the largest effect that the plan declared too small to matter, before anything was measured."
    return Table.from_rows("Margins of the primary responses", columns, study.primary, note, show_caption=False)


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
    own = ""
    if own_failures != "repeated":
        own = "; failures that the treatment may have caused are not repeated, and rank last"
    note = f"A failed run is kept, marked and repeated once in its block{own}. No run is dropped for its values."
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
    return Table.from_rows(caption, columns, sorted(planned), css="mt-grid", sortable=False)


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
        f"Within each block a treatment is compared with {_bases(study)}: by the logarithm of the ratio, or by the "
        "difference if the plan requires it or a value is not positive. Test: exact Wilcoxon signed-rank. Estimate: "
        "Hodges-Lehmann. The interval is inverted from the same test, so it agrees with the p before correction; its "
        "achieved confidence is stated.",
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


def _bases(study: Study) -> str:
    baselines = dict.fromkeys(contrast.baseline for contrast in study.all_contrasts())
    return wording.listing(list(baselines)) or "the baseline"
