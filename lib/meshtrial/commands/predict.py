"""``meshtrial predict SYSTEM --from STUDY``: predict what treatments would add to a system of one's own."""

import argparse
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TextIO

from meshtrial.design.system import read_system
from meshtrial.errors import UsageError, writing
from meshtrial.inference import read_study
from meshtrial.prediction import Options, page, predict_all
from meshtrial.records.store import StudyStore

EXAMPLES = """\
examples:
  meshtrial predict data/systems/online_shop.yaml \\
      --from data/studies/building_blocks/MONDAY
  meshtrial predict shop.yaml --from MONDAY TUESDAY WEDNESDAY \\
      --treatment istio-ambient --against istio+mtls
  meshtrial predict calls.csv --from MONDAY --core-hour 0.04 --gib-hour 0.005

docs/how-to/your-system.md describes the system file."""


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("system", type=Path, metavar="SYSTEM", help="YAML file of services, calls and paths, or CSV table of calls")
    option(
        "--from",
        dest="studies",
        type=Path,
        nargs="+",
        required=True,
        metavar="STUDY",
        help="folders of recorded studies, or packed studies, of one machine",
    )
    option("--treatment", default="", metavar="NAME", help="treatment to predict (default: all of the studies)")
    option("--against", default="", metavar="NAME", help="treatment to compare with (default: the studies' baseline)")
    amount = partial(option, type=float, default=0.0)
    amount("--core-hour", metavar="PRICE", help="price per core-hour; without prices no money is shown")
    amount("--gib-hour", metavar="PRICE", help="price per GiB-hour of memory")
    option("--currency", default="", metavar="NAME", help="currency to print with the amounts")
    amount("--request-cores", metavar="N", help="cores that each proxy requests, such as 0.1")
    amount("--request-gib", metavar="N", help="GiB of memory that each proxy requests, such as 0.125")
    option(
        "--nodes", type=int, default=0, metavar="N", help="nodes that carry the system; busy ones make a call cheaper"
    )
    target = "CPU per request of the studies' application on the target, if it is another machine"
    amount("--app-cpu-us", metavar="US", help=target)
    error = "standard deviation of measured over predicted amounts (default: that of generated systems)"
    option("--model-error", type=float, metavar="SHARE", help=error)
    option("--json", type=Path, metavar="FILE", help="write all results as JSON")
    option("--html", type=Path, metavar="FILE", help="write the results as one offline page")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    options = Options(**{one.name: getattr(arguments, one.name) for one in fields(Options)})
    system = read_system(arguments.system)
    records = [read_study(StudyStore.open(path.resolve())) for path in arguments.studies]
    found = predict_all(system, records, arguments.treatment, arguments.against, options)
    if arguments.json is not None:
        with writing(arguments.json, UsageError):
            page.write(arguments.json, arguments.system, found)
    if arguments.html is not None:
        with writing(arguments.html, UsageError):
            page.write_html(arguments.html, arguments.system, found, arguments.command_line, arguments.currency)
    print(page.text(found, arguments.currency), file=out)
    return 0
