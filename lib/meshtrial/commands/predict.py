"""``meshtrial predict SYSTEM --from STUDY``: predict what treatments would add to a system of one's own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TextIO, TypeVar

from meshtrial.errors import UsageError, writing

T = TypeVar("T")
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
    command.epilog, command.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
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
    option("--core-hour", type=float, metavar="PRICE", help="price per core-hour")
    option("--gib-hour", type=float, metavar="PRICE", help="price per GiB-hour of memory")
    option("--currency", default="", metavar="NAME", help="currency to print with the amounts")
    option("--request-cores", type=float, metavar="N", help="cores that each proxy requests, such as 0.1")
    option("--request-gib", type=float, metavar="N", help="GiB of memory that each proxy requests, such as 0.125")
    option("--nodes", type=int, metavar="N", help="nodes, each with a proxy of its own (default: as in the studies)")
    option(
        "--app-cpu-us",
        type=float,
        metavar="US",
        help="CPU per request of the studies' application on the target, if it is another machine",
    )
    option("--model-error", type=float, default=0.0, metavar="SHARE", help="standard deviation of measured/predicted")
    option("--json", type=Path, metavar="FILE", help="write all results as JSON")
    option("--html", type=Path, metavar="FILE", help="write the results as one offline page")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    from meshtrial.design.system import read_system
    from meshtrial.inference import read_study
    from meshtrial.inference.money import Prices
    from meshtrial.prediction import Requested, page, predict_all
    from meshtrial.records.store import StudyStore

    system = read_system(arguments.system)
    prices = _both(arguments, Prices, "core_hour", "gib_hour")
    requested = _both(arguments, Requested, "request_cores", "request_gib")
    if requested and not prices:
        raise UsageError("--request-cores: is turned into money; give --core-hour and --gib-hour too")
    found = predict_all(
        system,
        [read_study(StudyStore.open(path.resolve())) for path in arguments.studies],
        arguments.treatment,
        arguments.against,
        prices=prices,
        requested=requested,
        nodes=arguments.nodes,
        app_cpu_us=arguments.app_cpu_us,
        model_error=arguments.model_error,
    )
    if arguments.json is not None:
        with writing(arguments.json, UsageError):
            page.write(arguments.json, arguments.system, found)
    if arguments.html is not None:
        with writing(arguments.html, UsageError):
            page.write_html(arguments.html, arguments.system, found, arguments.command_line, arguments.currency)
    print(page.text(found, arguments.currency), file=out)
    return 0


def _both(arguments: argparse.Namespace, kind: Callable[[float, float], T], *names: str) -> T | None:
    """Return what two options give together; None without both."""
    values = [getattr(arguments, name) for name in names]
    if values == [None, None]:
        return None
    if None in values:
        missing = names[values.index(None)].replace("_", "-")
        raise UsageError(
            f"--{missing}: is missing; give both {' and '.join('--' + n.replace('_', '-') for n in names)}"
        )
    return kind(*values)
