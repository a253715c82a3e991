"""``meshtrial plan``: how many blocks a margin costs on this machine, from a study that was recorded on it."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from meshtrial import paths
from meshtrial.errors import UsageError
from meshtrial.margin import Margin, margin_parts

if TYPE_CHECKING:
    from meshtrial.compare.planning import Ask, LoadPlan
    from meshtrial.records.dataset import StudyData

SCHEMA = "meshtrial.planning/1"


def add(verbs: Any) -> None:
    """Declare the command."""
    command = verbs.add_parser("plan", allow_abbrev=False)
    command.add_argument("--from", dest="study_dir", type=Path, required=True, metavar="DIR", help="a recorded study")
    command.add_argument("--margin", help="the effect that matters: 5%%, 0.2ms or 5%%,0.2ms (as in the study)")
    command.add_argument("--response", default="p50", help="p50 (default), p99, path_cpu_s_per_request, ...")
    command.add_argument("--power", type=float, default=0.8, help="wanted probability to find it (0.8)")
    command.add_argument("--alpha", type=float, help="error level of the family (as in the study)")
    command.add_argument("--contrasts", type=int, metavar="M", help="contrasts of the family (as in the study)")
    command.add_argument("--json", type=Path, metavar="OUT", help="write what was computed")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    from meshtrial.compare.planning import plan_of
    from meshtrial.records.store import write_json

    data = read(arguments.study_dir)
    ask = ask_of(arguments, data)
    plans = plan_of(data, ask)
    print("\n\n".join([_head(data, ask), *(_load(plan, ask, len(plans) > 1) for plan in plans)]), file=out)
    if arguments.json is not None:
        try:
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            write_json(arguments.json, to_dict(data, ask, plans))
        except OSError as error:
            raise UsageError(f"{arguments.json}: cannot be written ({error.strerror})") from error
        print(f"\nrecord  {arguments.json}", file=out)
    return 0


def read(path: Path) -> StudyData:
    """A study's runs and their table, whether or not it was ever analysed."""
    from meshtrial.records.dataset import StudyData
    from meshtrial.records.store import StudyStore
    from meshtrial.records.tables import runs_table

    store = StudyStore.open(path.resolve())
    records = store.records()
    if not records:
        raise UsageError(f"{path}: holds no run yet; `meshtrial status` lists the recorded studies")
    return StudyData(store.path, store.plan, {}, records, runs_table(store.plan, records))


def ask_of(arguments: argparse.Namespace, data: StudyData) -> Ask:
    """The checked request.

    Raises
    ------
    UsageError
        Naming the option and what is allowed.
    """
    from meshtrial.compare.planning import Ask
    from meshtrial.responses import find_response

    response, _ = find_response(arguments.response)
    recorded = set(data.table["response"].to_list())
    if response.margin is None or response.name not in recorded:
        judged = sorted(name for name in recorded if find_response(name)[0].margin is not None)
        raise UsageError(
            f"--response {arguments.response}: was not recorded or gets no verdict; there are {', '.join(judged)}"
        )
    study = data.plan.study
    alpha = study.alpha if arguments.alpha is None else arguments.alpha
    contrasts = len(study.all_contrasts()) if arguments.contrasts is None else arguments.contrasts
    if not 0 < alpha < 0.5 or not 0 < arguments.power < 1:
        raise UsageError(
            f"--alpha {alpha:g} --power {arguments.power:g}: allowed are 0 to 0.5 and 0 to 1, ends excluded"
        )
    if contrasts < 1 and arguments.contrasts is not None:
        raise UsageError(f"--contrasts {contrasts}: allowed is 1 or more")
    margin = study.margins.get(response.name, response.margin)
    if arguments.margin is not None:
        margin = Margin(**({"relative": 0.0} | margin_parts(arguments.margin, response.unit, "--margin ")))
    return Ask(response, margin, alpha, arguments.power, max(1, contrasts))


def to_dict(data: StudyData, ask: Ask, plans: tuple[LoadPlan, ...]) -> dict[str, Any]:
    """Plain data: the request, and what every load needs."""
    return {
        "schema": SCHEMA,
        "study": str(paths.shown(data.path)),
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


def _head(data: StudyData, ask: Ask) -> str:
    from meshtrial import stats

    sized = " or ".join(
        text
        for text in (
            f"{100 * ask.margin.relative:g} %" * bool(ask.margin.relative),
            f"{ask.margin.floor * 1e3:g} ms" * bool(ask.margin.floor),
        )
        if text
    )
    floor_d = stats.smallest_n(ask.contrasts, ask.alpha)
    floor_e = stats.smallest_n(ask.contrasts, ask.alpha, "equivalence")
    return _wrap(
        f"{ask.response.label}, margin {sized}, alpha {ask.alpha:g} over {ask.contrasts} contrast"
        f"{'s' * (ask.contrasts > 1)}, power {ask.power:g}; from {paths.shown(data.path)}. No fewer than {floor_d} "
        f"blocks can show a difference in such a family, no fewer than {floor_e} equivalence."
    )


def _load(plan: LoadPlan, ask: Ask, several: bool) -> str:
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
            "noise: standard deviation of the log ratios of a block. smallest visible: the effect that the blocks "
            f"there find with power {ask.power:g}."
        )
    )
    repeats = f", {100 * (plan.repeats - 1):.3g} % of the runs repeated" if plan.repeats > 1 else ""
    lines.append(_wrap(f"A block of {plan.treatments} treatments takes {_time(plan.seconds_per_block)} here{repeats}."))
    lines.append(_wrap(_slices(plan)))
    return "\n".join(lines)


def _slices(plan: LoadPlan) -> str:
    found = plan.slices
    if found is None:
        return f"Slices: {plan.slices_reason}."
    listed = "; ".join(
        f"{k} slice{'s' * (k > 1)} {blocks} blocks, {_time(seconds)}" for k, (blocks, seconds) in found.options.items()
    )
    return (
        f"Slices: {found.best} a deployment is cheapest (Kalibera & Jones: a deployment costs {_time(found.outer_s)} "
        f"beside its slices of {_time(found.inner_s)}; noise {100 * found.between**0.5:.3g} % between deployments, "
        f"{100 * found.within**0.5:.3g} % inside one). To find the margin: {listed}. "
        "Slices are not replicates: they do not add to n."
    )


def _floor(ask: Ask) -> int:
    from meshtrial import stats

    return stats.smallest_n(ask.contrasts, ask.alpha)


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
