"""``meshtrial plan``: estimate the blocks that a margin needs, from a study recorded on the same machine."""

import argparse
from pathlib import Path
from typing import TextIO

from meshtrial.design.responses import declared_margins, find_response
from meshtrial.errors import UsageError, writing
from meshtrial.inference.planning import PlanRequest, plan_of, read, report, to_dict
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import write_json

MOST_NIGHTS = 1000


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("--from", dest="study_dir", type=Path, required=True, metavar="DIR", help="folder of a recorded study")
    option("--margin", help="margin: 5%%, 0.2ms, 5%%,0.2ms or 5%% of 0.8ms (default: as in the study)")
    option("--response", default="p50", metavar="NAME", help="response to plan for (default p50)")
    option("--power", type=float, default=0.8, help="probability to detect an effect (default 0.8)")
    option("--alpha", type=float, help="error level of the family (default: as in the study)")
    option("--contrasts", type=int, metavar="M", help="contrasts in the family (default: as in the study)")
    option("--nights", type=int, default=0, metavar="N", help="false alarms of a CI gate that runs N nights")
    option("--json", type=Path, metavar="OUT", help="write the results as JSON")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    data = read(arguments.study_dir)
    ask = ask_of(arguments, data)
    plans = plan_of(data, ask)
    print(report(data, ask, plans), file=out)
    if arguments.json is not None:
        with writing(arguments.json, UsageError):
            write_json(arguments.json, to_dict(data, ask, plans))
        print(f"\nrecord  {arguments.json}", file=out)
    return 0


def ask_of(arguments: argparse.Namespace, data: StudyData) -> PlanRequest:
    """Return the checked request; UsageError names a wrong option and what is allowed."""
    response, _ = find_response(arguments.response)
    recorded = set(data.table["response"].to_list())
    if response.margin is None or response.name not in recorded:
        judged = sorted(name for name in recorded if find_response(name)[0].margin is not None)
        raise UsageError(
            f"--response {arguments.response}: was not recorded or gets no verdict; choose one of {', '.join(judged)}"
        )
    study = data.plan.study
    alpha = study.alpha if arguments.alpha is None else arguments.alpha
    declared = max(map(len, study.families().values()))
    contrasts = declared if arguments.contrasts is None else arguments.contrasts
    if not 0 < alpha < 0.5 or not 0 < arguments.power < 1:
        raise UsageError(
            f"--alpha {alpha:g} --power {arguments.power:g}: alpha must be between 0 and 0.5, power between 0 and 1"
        )
    if contrasts < 1 and arguments.contrasts is not None:
        raise UsageError(f"--contrasts {contrasts}: must be 1 or more")
    if not 0 <= arguments.nights <= MOST_NIGHTS:
        raise UsageError(f"--nights {arguments.nights}: must be 0 to {MOST_NIGHTS}")
    margin = study.margins.get(response.name, response.margin)
    if arguments.margin is not None:
        margins = declared_margins([arguments.margin], {}, lambda name: find_response(name)[0], [response])
        if response.name not in margins:
            raise UsageError(f"--margin {arguments.margin}: must be a margin of {arguments.response}, e.g. 5%")
        margin = margins[response.name]
    return PlanRequest(response, margin, alpha, arguments.power, max(1, contrasts), arguments.nights)
