"""``meshtrial probe TREATMENT``: count system calls and context switches per request, outside any study."""

import argparse
from typing import TextIO

from meshtrial.design.load import ClosedLoop, FixedRate
from meshtrial.design.settings import PROTOCOLS
from meshtrial.design.study import Treatment
from meshtrial.run.probe import lines, probe


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("treatment", nargs="+", metavar="TREATMENT", help="treatments, e.g. none sidecar+mtls node-proxy")
    option("--app", default="echo", help="application behind the data plane (default echo)")
    protocols = [name for name in PROTOCOLS if name != "mixed"]
    option("--protocol", default="http1", choices=protocols, help="protocol (default http1)")
    option("--rps", type=float, default=100.0, help="requests per second; 0: closed loop (default 100)")
    option("--connections", type=int, default=4, metavar="N", help="open connections (default 4)")
    option("--duration", type=float, default=3.0, metavar="S", help="seconds per stage (default 3)")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    treatments = [Treatment.parse(name) for name in arguments.treatment]
    asked = (arguments.connections, arguments.duration, 0.0)
    load = (
        FixedRate(arguments.rps, *asked, protocol=arguments.protocol)
        if arguments.rps
        else ClosedLoop(*asked, protocol=arguments.protocol)
    )
    for treatment in treatments:
        print("\n".join(lines(probe(treatment, load, arguments.app))), end="\n\n", file=out)
    print("Counts come from a separate pass under strace; times under strace mean nothing.", file=out)
    return 0
