"""The command line: thin argparse over the library. How a command ends: :class:`meshtrial.errors.Exit`."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, TextIO, cast

from meshtrial import __version__, paths
from meshtrial.errors import Exit, MeshtrialError

# A command is the module of that name in meshtrial.commands.
COMMANDS = {
    "doctor": "check dependencies and say how to install what is missing",
    "run": "run a study and write its reports",
    "open": "open the newest report in a browser",
    "report": "make verdicts and report again from a study's records",
    "verify": "check a study's checksums and that re-analysis gives the same verdicts",
    "pack": "write a recorded study as one file, to publish or to send",
    "fetch": "copy the records of a study that runs in its cluster to this machine",
    "merge": "put the parts of a divided study together",
    "export": "write verdicts and runs as CSV, Parquet and JSON",
    "status": "list the recorded studies and how far each is",
    "site": "write the index over all reports again, or a web site of chosen studies",
    "compare": "compare results of load generators, or a table, that are already there",
    "history": "draw one response over all recorded studies of a question",
    "plan": "how many blocks a margin costs, from a recorded study",
    "cost": "what the treatments of a study cost in money, at your prices",
    "probe": "count system calls and context switches a request (local, needs strace)",
    "calibrate": "error rates, coverage and power of the inference on simulated studies",
    "clean": "remove what studies left on a Kubernetes cluster",
}
# What is said to somebody who asks for nothing.
FIRST = """\
meshtrial doctor                  checks dependencies and says how to install what is missing
meshtrial run ambient_vs_no_mesh  a study of some minutes that needs no cluster; Ctrl-C keeps what is recorded
meshtrial open                    its report
`meshtrial --help` lists all commands"""
EXIT_CODES = "exit codes:\n" + "\n".join(
    textwrap.fill(code.meaning, 79, initial_indent=f"  {code:<5}", subsequent_indent=7 * " ") for code in Exit
)


def parser(verb: str = "") -> argparse.ArgumentParser:
    """The command line, with the options of one command: only its module is loaded, which may take a second."""
    made = argparse.ArgumentParser(
        prog="meshtrial",
        description="Randomised, controlled trials of service meshes.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"meshtrial {__version__}")
    verbs = made.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        # An option of a command takes the place of the parser's own: run has more to say for --help.
        command = verbs.add_parser(
            name,
            help=text,
            description=text,
            epilog=EXIT_CODES if name == "run" else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            conflict_handler="resolve",
        )
        if name == verb:
            module = importlib.import_module(f"meshtrial.commands.{name}")
            command.set_defaults(run=module.run)
            if hasattr(module, "add"):
                module.add(command)
    return made


def main(argv: Sequence[str], out: TextIO, err: TextIO) -> int:
    """Run one command; every expected failure is one line on ``err``."""
    paths.keep_state_inside()
    if not argv:
        print(FIRST, file=out)
        return 0
    try:
        # No option stands before a command but --help and --version, which end here.
        arguments = parser(argv[0]).parse_args(argv)
        code: int = arguments.run(arguments, out)
        return code
    except SystemExit as stop:
        return int(stop.code or 0)
    except MeshtrialError as error:
        print(f"meshtrial {argv[0]}: {error}", file=err)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"meshtrial {argv[0]}: interrupted", file=err)
        return Exit.INTERRUPTED
    except (OSError, MemoryError) as error:
        from meshtrial.commands import limits

        if (refused := limits.refusal(error)) is None:
            raise
        print(f"meshtrial {argv[0]}: {refused}", file=err)
        return MeshtrialError.exit_code


class Pipe:
    """A standard stream whose reader may go (``| head``): the rest is dropped, and the work is done as without it.

    So files are written, gates are judged, and the exit code is that of the work.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream or io.StringIO()  # None where it was closed before Python began

    def write(self, text: str) -> int:
        """Write, as long as somebody reads."""
        with self._unread():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, as long as somebody reads."""
        with self._unread():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _unread(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            # What is buffered goes the same way, also when Python flushes it at its end.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def entry() -> None:
    """Console script."""
    out, err = Pipe(sys.stdout), Pipe(sys.stderr)
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
