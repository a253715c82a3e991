"""The command line ``python -m meshtrial.native``, which set-up calls."""

import platform
import sys
from collections.abc import Sequence
from typing import TextIO

from meshtrial.errors import MeshtrialError, UsageError
from meshtrial.native import build, build_forkserver, find, licences, version
from meshtrial.native.toolchain import print_line
from meshtrial.signals import interruptible

USAGE = "usage: python -m meshtrial.native build [NAME...] | find NAME | version NAME | licences"


def main(argv: Sequence[str], out: TextIO = sys.stdout, err: TextIO = sys.stderr) -> int:
    """Run ``build NAME...``, ``find NAME``, ``version NAME`` or ``licences``; return the exit code."""
    try:
        match list(argv):
            case ["build", *names]:
                _build(names, out)
            case ["find", name]:
                print(find(name), file=out)
            case ["version", name]:
                print(version(name), file=out)
            case ["licences"]:
                for row in licences():
                    print(f"{row.name}\t{row.version}\t{row.licence}", file=out)
            case _:
                raise UsageError(USAGE)
    except MeshtrialError as error:
        print(f"native: {error}", file=err)
        return error.exit_code
    except KeyboardInterrupt:
        print("native: stopped; run it again to continue with what Go has already compiled", file=err)
        return 130
    return 0


def _build(names: Sequence[str], out: TextIO) -> None:
    if platform.system() != "Linux":
        system = platform.system()
        print_line(out, f"nothing to build: these programs serve backend=local, which cannot run on {system}")
        return
    with interruptible():
        build(names, out)
        build_forkserver(out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
