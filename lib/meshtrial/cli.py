"""The command line: argparse over the library. Exit codes are in :class:`meshtrial.errors.Exit`."""

import argparse
import contextlib
import importlib
import io
import os
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, TextIO, cast

from meshtrial import __version__, packages, paths
from meshtrial.errors import Exit, MeshtrialError, MissingToolError

# Each command is the module of that name in meshtrial.commands.
COMMANDS = {
    "doctor": "check dependencies and show how to install what is missing",
    "run": "run a study and write its report",
    "open": "open the newest report in a browser",
    "report": "compute verdicts and write the report from recorded runs",
    "verify": "verify the checksums and verdicts of a recorded study",
    "pack": "pack a recorded study into one file",
    "fetch": "copy a study that runs in its cluster to this machine",
    "merge": "merge the parts of a divided study",
    "export": "export verdicts and runs as CSV, Parquet and JSON",
    "status": "list recorded studies and their progress",
    "site": "rebuild the index of reports, or build a web site",
    "compare": "compare load generator results, a table, or studies",
    "history": "plot a response over all studies of a question",
    "plan": "estimate the blocks that a margin needs",
    "cost": "estimate what each treatment costs in money",
    "calls": "describe your running system by its mesh's metrics",
    "predict": "predict what treatments would add to your own system",
    "probe": "count system calls per request (local, needs strace)",
    "calibrate": "measure error rates and power on simulated studies",
    "clean": "remove what studies left on a Kubernetes cluster",
}
# The module without which a command cannot begin, so that one line names the extra that has it. Others read records.
_NEEDED = {
    **dict.fromkeys(("doctor", "open", "compare", "calls"), ""),
    **dict.fromkeys(("run", "report", "site"), "papermill"),
    **dict.fromkeys(("history", "predict"), "matplotlib"),
    **dict.fromkeys(("fetch", "clean"), "kubernetes"),
    "probe": "cryptography",
}
# Printed by `meshtrial` without arguments.
FIRST_STEPS = """\
meshtrial doctor                  check dependencies
meshtrial run ambient_vs_no_mesh  run a study of a few minutes, without a cluster
meshtrial open                    open its report
meshtrial --help                  list all commands"""
EXIT_CODES = "exit codes:\n" + "\n".join(
    textwrap.fill(code.meaning, 79, initial_indent=f"  {code:<5}", subsequent_indent=7 * " ") for code in Exit
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """End with one line, without the usage."""
        self.exit(Exit.USAGE, f"{self.prog}: {message}; see `{self.prog} --help`\n")


def parser(verb: str = "") -> argparse.ArgumentParser:
    """Return the parser, with the options of one command only: importing its module may take a second."""
    root = _Parser(
        prog="meshtrial",
        description="Randomised, controlled trials of service meshes.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    root.add_argument("--version", action="version", version=f"meshtrial {__version__}")
    verbs = root.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        # "resolve" lets `run` replace --help by its own.
        command = verbs.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=EXIT_CODES if name == "run" else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            conflict_handler="resolve",
        )
        if name == verb:
            module = importlib.import_module(f"meshtrial.commands.{name}")
            command.set_defaults(run=module.run)
            command.epilog = getattr(module, "EXAMPLES", command.epilog)
            if hasattr(module, "add"):
                module.add(command)
    return root


def main(argv: Sequence[str], out: TextIO, err: TextIO) -> int:
    """Run one command and return its exit code; every expected failure is one line on ``err``."""
    paths.keep_state_inside()
    # JupyterLab installs a grammar that jsonschema compiles at import for a second; no notebook has what it describes.
    sys.modules.setdefault("rfc3987_syntax", cast(Any, None))
    if not argv:
        print(FIRST_STEPS, file=out)
        return 0
    try:
        if argv[0] in COMMANDS and (module := _NEEDED.get(argv[0], "polars")):
            packages.require(module)
        # Only --help and --version can precede a command.
        arguments = parser(argv[0]).parse_args(argv)
        arguments.command_line = shlex.join(["meshtrial", *argv])
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
    except ModuleNotFoundError as error:
        if (advice := packages.advice(error.name or "")) is None:
            raise
        print(f"meshtrial {argv[0]}: {advice}", file=err)
        return MissingToolError.exit_code
    except (OSError, MemoryError) as error:
        from meshtrial.commands import limits

        if (refused := limits.refusal(error)) is None:
            raise
        print(f"meshtrial {argv[0]}: {refused}", file=err)
        return MeshtrialError.exit_code


class Pipe:
    """A standard stream that drops its output after its reader has closed it (``| head``).

    The command still writes its files, judges its gate and returns its exit code.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream or io.StringIO()  # None if it was closed before Python started

    def write(self, text: str) -> int:
        """Write, unless the reader has closed the stream."""
        with self._without_reader():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, unless the reader has closed the stream."""
        with self._without_reader():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _without_reader(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            # Buffered output goes there, too, when Python flushes it at exit.
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, self._stream.fileno())
            os.close(devnull)


def entry() -> None:
    """Run the console script."""
    out, err = Pipe(sys.stdout), Pipe(sys.stderr)
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
