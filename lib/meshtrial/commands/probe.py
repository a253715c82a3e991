"""``meshtrial probe TREATMENT``: system calls and context switches a request, by component, outside any study."""

import argparse
from typing import TextIO

from meshtrial.design.load import ClosedLoop, FixedRate
from meshtrial.design.settings import PROTOCOLS
from meshtrial.design.study import Treatment


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument("treatment", nargs="+", help="e.g. none sidecar+mtls node-proxy")
    command.add_argument("--app", default="echo", help="the application behind it (default echo)")
    command.add_argument("--protocol", default="http1", choices=[name for name in PROTOCOLS if name != "mixed"])
    command.add_argument("--rps", type=float, default=100.0, help="requests a second; 0 is a closed loop (default 100)")
    command.add_argument("--connections", type=int, default=4, help="kept open side by side (default 4)")
    command.add_argument("--duration", type=float, default=3.0, metavar="S", help="seconds a stage (default 3)")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    # The local testbed and the load tables are not loaded for other commands.
    from meshtrial.run.probe import lines, probe

    treatments = [Treatment.parse(name) for name in arguments.treatment]
    asked = (arguments.connections, arguments.duration, 0.0)
    load = (
        FixedRate(arguments.rps, *asked, protocol=arguments.protocol)
        if arguments.rps
        else ClosedLoop(*asked, protocol=arguments.protocol)
    )
    for treatment in treatments:
        print("\n".join(lines(probe(treatment, load, arguments.app))), end="\n\n", file=out)
    print("Counted under strace in a pass of its own: counts of calls, never times.", file=out)
    return 0
