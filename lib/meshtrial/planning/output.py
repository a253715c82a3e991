"""A plan of blocks as text for a terminal, and as plain data for ``meshtrial plan --json``."""

import dataclasses
import textwrap
from typing import Any

from meshtrial import paths, stats
from meshtrial.planning.blocks import LoadPlan, PlanRequest
from meshtrial.records.dataset import StudyData

SCHEMA = "meshtrial.planning/1"


def report(data: StudyData, ask: PlanRequest, plans: tuple[LoadPlan, ...]) -> str:
    """What was asked, then what every load needs."""
    return "\n\n".join([_head(data, ask), *(_load(plan, ask, len(plans) > 1) for plan in plans)])


def _head(data: StudyData, ask: PlanRequest) -> str:
    relative, floor = ask.margin.relative, ask.margin.floor
    sized = " or ".join(filter(None, (f"{100 * relative:g} %" * bool(relative), f"{floor * 1e3:g} ms" * bool(floor))))
    floor_e = stats.smallest_n(ask.contrasts, ask.alpha, "equivalence")
    return _wrap(
        f"{ask.response.label}, margin {sized}, alpha {ask.alpha:g} over {ask.contrasts} contrast"
        f"{'s' * (ask.contrasts > 1)}, power {ask.power:g}; from {paths.display_path(data.path)}. "
        f"No fewer than {_floor(ask)} blocks can show a difference, and no fewer "
        f"than {floor_e} can show equivalence in such a family."
    )


def _load(plan: LoadPlan, ask: PlanRequest, several: bool) -> str:
    lines = [f"At {plan.load}"] if several else []
    lines.append(
        _wrap(
            f"{plan.difference} blocks find a true effect of the margin's size "
            f"({_time(plan.seconds(plan.difference))}); {plan.equivalence} blocks show equivalence where there is no "
            f"effect ({_time(plan.seconds(plan.equivalence))}). The noisiest contrast decides."
        )
    )
    rows = [["contrast", "blocks there", "noise", "margin", "difference", "equivalence", "smallest visible"]]
    for need in plan.needs:
        visible = f"{100 * need.visible:.3g} %" if need.visible is not None else f"none below {_floor(ask)} blocks"
        name = f"{need.treatment} against {need.baseline}" + (" (A/A)" if need.twin else "")
        noise, margin = f"{100 * need.sd:.3g} %", f"{100 * need.margin:.3g} %"
        rows.append([name, str(need.blocks), noise, margin, str(need.difference), str(need.equivalence), visible])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  " + "  ".join(cells))
    lines.append(
        _wrap(
            f"noise: standard deviation of a block's {_of(plan)}; planned with what it is below with a confidence "
            f"of 70 %. smallest visible: the effect that the blocks there find with power {ask.power:g}."
        )
    )
    repeats = f", {100 * (plan.repeats - 1):.3g} % of the runs repeated" if plan.repeats > 1 else ""
    lines.append(_wrap(f"A block of {plan.treatments} treatments takes {_time(plan.seconds_per_block)} here{repeats}."))
    lines.append(_wrap(_slices(plan)))
    return "\n".join(lines)


def _of(plan: LoadPlan) -> str:
    if plan.needs[0].scale == "ratio":
        return "log ratio"
    return "difference, as a share of the baseline, of which the study's verdicts are"


def _slices(plan: LoadPlan) -> str:
    slices = plan.slices
    if slices is None:
        return f"Slices: {plan.slices_reason}."
    listed = "; ".join(
        f"{k} slice{'s' * (k > 1)} {blocks} blocks, {_time(seconds)}" for k, (blocks, seconds) in slices.options.items()
    )
    return (
        f"Slices: {slices.best} a deployment is cheapest (Kalibera & Jones: a deployment costs {_time(slices.outer_s)} "
        f"beside its slices of {_time(slices.inner_s)}; noise {100 * slices.between**0.5:.3g} % between deployments, "
        f"{100 * slices.within**0.5:.3g} % inside one). To find the margin: {listed}. "
        "Slices are not replicates: they do not add to n."
    )


def _floor(ask: PlanRequest) -> int:
    return stats.smallest_n(1, ask.alpha)  # whatever the family: a new study is corrected by max-T


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02d} min" if hours < 48 else f"{hours / 24:.3g} days"


def _wrap(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def to_dict(data: StudyData, ask: PlanRequest, plans: tuple[LoadPlan, ...]) -> dict[str, Any]:
    """Plain data: the request, and what every load needs."""
    return {
        "schema": SCHEMA,
        "study": str(paths.display_path(data.path)),
        "plan_sha256": data.plan.sha256,
        "response": ask.response.name,
        "margin": dataclasses.asdict(ask.margin),
        "alpha": ask.alpha,
        "power": ask.power,
        "contrasts": ask.contrasts,
        "loads": [
            dataclasses.asdict(plan)
            | {
                "difference_blocks": plan.difference,
                "equivalence_blocks": plan.equivalence,
                "difference_s": plan.seconds(plan.difference),
                "equivalence_s": plan.seconds(plan.equivalence),
            }
            for plan in plans
        ],
    }
