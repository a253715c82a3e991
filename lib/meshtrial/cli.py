"""The command line: thin argparse over the library.

Exit codes: 0 done, 1 failed, 2 bad usage, 3 finished but with invalid runs, 4 a gate fired, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import TextIO

from meshtrial import __version__, paths
from meshtrial.errors import MeshtrialError

INTERRUPTED = 130
# A command is the module of that name in meshtrial.commands.
COMMANDS = {
    "doctor": "what works on this machine, what is missing, how to get it",
    "run": "run a study and write its reports",
    "report": "make verdicts and report again from a study's records",
    "verify": "check a study's checksums and that re-analysis gives the same verdicts",
    "pack": "write a recorded study as one file, to publish or to send",
    "export": "write verdicts and runs as CSV, Parquet, JSON and OpenMetrics",
    "status": "list the recorded studies and how far each is",
    "site": "write the index over all reports again, or a web site of chosen studies",
    "compare": "compare fortio results, access logs or a table that are already there",
    "history": "draw one response over all recorded studies of a question",
    "plan": "how many blocks a margin costs, from a recorded study",
    "cost": "what the treatments of a study cost in money, at your prices",
    "probe": "count system calls and context switches a request (local, needs strace)",
    "calibrate": "error rates, coverage and power of the inference on simulated studies",
    "clean": "remove what studies left on a Kubernetes cluster",
}


def parser(verb: str = "") -> argparse.ArgumentParser:
    """The command line, with the options of one command: only its module is loaded, which may take a second."""
    made = argparse.ArgumentParser(
        prog="meshtrial", description="Randomised, controlled trials of service meshes.", allow_abbrev=False
    )
    made.add_argument("--version", action="version", version=f"meshtrial {__version__}")
    verbs = made.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        if name == verb:
            importlib.import_module(f"meshtrial.commands.{name}").add(verbs)
        else:
            verbs.add_parser(name, help=text)
    return made


def main(argv: Sequence[str], out: TextIO, err: TextIO) -> int:
    """Run one command; every expected failure is one line on ``err``."""
    paths.keep_state_inside()
    try:
        # No option stands before a command but --help and --version, which end here.
        arguments = parser(argv[0] if argv else "").parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        code: int = arguments.run(arguments, out)
        return code
    except MeshtrialError as error:
        print(f"meshtrial {arguments.verb}: {error}", file=err)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"meshtrial {arguments.verb}: interrupted", file=err)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has gone (`| head`): nothing is wrong and nobody is left to be told.
        sys.stderr.close()
        return 0


def entry() -> None:
    """Console script."""
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
