"""The command line: thin argparse over the library.

Exit codes: 0 done, 1 failed, 2 bad usage, 3 finished but with invalid runs, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TextIO

from meshtrial import __version__, paths
from meshtrial.commands import calibrate, clean, compare, doctor, plan, probe, report, run, site, status, verify
from meshtrial.errors import MeshtrialError

INTERRUPTED = 130
COMMANDS = (doctor, run, report, verify, status, site, compare, plan, probe, calibrate, clean)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    made = argparse.ArgumentParser(
        prog="meshtrial", description="Randomised, controlled trials of service meshes.", allow_abbrev=False
    )
    made.add_argument("--version", action="version", version=f"meshtrial {__version__}")
    verbs = made.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(verbs)
    return made


def main(argv: Sequence[str], out: TextIO, err: TextIO) -> int:
    """Run one command; every expected failure is one line on ``err``."""
    paths.keep_state_inside()
    try:
        arguments = parser().parse_args(argv)
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
