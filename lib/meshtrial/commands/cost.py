"""``meshtrial cost DIR``: estimate what each treatment costs in money, at the user's prices."""

import argparse
from pathlib import Path
from typing import TextIO

from meshtrial.inference import read_study
from meshtrial.records.store import StudyStore
from meshtrial.report.tables.costs import money, money_at


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("study_dir", type=Path, metavar="DIR", help="folder of a recorded study, or a packed study")
    option("--core-hour", type=float, required=True, metavar="PRICE", help="price per core-hour")
    option("--gib-hour", type=float, required=True, metavar="PRICE", help="price per GiB-hour of memory")
    option("--currency", default="", metavar="NAME", help="currency to print with the amounts")
    option("--pods", type=int, metavar="N", help="estimate costs at N pods, from a scale_out study")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    data = read_study(StudyStore.open(arguments.study_dir.resolve()))
    prices = arguments.core_hour, arguments.gib_hour
    if arguments.pods is None:
        table = money(data, *prices, arguments.currency)
    else:
        table = money_at(data, *prices, arguments.pods, arguments.currency)
    print(table.text, file=out)
    return 0
