"""``meshtrial cost DIR``: what the treatments of a study cost in money, at the user's prices."""

import argparse
from pathlib import Path
from typing import TextIO


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument("study_dir", type=Path, metavar="DIR", help="a recorded study, or a packed one")
    command.add_argument("--core-hour", type=float, required=True, metavar="PRICE", help="of one core for an hour")
    command.add_argument("--gib-hour", type=float, required=True, metavar="PRICE", help="of one GiB for an hour")
    command.add_argument("--currency", default="", metavar="NAME", help="shown beside the amounts")
    command.add_argument("--pods", type=int, metavar="N", help="at N pods, from a scale_out study")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    from meshtrial.inference import read_study
    from meshtrial.records.store import StudyStore
    from meshtrial.report.tables.costs import money, money_at

    data = read_study(StudyStore.open(arguments.study_dir.resolve()))
    prices = arguments.core_hour, arguments.gib_hour
    if arguments.pods is None:
        made = money(data, *prices, arguments.currency)
    else:
        made = money_at(data, *prices, arguments.pods, arguments.currency)
    print(made.text, file=out)
    return 0
