"""``meshtrial plan``: how many blocks a margin costs on this machine, from a study that was recorded on it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from meshtrial.errors import UsageError, writing

if TYPE_CHECKING:
    from meshtrial.planning.blocks import PlanRequest
    from meshtrial.records.dataset import StudyData


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument("--from", dest="study_dir", type=Path, required=True, metavar="DIR", help="a recorded study")
    command.add_argument("--margin", help="the effect that matters: 5%%, 0.2ms or 5%%,0.2ms (as in the study)")
    command.add_argument("--response", default="p50", help="p50 (default), p99, path_cpu_s_per_request, ...")
    command.add_argument("--power", type=float, default=0.8, help="wanted probability to find it (0.8)")
    command.add_argument("--alpha", type=float, help="error level of the family (as in the study)")
    command.add_argument("--contrasts", type=int, metavar="M", help="contrasts of the family (as in the study)")
    command.add_argument("--json", type=Path, metavar="OUT", help="write what was computed")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    from meshtrial.planning.blocks import plan_of, read
    from meshtrial.planning.output import report, to_dict
    from meshtrial.records.store import write_json

    data = read(arguments.study_dir)
    ask = ask_of(arguments, data)
    plans = plan_of(data, ask)
    print(report(data, ask, plans), file=out)
    if arguments.json is not None:
        with writing(arguments.json, UsageError):
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            write_json(arguments.json, to_dict(data, ask, plans))
        print(f"\nrecord  {arguments.json}", file=out)
    return 0


def ask_of(arguments: argparse.Namespace, data: StudyData) -> PlanRequest:
    """The checked request; an option that cannot be is named with what is allowed."""
    from meshtrial.design.responses import declared_margins, find_response
    from meshtrial.planning.blocks import PlanRequest

    response, _ = find_response(arguments.response)
    recorded = set(data.table["response"].to_list())
    if response.margin is None or response.name not in recorded:
        judged = sorted(name for name in recorded if find_response(name)[0].margin is not None)
        raise UsageError(
            f"--response {arguments.response}: was not recorded or gets no verdict; there are {', '.join(judged)}"
        )
    study = data.plan.study
    alpha = study.alpha if arguments.alpha is None else arguments.alpha
    declared = max(map(len, study.families().values()))
    contrasts = declared if arguments.contrasts is None else arguments.contrasts
    if not 0 < alpha < 0.5 or not 0 < arguments.power < 1:
        raise UsageError(
            f"--alpha = {alpha:g} must be between 0 and 0.5, --power = {arguments.power:g} between 0 and 1"
        )
    if contrasts < 1 and arguments.contrasts is not None:
        raise UsageError(f"--contrasts {contrasts}: must be 1 or more")
    margin = study.margins.get(response.name, response.margin)
    if arguments.margin is not None:
        given = declared_margins([arguments.margin], {}, lambda name: find_response(name)[0], [response])
        if response.name not in given:
            raise UsageError(f"--margin {arguments.margin}: must be of {arguments.response}, e.g. 5%")
        margin = given[response.name]
    return PlanRequest(response, margin, alpha, arguments.power, max(1, contrasts))
